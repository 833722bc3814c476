"""`gangsched demo`: runs three gangs on a new control plane and checks what they do.

`ddp-digits` trains with DistributedDataParallel, `second` does not fit until `ddp-digits` has
ended, and `wide` has 64 pods. The demo fails if a check fails.
"""

import asyncio
import contextlib
import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gangsched.api import names
from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import Invalid, KubeError, NotFound
from gangsched.local.nodes import load_nodes
from gangsched.local.plane import Binding, Plane, PlaneOptions
from gangsched.local.progress import show_progress
from gangsched.shipped import folder

_POLL_S = 0.5
_TIMEOUT_S = 180.0
_JOBS = {"ddp-digits": 4, "second": 2, "wide": 64}
_LOSS = re.compile(r"epoch (\d+) loss ([\d.]+)")
_API = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
_GROUPS = f"/apis/{names.GROUP}/{names.VERSION}/namespaces/default/podgroups"
_PODS = "/api/v1/namespaces/default/pods"


@dataclass(slots=True)
class _Gang:
    """What was observed of one job so far."""

    wanted: int
    state: str = "-"
    phase: str = ""
    reason: str = ""
    bound: int = 0
    nodes: str = "-"
    waited_because: str = ""
    partial_s: float = 0.0
    placed_at_s: float | None = None
    nodes_used: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Observed:
    """All observations that the checks at the end use."""

    gangs: dict[str, _Gang] = field(
        default_factory=lambda: {name: _Gang(count) for name, count in _JOBS.items()}
    )
    losses: list[float] = field(default_factory=list)
    second_started_before_first_ended: bool = False


Serve = Callable[[Path], None]
"""Serves the pages of the cluster of a kubeconfig, until the user stops it by an interrupt."""


def run(console: Console, binding: Binding = "extender", stay: Serve | None = None) -> bool:
    """Run the demo, and `stay` with its control plane; return whether all checks succeeded."""
    examples = folder("examples")
    plane = Plane("demo")
    plane.down()
    started_s = time.monotonic()
    nodes = load_nodes(examples / "demo-nodes.yaml")
    with show_progress(console, "starting") as progress:
        plane.up(nodes, PlaneOptions(binding=binding), progress)
    up_s = time.monotonic() - started_s
    console.print(f"control plane and 102 nodes up in {up_s:.0f} s ({binding} binding)")
    try:
        observed = asyncio.run(_watch(plane.kubeconfig, examples, console))
        succeeded = _summary(console, observed, time.monotonic() - started_s)
        if stay is not None:
            console.print("the control plane runs until you press Ctrl-C")
            with contextlib.suppress(KeyboardInterrupt):
                stay(plane.kubeconfig)
    finally:
        plane.down()
    return succeeded


async def _watch(kubeconfig: Path, examples: Path, console: Console) -> _Observed:
    observed = _Observed()
    async with KubeClient(kubeconfig) as client:
        await _submit(client, examples)
        deadline_s = time.monotonic() + _TIMEOUT_S
        with Live(console=console, refresh_per_second=4, transient=False) as live:
            while time.monotonic() < deadline_s:
                await _observe(client, observed)
                live.update(_screen(observed))
                if _is_over(observed):
                    break
                await asyncio.sleep(_POLL_S)
    return observed


async def _submit(client: KubeClient, examples: Path) -> None:
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "ddp-digits"},
        "data": {"train.py": (examples / "train.py").read_text()},
    }
    await client.create("/api/v1/namespaces/default/configmaps", config_map)
    for name in _JOBS:
        await client.create(_API, yaml.safe_load((examples / f"{name}.yaml").read_text()))
        if name == "ddp-digits":  # its gang must be placed first, or `second` would not wait
            await _wait_until(client, f"{_GROUPS}/{name}", lambda group: bool(_phase(group)))


async def _wait_until(client: KubeClient, path: str, ready: Callable[[Any], bool]) -> None:
    for _ in range(100):
        try:
            if ready(json.loads(await client.get(path))):
                return
        except NotFound:
            pass  # not created yet
        await asyncio.sleep(0.1)


def _phase(group: dict[str, Any]) -> str:
    return str((group.get("status") or {}).get("phase") or "")


async def _observe(client: KubeClient, observed: _Observed) -> None:
    jobs = {j["metadata"]["name"]: j for j in json.loads(await client.get(_API))["items"]}
    groups = {g["metadata"]["name"]: g for g in json.loads(await client.get(_GROUPS))["items"]}
    pods = json.loads(await client.get(_PODS))["items"]
    for name, gang in observed.gangs.items():
        conditions = (jobs[name].get("status") or {}).get("conditions") or []
        gang.state = conditions[-1]["type"] if conditions else "-"
        status = groups.get(name, {}).get("status") or {}
        gang.phase, gang.reason = status.get("phase", ""), status.get("message", "")
        own = [p for p in pods if p["metadata"]["name"].startswith(f"{name}-")]
        bound = [p for p in own if p["spec"].get("nodeName")]
        gang.bound = len(bound)
        if 0 < gang.bound < gang.wanted:
            gang.partial_s += _POLL_S
        gang.nodes_used |= {p["spec"]["nodeName"] for p in bound}
        gang.nodes = _node_range(sorted(gang.nodes_used))
        if gang.bound == gang.wanted and gang.placed_at_s is None:
            gang.placed_at_s = time.monotonic()
    first, second = observed.gangs["ddp-digits"], observed.gangs["second"]
    if second.phase == "Pending" and first.state in ("Created", "Running"):
        second.waited_because = second.waited_because or second.reason
    if second.bound and first.state not in ("Succeeded", "Failed"):
        observed.second_started_before_first_ended = True
    try:
        log = await client.get(f"{_PODS}/ddp-digits-master-0/log")
        observed.losses = [float(loss) for _, loss in _LOSS.findall(log.decode())]
    except (Invalid, NotFound):
        return  # the container has not started yet
    except KubeError:
        return  # only the log at the job's end is checked


def _node_range(nodes: list[str]) -> str:
    if not nodes:
        return "-"
    return ", ".join(nodes) if len(nodes) <= 2 else f"{nodes[0]} .. {nodes[-1]} ({len(nodes)})"


def _screen(observed: _Observed) -> Group:
    table = Table(box=None, pad_edge=False)
    for column, width in (("GANG", 10), ("PODS", 5), ("STATE", 9), ("NODES", 20), ("REASON", 26)):
        table.add_column(column, width=width, overflow="fold")
    for name, gang in observed.gangs.items():
        state = gang.phase if gang.state in ("Created", "-") and gang.phase else gang.state
        reason = gang.reason if gang.state in ("Created", "-") else ""
        table.add_row(name, f"{gang.bound}/{gang.wanted}", state, gang.nodes, reason)
    line = "  ".join(f"{loss:.2f}" for loss in observed.losses) or "(not yet)"
    return Group(table, Text(f"loss of ddp-digits by epoch: {line}"))


def _is_over(observed: _Observed) -> bool:
    ended = ("Succeeded", "Failed")
    pair = (observed.gangs["ddp-digits"], observed.gangs["second"])
    return all(gang.state in ended for gang in pair) and observed.gangs["wide"].bound == 64


def _summary(console: Console, observed: _Observed, took_s: float) -> bool:
    first, second, wide = (observed.gangs[name] for name in _JOBS)
    losses = observed.losses
    checks = (
        ("ddp-digits succeeded", first.state == "Succeeded"),
        (
            f"its loss fell ({losses[0]:.2f} to {losses[-1]:.2f})" if losses else "its loss fell",
            len(losses) >= 2 and losses[-1] < losses[0] / 2,
        ),
        ("second waited, and its status had the reason", bool(second.waited_because)),
        (
            "second started only after ddp-digits had ended",
            not observed.second_started_before_first_ended,
        ),
        ("second succeeded", second.state == "Succeeded"),
        ("wide: 64 pods placed on 64 nodes", wide.bound == 64 and len(wide.nodes_used) == 64),
    )
    console.print()
    for check, succeeded in checks:
        console.print(f"  {'ok' if succeeded else 'FAILED':<6} {check}")
    if second.waited_because:
        console.print(f"  second waited because: {second.waited_because}", soft_wrap=True)
    console.print(f"took {took_s:.0f} s")
    return all(succeeded for _, succeeded in checks)
