"""What others may ask of the engine. Nothing here changes it."""

from gangsched.core import facts as f
from gangsched.core.backlog import Backlog
from gangsched.core.cluster import Cluster
from gangsched.core.gangs import GangState
from gangsched.core.members import Limits, MemberState, State
from gangsched.core.model import GangId, NodeName, PodUid, Waiting
from gangsched.core.refusal import Refusal
from gangsched.core.snapshot import Running, Snapshot


class Views:
    """The questions; the engine sets the attributes."""

    limits: Limits
    queues: frozenset[str]
    cluster: Cluster
    gangs: dict[GangId, GangState]
    beyond_is_judged: bool
    _pods: dict[PodUid, f.PodSeen]
    _timed: dict[GangId, None]
    _backlog: Backlog

    def next_due_s(self) -> float | None:
        """Return when `tick` has something to do next, or None."""
        due = (self.gangs[gang_id].due_s() for gang_id in self._timed if gang_id in self.gangs)
        return min((at for at in due if at is not None), default=None)

    def wants_plan(self) -> bool:
        """Tell whether a gang waits that was not refused on the present room already."""
        return bool(self._backlog.plannable())

    def snapshot(self, limit: int = 1000, *, running: bool = False) -> Snapshot:
        """Return a frozen view with at most `limit` gangs, highest priority and oldest first.

        Advice needs the running gangs too; plain planning does not pay for them.
        """
        waiting = [gang.waiting() for gang in self._backlog.plannable()] if limit else []
        waiting.sort(key=lambda item: (-item.priority, item.since_s, item.gang.id))
        del waiting[limit:]
        for item in waiting:
            for needs in {id(m.needs): m.needs for m in item.members}.values():
                self.cluster.capacity(needs)  # counted here and kept up to date from now on
        return Snapshot(
            self.cluster.copy(),
            tuple(waiting),
            self.queues,
            self.beyond_is_judged,
            self.running() if running else (),
            room=self._backlog.room,
        )

    def reservation(self, uid: PodUid) -> NodeName | None:
        """Return the node a pod may go to now, for a driver's look-up."""
        found = self._member(uid)
        if found is None or found[0].held_back or found[1].stage is None:
            return None
        return found[1].node

    def unadvised(self, limit: int, now_s: float) -> tuple[tuple[Waiting, Refusal], ...]:
        """Return refused gangs to think about, at most `limit`; they count as advised now."""
        due = self._backlog.unadvised(limit, now_s, self.limits.advice_s)
        return tuple((gang.waiting(), refusal) for gang, refusal in due)

    @property
    def refusals(self) -> dict[GangId, Refusal]:
        """Return why each waiting gang does not start."""
        return self._backlog.refusals

    def running(self) -> tuple[Running, ...]:
        """Return every gang that runs whole, for advice."""
        return tuple(gang.running() for gang in self.gangs.values() if gang.state is State.PLACED)

    def pod(self, uid: PodUid) -> f.PodSeen | None:
        """Return the latest fact about a pod."""
        return self._pods.get(uid)

    def pods(self) -> tuple[f.PodSeen, ...]:
        """Return the latest fact about every pod, for checkers."""
        return tuple(self._pods.values())

    def _member(self, uid: PodUid) -> tuple[GangState, MemberState] | None:
        pod = self._pods.get(uid)
        gang = self.gangs.get(pod.gang) if pod is not None and pod.gang else None
        if pod is None or gang is None:
            return None
        member = gang.members.get(pod.name)
        return (gang, member) if member is not None and member.pod == uid else None
