"""Training runtimes, from watches of their own; the label that the SDK reads is added to them.

kopf does not report a runtime that was deleted while its watch was interrupted, and TrainJobs would
continue with it.
"""

from collections.abc import Callable
from contextlib import suppress

import msgspec

from gangsched.core.model.text import shown
from gangsched.jobs.common.model import Json
from gangsched.jobs.trainer.reconcile import API_VERSION
from gangsched.jobs.trainer.runtimes import FRAMEWORK, framework_of
from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import Conflict, NotFound
from gangsched.kube.client.paths import object_path
from gangsched.kube.client.watch import Watch
from gangsched.operators.work_queue import Key, WorkQueue

_NAMED = 20
"""Runtimes that a sentence lists."""

KINDS = ("ClusterTrainingRuntime", "TrainingRuntime")


class Runtimes:
    """The runtimes of a cluster; `on_change` is called with the namespace of each new state.

    Runtimes of the cluster have the namespace "".
    """

    def __init__(self) -> None:
        self._known: dict[Key, Json] = {}
        self.on_change: Callable[[str], None] = lambda _: None

    def seen(self, body: Json) -> None:
        """Record a runtime's newest state."""
        self._known[_key(body)] = body
        self.on_change(_key(body)[0])

    def gone(self, key: Key) -> None:
        """Forget a runtime."""
        self._known.pop(key, None)

    def get(self, key: Key) -> Json | None:
        """Return a runtime by its namespace (none for those of the cluster) and name."""
        return self._known.get(key)

    def find(self, job: Json) -> tuple[Json | None, str]:
        """Return the runtime a job refers to, or None and what is wrong."""
        namespace = job["metadata"]["namespace"]
        reference = job["spec"]["runtimeRef"]
        name, kind = reference["name"], reference.get("kind") or KINDS[0]
        where = "" if kind == KINDS[0] else namespace
        runtime = self.get((where, name))
        if runtime is not None:
            return runtime, ""
        known = sorted(n for w, n in self._known if w == where)
        there = ", ".join(known[:_NAMED]) or "none"
        there += f" and {len(known) - _NAMED} more" if len(known) > _NAMED else ""
        return None, (
            f"TrainJob {namespace}/{job['metadata']['name']}: spec.runtimeRef: there is no {kind} "
            f"{shown(name)}; there are: {there}"
        )


class RuntimeReceiver:
    """Records the runtimes that a watch reports, and labels those without a framework.

    The SDK overlooks runtimes that do not have the label.
    """

    def __init__(self, client: KubeClient, runtimes: Runtimes) -> None:
        self._client = client
        self._runtimes = runtimes
        self._keys: dict[str, Key] = {}
        self.labelling = WorkQueue(self._label)

    def watches(self) -> list[Watch]:
        """Return watches of both kinds of runtime, for as long as their CRDs are there."""
        paths = (f"/apis/{API_VERSION}/{kind.lower()}s" for kind in KINDS)
        return [Watch(self._client, path, self, optional=True) for path in paths]

    def on_update(self, raw: bytes) -> None:
        """Record a runtime that exists now."""
        body: Json = msgspec.json.decode(raw)
        self._keys[body["metadata"]["uid"]] = _key(body)
        self._runtimes.seen(body)
        if label_of(body) is not None:
            self.labelling.wake(_key(body))

    def on_delete(self, uid: str, raw: bytes | None) -> None:
        """Record that a runtime no longer exists."""
        del raw
        key = self._keys.pop(uid, None)
        if key is not None and key not in self._keys.values():
            self._runtimes.gone(key)

    async def _label(self, key: Key) -> None:
        runtime = self._runtimes.get(key)
        label = label_of(runtime) if runtime is not None else None
        if runtime is None or label is None:
            return
        namespace, name = key
        inside = f"namespaces/{namespace}/{KINDS[1]}" if namespace else KINDS[0]
        path = object_path(f"/apis/{API_VERSION}/{inside.lower()}s", name)
        metadata = {"uid": runtime["metadata"]["uid"], "labels": {FRAMEWORK: label}}
        with suppress(NotFound, Conflict):
            await self._client.patch(path, {"metadata": metadata})


def label_of(runtime: Json) -> str | None:
    """Return the framework label that a runtime lacks."""
    if FRAMEWORK in (runtime["metadata"].get("labels") or {}):
        return None
    return framework_of(runtime)


def _key(body: Json) -> Key:
    return body["metadata"].get("namespace", ""), body["metadata"]["name"]
