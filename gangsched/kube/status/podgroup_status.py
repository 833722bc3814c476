"""Telling users where their gang stands: PodGroup status, Events, merged and in order.

Of a gang's status only the newest word is written; what was overtaken while a write was under way
is never sent. So a gang costs a status write when it is reserved, one when it is placed, and one
for each new reason in between.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gangsched.api import keys, names
from gangsched.api.timestamps import stamp
from gangsched.core.model.ids import GangId
from gangsched.core.model.refusal import Reason
from gangsched.core.orders import Release, Report, Reserve
from gangsched.core.planning.forecast import Prediction
from gangsched.core.snapshot import BackfillReservation
from gangsched.kube.client.client import MERGE, STRATEGIC, KubeClient
from gangsched.kube.client.errors import Invalid, KubeError, NotFound, Throttled, Unavailable
from gangsched.kube.client.namespace_queue import NamespaceFairQueue
from gangsched.kube.client.paths import named
from gangsched.kube.decoding.external import groups
from gangsched.kube.status import other_schedulers
from gangsched.kube.status.events import MESSAGE_LETTERS_MAX, ObjectRef, post_event
from gangsched.kube.status.external_status import ExternalStatus, status_of
from gangsched.kube.status.other_schedulers import OtherSchedulers
from gangsched.kube.status.status_record import (
    WARNINGS,
    StatusRecord,
    adopted,
    as_data,
    readable,
    remedies,
)

log = logging.getLogger(__name__)

_WRITERS = 8
_AGAIN_S = 5.0
_QUIET = frozenset({"Reserved", "BackingOff"})
"""Said in the status alone: an Event more for every gang would be a write more."""

_TOLD_BY_OWNERS = frozenset({"Placed"})
"""What the job of a group says in its own Events."""

_PASSING_S = {
    "TooFewPods": 0.5,
    "SchedulingGated": 0.5,
    "Reserved": 0.5,
    Reason.NO_GROUP.value: 5.0,
}
"""States most gangs pass within moments: told only if they last, or every pod of a large gang
would cost a status write and an Event. Pods are seen before the object that declares their gang,
and leave after it."""

_EVENTS_MAX = 8

_TOLD_AT_ONCE = 100


@dataclass(slots=True)
class PodGroupStatusWriter:
    """Collects reports and writes them; `run` does the writing until cancelled."""

    client: KubeClient
    standing: Callable[[GangId], tuple[int, tuple[int, int, int]]] = lambda _: (1, (0, 0, 0))
    told: Callable[[str, GangId], str] = lambda text, _: text
    """Returns a sentence as whoever reads a gang's status may read it."""

    strays: OtherSchedulers = field(default_factory=OtherSchedulers)
    _subjects: dict[GangId, ObjectRef] = field(default_factory=dict)
    _words: dict[GangId, StatusRecord] = field(default_factory=dict)
    _invalid: dict[GangId, str] = field(default_factory=dict)
    _queue: NamespaceFairQueue[GangId] = field(
        default_factory=lambda: NamespaceFairQueue(_namespace)
    )

    def subject(self, gang: GangId, subject: ObjectRef) -> None:
        """Learn which object stands for a gang."""
        known = self._subjects.get(gang)
        if known is not None and known.is_group and not subject.is_group:
            return  # a pod stands for its gang only where no group does
        self._subjects[gang] = subject
        if known is None or known.uid != subject.uid:
            word = self._words.get(gang)
            if word is not None:
                word.written = None
                if known is not None and known.is_group:
                    word.before = {}  # of another object
                self._changed(gang, word)

    def owned(self, gang: GangId) -> bool:
        """Tell whether a gang's PodGroup is one that a job of ours has."""
        return (known := self._subjects.get(gang)) is not None and known.owned

    def adopt(self, gang: GangId, stored: Mapping[str, Any]) -> None:
        """Learn what an earlier process wrote of a gang: it is not said again.

        What was said since this one began to read is forgotten: not all was known then.
        """
        self._words[gang] = adopted(stored)

    def touch(self, gang: GangId) -> None:
        """Write a foreign group's status again: its pods came further."""
        subject = self._subjects.get(gang)
        if subject is not None and subject.theirs is not None and status_of(subject.theirs):
            self._changed(gang, self._words.setdefault(gang, StatusRecord()))

    def forget(self, gang: GangId) -> None:
        """Forget a gang whose object is gone."""
        self._subjects.pop(gang, None)
        self._words.pop(gang, None)
        self._invalid.pop(gang, None)

    def take(self, order: Reserve | Release | Report) -> None:
        """Take an order that only has to be told."""
        word = self._words.setdefault(order.gang, StatusRecord())
        if isinstance(order, Report) and order.reason == Reason.NO_GROUP:
            wrong = self._invalid.get(order.gang)
            if wrong is not None:  # it is there, but cannot be understood
                order = Report(order.gang, order.state, "Invalid", wrong)
        match order:
            case Reserve(assignments=assignments):
                word.assignments = assignments
            case Release():
                word.assignments = ()
            case Report(state=state, reason=reason, message=message, refusal=refusal):
                again = refusal is not None and reason == word.reason
                word.state, word.reason, word.refusal = state, reason, refusal
                word.queue = order.queue
                if refusal is None:
                    word.start = None
                word.proof = order.proof
                if order.adopted:
                    word.keep(_namespace(order.gang))
                if refusal is not None:
                    refusal = word.refusal = readable(
                        refusal, lambda text: self.told(text, order.gang)
                    )
                    message += remedies(refusal)
                message = self.told(message, order.gang)
                word.message = message[:1].upper() + message[1:][: MESSAGE_LETTERS_MAX - 1]
                if reason in _PASSING_S:
                    asyncio.get_running_loop().call_later(
                        _PASSING_S[reason], self._if_it_lasts, order.gang, reason
                    )
                    return
                if not again and not order.adopted:  # the same with other numbers is no Event
                    self._event(word)
        self._changed(order.gang, word)

    def _if_it_lasts(self, gang: GangId, reason: str) -> None:
        word = self._words.get(gang)
        if word is not None and word.reason == reason:
            self._event(word)
            self._changed(gang, word)

    def _event(self, word: StatusRecord) -> None:
        if word.reason not in _QUIET and not word.repeats(word.reason, word.message):
            event = (word.reason, word.message)
            word.events = [*word.events[1 - _EVENTS_MAX :], event]

    def expect(
        self,
        predictions: Mapping[GangId, Prediction],
        reserved: Mapping[GangId, BackfillReservation],
    ) -> None:
        """Tell waiting gangs when they will start, those whose prediction moved most visibly.

        A prediction moves with every run; one that moved by less than a tenth of the wait is not
        worth a write.
        """
        told = 0
        now_s = time.time()
        for gang, one in predictions.items():
            word = self._words.get(gang)
            subject = self._subjects.get(gang)
            if word is None or subject is None or not subject.has_status or told >= _TOLD_AT_ONCE:
                continue
            promised_s = reserved[gang].start_s if gang in reserved else None
            if word.start is not None and not word.moved(one, promised_s, now_s):
                continue
            word.expected_s, word.earliest_s, word.latest_s = one.start_s, one.low_s, one.high_s
            word.promised_s = promised_s
            word.start = {
                "position": one.position,
                "expected": _time(one.start_s),
                "earliest": _time(one.low_s),
                "latest": _time(one.high_s),
                "reserved": _time(promised_s),
                "basis": one.source.value,
            }
            told += 1
            self._changed(gang, word)

    def invalid(self, gang: GangId, message: str, *, before: bool) -> None:
        """Tell that a group's declaration cannot be understood.

        One that was understood `before` goes on: an Event tells of what is wrong with its change.
        """
        new = self._invalid.get(gang) != message
        self._invalid[gang] = message
        if not before:
            self.take(Report(gang, "Pending", "Invalid", message))
        elif new:
            word = self._words.setdefault(gang, StatusRecord())
            told = f"{message}. What was declared before goes on."
            word.events = [*word.events[1 - _EVENTS_MAX :], ("Invalid", told)]
            self._changed(gang, word)

    def hint(self, gang: GangId, message: str, reason: str = keys.REASON) -> None:
        """Tell once what is written on a gang's objects and means nothing, or nothing to us."""
        if message and (word := self._words.setdefault(gang, StatusRecord())).hint(reason, message):
            self._changed(gang, word)

    def _astray(self, gang: GangId) -> None:
        """Tell a group of its pods that nobody looks at, as long as it waits for them."""
        subject, word = self._subjects.get(gang), self._words.get(gang)
        waits = word is not None and word.reason == Reason.TOO_FEW_PODS.value
        if waits and subject is not None and subject.is_group:
            self.hint(gang, self.strays.said(gang), other_schedulers.REASON)

    def valid(self, gang: GangId) -> None:
        """Learn that a group's declaration is understood (again)."""
        self._invalid.pop(gang, None)

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.strays.run(self._astray))
            for _ in range(_WRITERS):
                group.create_task(self._write_on())

    def _changed(self, gang: GangId, word: StatusRecord) -> None:
        if not word.changed:
            word.changed = True
            self._queue.put(gang)

    async def _write_on(self) -> None:
        while True:
            gang = await self._queue.get()
            word = self._words.get(gang)
            subject = self._subjects.get(gang)
            if word is None or not word.changed:
                continue
            if word.writing:
                continue  # whoever writes looks again when done, so that words keep their order
            word.changed = False
            if subject is None:
                continue  # said again as soon as the object is known
            word.writing = True
            try:
                if subject.has_status and word.state:
                    await self._write_status(subject, word)
                elif subject.theirs is not None and (writer := status_of(subject.theirs)):
                    await self._write_external(gang, subject, subject.theirs, writer, word)
                if self._subjects.get(gang, subject).uid != subject.uid:
                    word.written = None  # a successor took its name meanwhile
                await self._write_events(subject, word)
            except asyncio.CancelledError:
                word.changed = True  # another failed: written once all begin anew
                raise
            except NotFound:
                continue  # deleted meanwhile
            except KubeError as error:
                log.warning("status of %s: %s", gang, error)
                if not isinstance(error, Invalid):
                    asyncio.get_running_loop().call_later(_AGAIN_S, self._changed, gang, word)
            finally:
                word.writing = False
                if word.changed:
                    self._queue.put(gang)

    async def _write_status(self, subject: ObjectRef, word: StatusRecord) -> None:
        placed = word.state == "Placed" and word.reason in ("Placed", Reason.NOT_ADMITTED)
        scheduled = "True" if placed else "False"
        if scheduled != word.scheduled:
            word.scheduled, word.since = scheduled, stamp()
        body = {
            "phase": word.state,
            "message": word.message,
            "queue": word.queue,
            "proof": word.proof,
            "start": word.start,
            "refusal": None if word.refusal is None else as_data(word.refusal),
            "assignments": [
                {"pod": pod.split("/", 1)[1], "node": node} for pod, node in word.assignments
            ],
            "conditions": [
                {
                    "type": "Scheduled",
                    "status": scheduled,
                    "reason": word.reason or "Pending",
                    "message": word.message,
                    "lastTransitionTime": word.since,
                }
            ],
        }
        if word.says(body):
            return
        path = f"/apis/{names.GROUP}/{names.VERSION}/namespaces/{subject.namespace}/podgroups"
        await self._patch(path, subject, body)
        word.written = body

    async def _write_external(
        self,
        gang: GangId,
        subject: ObjectRef,
        kind: groups.ExternalKind,
        writer: ExternalStatus,
        word: StatusRecord,
    ) -> None:
        """Write a foreign group's status as its own controller would, if it says anything new."""
        minimum, pods = self.standing(gang)
        refused = word.refusal is not None
        now = stamp()

        def status() -> dict[str, Any]:
            return writer.body(word.stands(minimum, pods, now))

        said, state = word.says(status()), (word.state, refused)
        if state != word.standing:
            word.standing, word.since = state, word.since if said else stamp()
        if said:
            return
        body = status()
        path = f"/apis/{kind.api_version}/namespaces/{subject.namespace}/{kind.plural}"
        await self._patch(path, subject, body, STRATEGIC if writer.merged else MERGE)
        word.written = word.before = body

    async def _patch(
        self, path: str, subject: ObjectRef, status: dict[str, Any], merge: str = MERGE
    ) -> None:
        """Write the status of one object, not of a successor of its name."""
        body = {"metadata": {"uid": subject.uid}, "status": status}
        await self.client.patch(f"{named(path, subject.name)}/status", body, merge)

    async def _write_events(self, subject: ObjectRef, word: StatusRecord) -> None:
        while word.events:
            reason, message = word.said = word.events.pop(0)
            if subject.owned and reason in _TOLD_BY_OWNERS:
                continue
            kind = "Warning" if reason in WARNINGS else "Normal"
            try:
                await post_event(self.client, subject, kind, reason, message)
            except (Unavailable, Throttled):
                word.events = [(reason, message), *word.events]
                raise


def _namespace(gang: GangId) -> str:
    return gang.partition("/")[0]


def _time(at_s: float | None) -> str | None:
    return None if at_s is None else stamp(at_s)
