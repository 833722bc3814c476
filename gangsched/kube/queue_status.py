"""The status of Queues and Reservations, and the GPU time the next process takes over."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from gangsched.api import names
from gangsched.core.accounts.tree import number
from gangsched.core.engine import Engine, State
from gangsched.core.forecast import Prediction
from gangsched.core.model import GangId
from gangsched.core.queueing.horizon import booked_rows
from gangsched.core.queues import Stop
from gangsched.kube.client import KubeClient
from gangsched.kube.errors import Conflict, KubeError, NotFound
from gangsched.kube.words import same

log = logging.getLogger(__name__)

_EVERY_S = 2.0
_SPENT_EVERY_S = 30.0
"""GPU time moves all the time: written so often, a restart loses no more than that."""


class QueueStatusWriter:
    """Writes the status of Queues and Reservations when it changed, at most every two seconds."""

    def __init__(self, client: KubeClient, now_s: Callable[[], float]) -> None:
        self._client = client
        self._now_s = now_s
        self._written: dict[str, dict[str, Any]] = {}
        self._stored: dict[str, Mapping[str, Any]] = {}
        self._spent_s = 0.0
        self._spent: dict[str, float] = {}
        self.problems: dict[str, str] = {}
        self._uids: dict[str, str] = {}

    def seen(self, kind: str, name: str, uid: str, problem: str | None) -> None:
        """Learn that an object exists, and what is wrong with it."""
        key = f"{kind}/{name}"
        if self._uids.get(key) != uid:
            self._uids[key] = uid
            self._written.pop(key, None)  # of another that had its name
        if problem is None:
            self.problems.pop(key, None)
        else:
            self.problems[key] = problem

    def adopt(self, kind: str, name: str, stored: Mapping[str, Any]) -> None:
        """Learn what an earlier process wrote: a thousand queues are not written anew."""
        self._stored[f"{kind}/{name}"] = stored

    def gone(self, kind: str, name: str) -> None:
        """Forget an object that was deleted."""
        for known in (self._uids, self.problems, self._written, self._stored):
            known.pop(f"{kind}/{name}", None)

    async def run(
        self, engine: Engine, predictions: Callable[[], dict[GangId, Prediction]]
    ) -> None:
        """Write until cancelled."""
        while True:
            now_s = self._now_s()
            moved: set[str] = set()
            if now_s - self._spent_s >= _SPENT_EVERY_S:
                self._spent_s, moved = now_s, self._moved(engine, now_s)
            counts = pending_and_admitted(engine)
            for key in list(self._uids):
                if key not in self._uids:
                    continue  # deleted while another was written
                kind, name = key.split("/", 1)
                if kind == "Queue":
                    status = queue_status(engine, name, now_s, counts, predictions())
                else:
                    status = reservation_status(engine, name, now_s)
                if key in self.problems:
                    status["message"] = self.problems[key]
                await self._write(key, status, engine, name, now_s, spent=name in moved)
            await asyncio.sleep(_EVERY_S)

    def _moved(self, engine: Engine, now_s: float) -> set[str]:
        """Return the queues that spent GPU time since they were last asked.

        What was spent earlier decays by itself, wherever it is read: a thousand idle queues are
        not written.
        """
        before, self._spent = self._spent, engine.ledger.totals(now_s)
        return {queue for queue, spent in self._spent.items() if spent > before.get(queue, 0.0)}

    async def _write(
        self,
        key: str,
        status: dict[str, Any],
        engine: Engine,
        name: str,
        now_s: float,
        *,
        spent: bool,
    ) -> None:
        if key.startswith("Queue/"):
            tree = engine.ledger.usage.tree
            problem = self.problems.get(key) or tree.problems.get(name)
            status["conditions"] = [
                {
                    "type": "Ready",
                    "status": "False" if problem else "True",
                    "reason": "Invalid" if problem else "Valid",
                    "message": problem or "",
                }
            ]
        stored = self._stored.pop(key, None)
        if stored is not None and same(stored, status):
            self._written[key] = status
        if self._written.get(key) == status and not (spent and key.startswith("Queue/")):
            return
        body = dict(status)
        if key.startswith("Queue/"):
            body["asOf"] = stamp(now_s)
            body["spent"] = spent_status(engine, name, now_s)
            body["conditions"] = [{**status["conditions"][0], "lastTransitionTime": stamp(now_s)}]
        uid, plural = self._uids[key], "queues" if key.startswith("Queue/") else "reservations"
        path = f"/apis/{names.GROUP}/{names.VERSION}/{plural}/{name}/status"
        try:
            await self._client.patch(path, {"metadata": {"uid": uid}, "status": body})
        except (NotFound, Conflict):
            return  # it was deleted, as its watch is about to tell
        except KubeError as error:
            log.warning("status of %s: %s", key, error)
            self._spent.pop(name, None)
            return
        if self._uids.get(key) == uid:
            self._written[key] = status


Counts = dict[str, tuple[int, int, list[GangId]]]


def pending_and_admitted(engine: Engine) -> Counts:
    """Return, by queue, how many gangs wait and have room in it and below, and who waits in it."""
    tree = engine.ledger.usage.tree
    pending: dict[str, int] = {}
    admitted: dict[str, int] = {}
    waiting: dict[str, list[GangId]] = {}
    for gang in engine.gangs.values():
        if gang.spec is None:
            continue
        queue = gang.spec.queue
        counts = pending
        if gang.state in (State.RESERVED, State.BINDING, State.PLACED):
            if engine.finished(gang):
                continue
            counts = admitted
        else:
            waiting.setdefault(queue, []).append(gang.id)
        for name in tree.path(queue) if queue in tree else (queue,):
            counts[name] = counts.get(name, 0) + 1
    names_ = {*pending, *admitted}
    return {n: (pending.get(n, 0), admitted.get(n, 0), waiting.get(n, [])) for n in names_}


def queue_status(
    engine: Engine,
    name: str,
    now_s: float,
    counts: Counts,
    predictions: dict[GangId, Prediction],
) -> dict[str, Any]:
    """Return the status of a Queue as its CRD has it, but for GPU time and conditions."""
    usage = engine.ledger.usage
    tree = usage.tree
    pending, admitted, waiting = counts.get(name, (0, 0, []))
    if name not in tree:
        message = tree.problems.get(name, "")
        return {"message": message, "pending": pending, "admitted": admitted}
    quotas = []
    for key in tree.limited(name):
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
    usage.capacity = engine.capacity()
    head = head_of(engine, waiting, predictions, now_s)
    message = f"{pending} wait, {admitted} have their room."
    if tree.queues[name].stop is not Stop.NONE:
        message = f"on hold; {message}"
    if name in tree.problems:
        message = tree.problems[name]
    return {
        "message": message,
        "pending": pending,
        "admitted": admitted,
        "share": round(usage.share(name), 4),
        "quotas": quotas,
        "head": head,
    }


def head_of(
    engine: Engine, waiting: list[GangId], predictions: dict[GangId, Prediction], now_s: float
) -> dict[str, Any] | None:
    """Return the gang that is next in a queue, and why it waits."""
    if not waiting:
        return None

    def key(gang: GangId) -> tuple[float, str]:
        found = predictions.get(gang)
        state = engine.gangs[gang]
        since_s = state.since_s if state.since_s is not None else now_s
        return (float(found.position) if found is not None else 1e9 + since_s, gang)

    first = min(waiting, key=key)
    refusal = engine.refusals.get(first)
    found = predictions.get(first)
    expected = found.start_s if found is not None else None
    return {
        "gang": first,
        "reason": refusal.reason.value if refusal is not None else "",
        "message": refusal.message if refusal is not None else "",
        "expectedStart": stamp(expected) if expected is not None else None,
    }


def spent_status(engine: Engine, name: str, now_s: float) -> list[dict[str, Any]]:
    """Return the GPU time of a queue and its users, for the next process."""
    found = []
    ledger = engine.ledger
    for (queue, user), time in sorted(ledger.accounts.items()):
        if queue != name:
            continue
        time.advance(now_s, ledger.half_life_s)
        base = {"user": user, "decayedGpuSeconds": round(time.decayed, 3)}
        found += [
            {**base, "periodSeconds": p, "period": n, "gpuSeconds": round(s, 3)}
            for p, (n, s) in time.periods.items()
        ] or [base]
    return found[:1000]


def reservation_status(engine: Engine, name: str, now_s: float) -> dict[str, Any]:
    """Return the status of a Reservation as its CRD has it."""
    booking = engine.bookings.get(name)
    if booking is None:
        return {"phase": "Invalid"}
    window = booking.window(now_s)
    rows = booked_rows(engine.cluster, booking)
    nodes = [str(engine.cluster.names[row]) for row in rows]
    if window is None:
        return {"phase": "Over", "message": "its last occurrence is over.", "nodes": nodes}
    start_s, end_s = window
    whom = ", ".join(sorted(booking.queues | booking.namespaces)) or "nobody (maintenance)"
    message = f"{len(nodes)} nodes are kept for {whom}."
    wanted = len(booking.nodes) or booking.count
    if len(nodes) < wanted:
        message = f"only {len(nodes)} of {wanted} nodes exist. {message}"
    return {
        "phase": "Active" if start_s <= now_s else "Scheduled",
        "message": message,
        "nodes": nodes,
        "nextStart": stamp(start_s),
        "nextEnd": stamp(end_s),
    }


def stamp(at_s: float) -> str:
    """Write seconds since the epoch as the API does."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
