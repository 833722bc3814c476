"""Pods of a group that name another scheduler: if no scheduler has that name, the group waits.

The Training Operator, for one, writes the scheduler's name that it was started with into the pods
of its groups. A pod that some scheduler has looked at has a condition PodScheduled. If a pod
has none for a while, no scheduler has looked at it.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from gangsched.api import names
from gangsched.core import facts as f
from gangsched.core.model.ids import GangId
from gangsched.core.model.refusal import plural
from gangsched.core.model.text import shown
from gangsched.kube.decoding.external import groups
from gangsched.kube.decoding.membership import GROUPS, gang_of
from gangsched.kube.decoding.schemas import Pod

REASON = "SchedulerNotServed"
"""Reason of the Event about such pods."""

_LASTS_S = 30.0
"""Seconds until a pod counts as unhandled; another scheduler tries its pods much sooner."""

_LOOKS_S = 10.0

_NAMED = 3


@dataclass(slots=True)
class OtherSchedulers:
    """Pods of groups that no scheduler has handled, with the times of their first observation."""

    _gangs: dict[str, GangId] = field(default_factory=dict)
    _pods: dict[GangId, dict[str, tuple[str, float]]] = field(default_factory=dict)
    _served: Collection[str] = ()

    def meet(self, pod: Pod, fact: f.PodSeen, served: Collection[str]) -> bool:
        """Record a pod; return whether another scheduler has to place it and has not yet.

        `served` are the scheduler names that gangsched serves.
        """
        if fact.gang is not None or fact.node is not None:
            self.forget(fact.uid)
            return False
        gang = gang_of(pod)
        grouped = names.POD_GROUP_LABEL in pod.metadata.labels or groups.source_of(gang) in GROUPS
        looked_at = any(condition.type == "PodScheduled" for condition in pod.status.conditions)
        if not grouped or looked_at or fact.ended:
            self.forget(fact.uid)
            return True
        self._served = served
        if fact.uid not in self._gangs:
            self._gangs[fact.uid] = gang
            since = (pod.spec.scheduler_name, time.monotonic())
            self._pods.setdefault(gang, {})[fact.uid] = since
        return True

    def forget(self, uid: str) -> None:
        """Forget a pod that is deleted, or that a scheduler handles."""
        gang = self._gangs.pop(uid, None)
        if gang is not None:
            del self._pods[gang][uid]
            if not self._pods[gang]:
                del self._pods[gang]

    def sentence(self, gang: GangId) -> str:
        """Return a sentence on pods of a gang that no scheduler handles, or an empty string."""
        wrong = Counter(name for name, _ in self._pods.get(gang, {}).values())
        if not wrong:
            return ""
        some = sorted(wrong)[:_NAMED]
        pods = plural(sum(wrong.values()), "pod")
        verb = "names" if sum(wrong.values()) == 1 else "name"
        schedulers = " or ".join(shown(name) for name in some)
        return (
            f"{pods} of the group {verb} the scheduler {schedulers}, "
            f"which gangsched does not serve here; it serves: {', '.join(sorted(self._served))}."
        )

    async def run(self, stay: Callable[[GangId], None]) -> None:
        """Call `stay` periodically with each group that has such pods for long, until cancelled."""
        while True:
            before_s = time.monotonic() - _LASTS_S
            for gang, pods in self._pods.items():
                if any(since_s <= before_s for _, since_s in pods.values()):
                    stay(gang)
            await asyncio.sleep(_LOOKS_S)
