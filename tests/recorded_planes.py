"""Records of local control planes without running programs."""

import json
import os
from dataclasses import asdict

import psutil

from gangsched.local.plane import Plane
from gangsched.local.processes import Program


def record(name: str, server: str = "https://127.0.0.1:1", **programs: bool) -> Plane:
    """Record a plane, and of each of its programs whether it runs."""
    plane = Plane(name)
    plane.programs.logs.mkdir(parents=True)
    lives_s, ended_s = psutil.Process().create_time(), 0.0
    listed = [
        Program(
            one.replace("_", "-"), ["sleep", "1000"], os.getpid(), lives_s if lives else ended_s
        )
        for one, lives in programs.items()
    ]
    (plane.folder / "programs.json").write_text(json.dumps([asdict(one) for one in listed]))
    info = {"server": server, "kubectl": "/bin/true", "metrics": "", "binding": "extender"}
    (plane.folder / "instance.json").write_text(json.dumps(info))
    return plane
