"""Saves the work of a torch training loop when its job is about to be stopped.

    stop = StopNotice()
    for step in range(first, steps):
        train(step)
        if stop.after_step(lambda: save(step + 1)):
            break

It needs torch and the Python standard library only: this file may be copied into an image. The pod
mounts a downward API volume at FOLDER with the files `stop-at`, `name` and `namespace`, and its
service account may patch its own pod (ClusterRole gangsched-checkpoint).
"""

import json
import os
import signal
import ssl
import time
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import torch
import torch.distributed as dist

FOLDER = Path("/etc/gangsched")
_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_LOOK_S = 0.2
_LATE_S = 1.0
"""The scheduler stops the job at the announced time; a little later the notice is out of date."""

_TERMINATED = 2**62


class StopNotice:
    """Whether the job is to be stopped; all ranks agree on it after each step."""

    def __init__(self, folder: Path = FOLDER) -> None:
        """Listen for SIGTERM, and for the stop that the scheduler announces in a file."""
        self._folder = folder
        self._terminated = False
        self._present = self._answered = 0
        signal.signal(signal.SIGTERM, self._terminate)

    def after_step(self, save: Callable[[], None]) -> bool:
        """Call `save` on every rank if a stop is announced; return whether the loop has to end.

        If the stop is withdrawn after the save, or its time passes, the loop goes on.
        """
        if not self.is_announced():
            return False
        save()
        return self.is_over()

    def is_announced(self) -> bool:
        """Return whether every rank has to save now; all ranks call this after the same step."""
        announced = self._stop_at()
        self._present = self._agreed(announced if announced > self._answered else 0)
        return self._present > 0

    def is_over(self) -> bool:
        """Report the save, and wait for the end of the job; return whether it has come."""
        self._agreed(0)  # every rank has saved
        if 0 < self._present < _TERMINATED:
            self._answered = self._present
            if _rank() == 0:
                self._answer()
            while self._stop_at() == self._present:
                signal.sigtimedwait([], _LOOK_S)
        return self._agreed(self._stop_at()) == _TERMINATED

    def _terminate(self, *_: object) -> None:
        self._terminated = True

    def _stop_at(self) -> int:
        """Return the announced time in microseconds, or 0; after SIGTERM the highest of all."""
        if self._terminated:
            return _TERMINATED
        file = self._folder / "stop-at"
        text = file.read_text().strip() if file.exists() else ""
        at_s = datetime.fromisoformat(text).timestamp() if text else 0.0
        return round(at_s * 1e6) if at_s + _LATE_S > time.time() else 0

    def _agreed(self, mine: int) -> int:
        """Return the highest value of all ranks."""
        if not dist.is_initialized():
            return mine
        device = "cuda" if dist.get_backend() == "nccl" else "cpu"
        value = torch.tensor(mine, dtype=torch.int64, device=device)
        dist.all_reduce(value, op=dist.ReduceOp.MAX)
        return int(value.item())

    def _answer(self) -> None:
        """Report that the work is saved; without the right to, the scheduler waits longer."""
        try:
            report_checkpoint(self._folder)
        except OSError as error:
            print(f"the checkpoint is not reported: {error}", flush=True)  # noqa: T201


def report_checkpoint(folder: Path = FOLDER) -> None:
    """Write on the own pod that the work of its gang was saved now.

    Raises:
        OSError: the API server cannot be reached, or refuses.

    """
    namespace, name = ((folder / file).read_text() for file in ("namespace", "name"))
    host, port = (os.environ[f"KUBERNETES_SERVICE_{part}"] for part in ("HOST", "PORT"))
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    request = urllib.request.Request(
        f"https://{host}:{port}/api/v1/namespaces/{namespace}/pods/{name}",
        json.dumps({"metadata": {"annotations": {"gangsched.io/checkpoint-at": now}}}).encode(),
        {
            "Authorization": f"Bearer {(_ACCOUNT / 'token').read_text()}",
            "Content-Type": "application/merge-patch+json",
        },
        method="PATCH",
    )
    trusted = ssl.create_default_context(cafile=str(_ACCOUNT / "ca.crt"))
    with urllib.request.urlopen(request, timeout=10, context=trusted):  # noqa: S310
        pass


def _rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0
