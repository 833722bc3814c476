"""All gangs and pods by their names, and which gangs changed."""

from dataclasses import replace

from gangsched.core.engine.gangs.gang import GangState
from gangsched.core.engine.gangs.member import MemberState, Stage
from gangsched.core.facts import PodSeen
from gangsched.core.model.ids import GangId, PodUid


class GangTable:
    """The gangs and pods that exist, and which pod is which member."""

    def __init__(self) -> None:
        self.gangs: dict[GangId, GangState] = {}
        """Every gang that is declared or has a pod or a reservation."""
        self.pods: dict[PodUid, PodSeen] = {}
        """The latest fact about every pod that exists."""
        self._incarnations = 0
        """How many gangs there have been: versions of a gang start from it."""
        self._changes: dict[GangId, None] = {}
        """Gangs that changed since `take_changes`, in order; gangs add themselves."""

    def ensure(self, gang_id: GangId) -> GangState:
        """Return a gang, which is made if there is none."""
        gang = self.gangs.get(gang_id)
        if gang is None:
            # A gang that is deleted and declared again must not meet plans of its predecessor.
            self._incarnations += 1
            gang = self.gangs[gang_id] = GangState(
                gang_id, version=self._incarnations << 32, changes=self._changes
            )
        return gang

    def remove(self, gang_id: GangId) -> None:
        """Remove a gang."""
        del self.gangs[gang_id]
        self._changes[gang_id] = None

    def mark(self, gang_id: GangId) -> None:
        """Record that a gang changed."""
        self._changes[gang_id] = None

    def take_changes(self) -> list[GangId]:
        """Return the gangs that changed since they were taken last."""
        changed = list(self._changes)
        self._changes.clear()
        return changed

    def next_deadline_s(self, gang_id: GangId) -> float | None:
        """Return the next moment at which time alone changes something for a gang."""
        gang = self.gangs.get(gang_id)
        return gang.next_deadline_s() if gang is not None else None

    def member(self, uid: PodUid) -> tuple[GangState, MemberState] | None:
        """Return the gang and the member that a pod is, None if it is none."""
        pod = self.pods.get(uid)
        gang = self.gangs.get(pod.gang) if pod is not None and pod.gang else None
        if pod is None or gang is None:
            return None
        member = gang.members.get(pod.name)
        return (gang, member) if member is not None and member.pod == uid else None

    def reconciled(self, fact: PodSeen) -> PodSeen:
        """Return what is believed of a pod: what is bound stays so, and in the gang it is in.

        Labels may change at any time; what a bound pod takes, and who is charged for it, does not.
        """
        known, entry = self.pods.get(fact.uid), self.member(fact.uid)
        binding = entry is not None and entry[1].stage is Stage.BINDING
        if known is None or (known.node is None and not binding):
            return fact
        stays = fact.node or known.node, known.gang, known.role  # no late echo takes a binding back
        if stays == (fact.node, fact.gang, fact.role):
            return fact
        return replace(fact, node=stays[0], gang=stays[1], role=stays[2])
