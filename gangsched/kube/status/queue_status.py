"""The status of Queues and Reservations; it keeps the GPU time of queues for the next process."""

import asyncio
from collections.abc import Callable
from typing import Any

from gangsched.api.timestamps import rfc3339
from gangsched.core.bounds import SPENT_ROWS
from gangsched.core.cluster.supply import missing_resources
from gangsched.core.engine.gangs.member import State
from gangsched.core.engine.view import EngineView
from gangsched.core.model.ids import GangId
from gangsched.core.model.queues import Stop
from gangsched.core.model.refusal import plural
from gangsched.core.planning.forecast import Prediction
from gangsched.core.planning.profiles.node_profile import reserved_rows
from gangsched.core.quota.queue_tree import number
from gangsched.kube.client.client import KubeClient
from gangsched.kube.status.config_status import ConfigCondition, ConfigStatusWriter

_EVERY_S = 2.0
_NOTICES_SHOWN = 3
_SPENT_EVERY_S = 30.0
"""Seconds between writes of GPU time: a restart loses at most the time used in between."""


class QueueStatusWriter:
    """Writes the status of Queues and Reservations when it changed, at most every two seconds."""

    def __init__(
        self, client: KubeClient, now_s: Callable[[], float], *, name_gangs: bool = False
    ) -> None:
        """Take `name_gangs`: whether the status of a Queue names its next gang."""
        self.queues = ConfigStatusWriter(client, "Queue", "queues", warns=True)
        self.reservations = ConfigStatusWriter(client, "Reservation", "reservations")
        self._now_s = now_s
        self._name_gangs = name_gangs
        self._spent_s = 0.0
        self._spent: dict[str, float] = {}

    async def run(
        self, view: EngineView, predictions: Callable[[], dict[GangId, Prediction]]
    ) -> None:
        """Write until cancelled."""
        while True:
            now_s = self._now_s()
            moved: set[str] = set()
            if now_s - self._spent_s >= _SPENT_EVERY_S:
                self._spent_s, moved = now_s, self._queues_with_new_usage(view, now_s)
            counts = pending_and_admitted(view)
            for name in self.queues:
                status = queue_status(view, name, now_s, counts, predictions())
                if status.get("head") and not self._name_gangs:
                    status["head"] |= {"gang": "", "message": ""}
                await self._write_queue(view, name, status, now_s, spent=name in moved)
            for name in self.reservations:
                await self.reservations.write(name, reservation_status(view, name, now_s))
            await asyncio.sleep(_EVERY_S)

    def _queues_with_new_usage(self, view: EngineView, now_s: float) -> set[str]:
        """Return the queues that used GPU time since the last call.

        Readers compute the decay of earlier GPU time themselves, so idle queues are not written.
        """
        before, self._spent = self._spent, view.ledger.gpu_seconds_total(now_s)
        return {queue for queue, spent in self._spent.items() if spent > before.get(queue, 0.0)}

    async def _write_queue(
        self,
        view: EngineView,
        name: str,
        status: dict[str, Any],
        now_s: float,
        *,
        spent: bool,
    ) -> None:
        problem = self.queues.problems.get(name) or view.ledger.usage.tree.problems.get(name)
        ready = ConfigCondition(not problem, "Invalid" if problem else "Valid", problem or "")
        conditions = (ready,) if problem else (ready, quotas_effective(view, name))

        def time_spent() -> dict[str, Any]:
            return {"asOf": rfc3339(now_s), "spent": usage_status(view, name, now_s)}

        if not await self.queues.write(name, status, *conditions, beside=time_spent, anyway=spent):
            self._spent.pop(name, None)


Counts = dict[str, tuple[int, int, list[GangId]]]


def pending_and_admitted(view: EngineView) -> Counts:
    """Return, by queue, the numbers of pending and admitted gangs, and the pending gangs."""
    tree = view.ledger.usage.tree
    pending: dict[str, int] = {}
    admitted: dict[str, int] = {}
    waiting: dict[str, list[GangId]] = {}
    for gang in view.gangs.values():
        if gang.spec is None:
            continue
        queue = gang.spec.queue
        counts = pending
        if gang.state in (State.RESERVED, State.BINDING, State.PLACED):
            if view.is_finished(gang):
                continue
            counts = admitted
        else:
            waiting.setdefault(queue, []).append(gang.id)
        for name in tree.path(queue) if queue in tree else (queue,):
            counts[name] = counts.get(name, 0) + 1
    names_ = {*pending, *admitted}
    return {n: (pending.get(n, 0), admitted.get(n, 0), waiting.get(n, [])) for n in names_}


def queue_status(
    view: EngineView,
    name: str,
    now_s: float,
    counts: Counts,
    predictions: dict[GangId, Prediction],
) -> dict[str, Any]:
    """Return the status of a Queue in the form of its CRD, without GPU time and conditions."""
    usage = view.ledger.usage
    tree = usage.tree
    pending, admitted, waiting = counts.get(name, (0, 0, []))
    if name not in tree:
        message = tree.problems.get(name, "")
        return {"message": message, "pending": pending, "admitted": admitted}
    quotas = []
    for key in tree.quota_keys(name):
        nominal = tree.nominal(name, key) or 0
        used = usage.used(name, key)
        quotas.append(
            {
                "resource": key[0],
                "gpuKind": key[1],
                "nominal": number(key, nominal),
                "used": number(key, used),
                "borrowed": number(key, max(used - nominal, 0)),
            }
        )
    head = head_of(view, waiting, predictions, now_s)
    message = f"{plural(pending, 'gang')} waiting, {admitted} running or starting."
    if tree.queues[name].stop is not Stop.NONE:
        message = f"on hold; {message}"
    notices = [*tree.notices(name), *missing_resources(tree.queues[name], view.cluster.supply())]
    if notices:
        message = f"{several(notices)}."
    return {
        "message": message,
        "pending": pending,
        "admitted": admitted,
        "share": round(usage.share(name), 4),
        "quotas": quotas,
        "head": head,
    }


def quotas_effective(view: EngineView, name: str) -> ConfigCondition:
    """Return the condition that all quotas of a queue are in effect as written."""
    tree = view.ledger.usage.tree
    lowered = list(tree.lowered.get(name, {}).values())
    absent = missing_resources(tree.queues[name], view.cluster.supply())
    reason = "LargerThanParent" if lowered else "NoSuchNode" if absent else "AsWritten"
    notices = [*lowered, *absent]
    return ConfigCondition(
        not notices, reason, f"{several(notices)}." if notices else "", "QuotasEffective"
    )


def several(sentences: list[str]) -> str:
    """Return the first of several sentences about one object, and the number of the others."""
    more = len(sentences) - _NOTICES_SHOWN
    return "; ".join(sentences[:_NOTICES_SHOWN]) + (f"; and {more} more" if more > 0 else "")


def head_of(
    view: EngineView,
    waiting: list[GangId],
    predictions: dict[GangId, Prediction],
    now_s: float,
) -> dict[str, Any] | None:
    """Return the next gang of a queue, and why it waits; None for a queue without a gang."""
    if not waiting:
        return None

    def key(gang: GangId) -> tuple[float, str]:
        prediction = predictions.get(gang)
        since_s = view.gangs[gang].waits_since_s()
        return (float(prediction.position) if prediction is not None else 1e9 + since_s, gang)

    first = min(waiting, key=key)
    refusal = view.refusals.get(first)
    prediction = predictions.get(first)
    expected = prediction.start_s if prediction is not None else None
    return {
        "gang": first,
        "reason": refusal.reason.value if refusal is not None else "",
        "message": refusal.message if refusal is not None else "",
        "expectedStart": rfc3339(expected) if expected is not None else None,
    }


def usage_status(view: EngineView, name: str, now_s: float) -> list[dict[str, Any]]:
    """Return the GPU time of a queue and of its users, for the next process.

    Beyond the limit of rows, only the users with the highest usage are kept, so that no user's
    budget is reset by many users with low usage.
    """
    written: list[dict[str, Any]] = []
    ledger = view.ledger
    there = [user for queue, user in ledger.accounts if queue == name]
    users = ledger.sorted_by_usage(name, (user for user in there if user), now_s)
    for user in ["", *users] if "" in there else users:
        time = ledger.accounts[name, user]
        time.advance_to(now_s, ledger.half_life_s)
        base = {"user": user, "decayedGpuSeconds": round(time.historical_gpu_s, 3)}
        rows = [
            {**base, "periodSeconds": p, "period": n, "gpuSeconds": round(s, 3)}
            for p, (n, s) in time.periods.items()
        ] or [base]
        if len(written) + len(rows) > SPENT_ROWS.most:
            break
        written += rows
    return written


def reservation_status(view: EngineView, name: str, now_s: float) -> dict[str, Any]:
    """Return the status of a Reservation in the form of its CRD."""
    booking = view.bookings.get(name)
    if booking is None:
        return {"phase": "Invalid"}
    window = booking.window(now_s)
    rows = reserved_rows(view.cluster, booking)
    nodes = [str(view.cluster.names[row]) for row in rows]
    if window is None:
        return {"phase": "Over", "message": "its last occurrence is over.", "nodes": nodes}
    start_s, end_s = window
    users = ", ".join(sorted(booking.queues | booking.namespaces)) or "no gang (maintenance)"
    message = f"{len(nodes)} nodes are reserved for {users}."
    wanted = len(booking.nodes) or booking.count
    if len(nodes) < wanted:
        message = f"only {len(nodes)} of {wanted} nodes exist. {message}"
    return {
        "phase": "Active" if start_s <= now_s else "Scheduled",
        "message": message,
        "nodes": nodes,
        "nextStart": rfc3339(start_s),
        "nextEnd": rfc3339(end_s),
    }
