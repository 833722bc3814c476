"""Images on a process node: loaded images, and commands in place of some known images."""

import dataclasses
import hashlib
import json
import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gangsched.local.components import program

_DELIVER = """
set -e
cp {kubectl} "$TARGET_DIR/kubectl"
for host in $(cut -d' ' -f1 /etc/mpi/hostfile); do
  test "$host" = "$HOSTNAME" && continue
  until test "$({kubectl} get pod "$host" -o jsonpath={{.status.phase}})" = Running; do
    sleep 0.5
  done
done
"""
_INITIALIZERS = {
    f"ghcr.io/kubeflow/trainer/{part}-initializer": part for part in ("dataset", "model")
}
"""Images of Kubeflow Trainer with a program of the same contract here."""

_USER = re.compile(r"(\d{1,10})(?::(\d{1,10}))?")


@dataclass(frozen=True, slots=True)
class Image:
    """A loaded image: its root folder, and the settings of its programs."""

    root: Path
    entry_point: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    folder: str = "/"
    user: int = 0
    group: int = 0
    read_only: bool = False

    def changed_root(self, root: Path, *, privileged: bool) -> list[str]:
        """Return the command prefix that runs a program within a root and as the image's user.

        Nothing but the program itself has to be in the image. Without privilege there is no other
        user to become: the only one is then called by the number.
        """
        become = ["--setuid", str(self.user), "--setgid", str(self.group)]
        if not privileged:
            become = ["--user", f"--map-user={self.user}", f"--map-group={self.group}"]
        return ["unshare", *(become if self.user else []), "--root", str(root), "--wd"]


def place(folder: Path, name: str) -> Path:
    """Return the folder of an image; its name may have any letters."""
    base, _, last = name.rpartition("/")
    whole = name if ":" in last or "@" in last else f"{base}/{last}:latest".lstrip("/")
    return folder / hashlib.sha256(whole.encode()).hexdigest()[:32]


def image_of_pod(folder: Path, spec: Mapping[str, Any]) -> Image | None:
    """Return the image that every container of a pod names, as they share one root.

    None where it was not loaded, or containers name different ones: the machine's root is theirs.
    """
    containers = [*spec.get("initContainers", []), *spec["containers"]]
    names = {container.get("image", "") for container in containers}
    image = loaded(place(folder, names.pop())) if len(names) == 1 else None
    if image is None:
        return None
    rules = [container.get("securityContext") or {} for container in containers]
    security = (spec.get("securityContext") or {}) | rules[-1]
    return dataclasses.replace(
        image,
        user=security.get("runAsUser", image.user),
        group=security.get("runAsGroup", image.group),
        read_only=all(rule.get("readOnlyRootFilesystem") for rule in rules),
    )


def loaded(folder: Path) -> Image | None:
    """Return the image of a folder."""
    path = folder / "config.json"
    if not path.exists():
        return None
    config = json.loads(path.read_text())
    # A name instead of a number would have to be looked up in the image: it runs as root then.
    user = _USER.fullmatch(config.get("User") or "")
    return Image(
        folder / "root",
        tuple(config.get("Entrypoint") or ()),
        tuple(config.get("Cmd") or ()),
        dict(line.partition("=")[::2] for line in config.get("Env") or ()),
        config.get("WorkingDir") or "/",
        int(user[1]) if user else 0,
        int(user[2] or 0) if user else 0,
    )


def entry_point(name: str, arguments: list[str], image: Image | None) -> list[str]:
    """Return the command of a known image with a container's arguments, or nothing."""
    if image is not None:
        return [*image.entry_point, *(arguments or image.arguments)]
    base = name.rsplit("@", 1)[0].rsplit(":", 1)[0]
    if base in _INITIALIZERS:
        return [sys.executable, "-m", "gangsched.initializers", _INITIALIZERS[base], *arguments]
    if base == "mpioperator/kubectl-delivery":
        # It waits for the workers, and hands kubectl over.
        kubectl = shlex.quote(str(program("kubectl")))
        return ["sh", "-c", _DELIVER.format(kubectl=kubectl), *arguments]
    return []
