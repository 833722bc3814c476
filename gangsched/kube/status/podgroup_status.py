"""Write the state of gangs for users: the status of PodGroups, and Events.

Only the newest record of a gang is written: a record that is replaced during a write is never sent.
So a gang costs a status write when it is reserved, one when it is placed, and one for each new
reason in between, or for other numbers and new remedies of the same reason. Only a new reason
is an Event.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gangsched.api import keys, names
from gangsched.api.timestamps import rfc3339, rfc3339_micro
from gangsched.core.engine.gangs.member import State
from gangsched.core.model.ids import GangId
from gangsched.core.model.refusal import Reason
from gangsched.core.orders import (
    AnnounceStop,
    Release,
    Report,
    ReportReason,
    Reserve,
    WithdrawStop,
)
from gangsched.core.planning.forecast import Prediction
from gangsched.core.snapshot import BackfillReservation
from gangsched.kube.client.client import MERGE, STRATEGIC, KubeClient
from gangsched.kube.client.errors import Invalid, KubeError, NotFound, Throttled, Unavailable
from gangsched.kube.client.namespace_queue import NamespaceFairQueue
from gangsched.kube.client.paths import object_path
from gangsched.kube.decoding.external.groups import ExternalKind
from gangsched.kube.status import other_schedulers
from gangsched.kube.status.disruptions import disruption_target, no_disruption
from gangsched.kube.status.events import MESSAGE_LETTERS_MAX, ObjectRef, post_event
from gangsched.kube.status.external_status import ExternalStatus, status_of
from gangsched.kube.status.other_schedulers import OtherSchedulers
from gangsched.kube.status.status_record import (
    WARNINGS,
    StatusRecord,
    as_data,
    from_stored,
    redacted_refusal,
    remedies,
)

log = logging.getLogger(__name__)

_WRITERS = 8
_AGAIN_S = 5.0
_QUIET = frozenset({ReportReason.RESERVED, Reason.BACKING_OFF})
"""Reasons without an Event: it would be one more write for every gang."""

_REPORTED_BY_JOBS = frozenset({ReportReason.PLACED})
"""Reasons that the job of a group reports in its own Events."""

_PASSING_S: dict[str, float] = {
    Reason.TOO_FEW_PODS: 0.5,
    Reason.GATED: 0.5,
    ReportReason.RESERVED: 0.5,
    Reason.NO_GROUP: 5.0,
}
"""Reasons that most gangs have only for a moment, and the seconds after which they are reported.
Otherwise every pod of a large gang would cost a status write and an Event. Pods are observed before
the object that declares their gang, and are deleted after it."""

_RUNS = frozenset(
    {
        ReportReason.PLACED,
        ReportReason.STOP_ANNOUNCED,
        ReportReason.STOP_WITHDRAWN,
        Reason.NOT_ADMITTED,
    }
)
"""Reasons in the state PLACED with which a whole gang runs."""

_EVENTS_MAX = 8

_PREDICTED_AT_ONCE = 100


@dataclass(slots=True)
class PodGroupStatusWriter:
    """Collects the reports of gangs; `run` writes them until cancelled."""

    client: KubeClient
    progress: Callable[[GangId], tuple[int, tuple[int, int, int]]] = lambda _: (1, (0, 0, 0))
    redact: Callable[[str, GangId], str] = lambda text, _: text
    """Returns a sentence without the names that readers of a gang's status may not see."""

    strays: OtherSchedulers = field(default_factory=OtherSchedulers)
    _subjects: dict[GangId, ObjectRef] = field(default_factory=dict)
    _records: dict[GangId, StatusRecord] = field(default_factory=dict)
    _invalid: dict[GangId, str] = field(default_factory=dict)
    _queue: NamespaceFairQueue[GangId] = field(
        default_factory=lambda: NamespaceFairQueue(_namespace)
    )

    def subject(self, gang: GangId, subject: ObjectRef) -> None:
        """Attach a gang to its object."""
        known = self._subjects.get(gang)
        if known is not None and known.is_group and not subject.is_group:
            return  # a group has precedence over a pod
        self._subjects[gang] = subject
        if known is None or known.uid != subject.uid:
            record = self._records.get(gang)
            if record is not None:
                record.written = None
                if known is not None and known.is_group:
                    record.before = {}  # the status of another object
                self._changed(gang, record)

    def owned(self, gang: GangId) -> bool:
        """Return whether the PodGroup of a gang belongs to a job of ours."""
        return (known := self._subjects.get(gang)) is not None and known.owned

    def restore(self, gang: GangId, stored: Mapping[str, Any]) -> None:
        """Restore the status that an earlier process wrote, so that it is not written again.

        Earlier reports of this process are dropped, because it had not read all objects then.
        """
        self._records[gang] = from_stored(stored)

    def rewrite(self, gang: GangId) -> None:
        """Write the status of an external group again, because its pods changed."""
        subject = self._subjects.get(gang)
        if (
            subject is not None
            and subject.external_kind is not None
            and status_of(subject.external_kind)
        ):
            self._changed(gang, self._records.setdefault(gang, StatusRecord()))

    def forget(self, gang: GangId) -> None:
        """Forget a gang with a deleted object."""
        self._subjects.pop(gang, None)
        self._records.pop(gang, None)
        self._invalid.pop(gang, None)

    def announce_stop(self, order: AnnounceStop, reason: str) -> None:
        """Write on the object of a gang that the gang is to be stopped."""
        record = self._records.setdefault(order.gang, StatusRecord())
        record.stop = disruption_target(order.since_s, reason)
        record.stop_at = rfc3339_micro(order.stop_by_s)
        self._changed(order.gang, record)

    def withdraw_stop(self, order: WithdrawStop) -> None:
        """Write on the object of a gang that the gang runs on, or is stopped now."""
        record = self._records.setdefault(order.gang, StatusRecord())
        record.stop, record.stop_at = no_disruption(order.reason), None
        self._changed(order.gang, record)

    def apply(self, order: Reserve | Release | Report) -> None:
        """Apply an order that changes the status of a gang."""
        record = self._records.setdefault(order.gang, StatusRecord())
        if isinstance(order, Report) and order.reason == Reason.NO_GROUP:
            wrong = self._invalid.get(order.gang)
            if wrong is not None:  # the object exists, but is malformed
                order = Report(order.gang, order.state, ReportReason.INVALID.value, wrong)
        match order:
            case Reserve(assignments=assignments):
                record.assignments = assignments
            case Release():
                record.assignments = ()
            case Report(state=state, reason=reason, message=message, refusal=refusal):
                again = refusal is not None and reason == record.reason
                record.state, record.reason, record.refusal = state, reason, refusal
                record.queue = order.queue
                if refusal is None:
                    record.start = None
                record.proof = order.proof
                if order.adopted:
                    record.restore_assignments(_namespace(order.gang))
                if refusal is not None:
                    refusal = record.refusal = redacted_refusal(
                        refusal, lambda text: self.redact(text, order.gang)
                    )
                    message += remedies(refusal)
                message = self.redact(message, order.gang)
                record.message = message[:1].upper() + message[1:][: MESSAGE_LETTERS_MAX - 1]
                if reason in _PASSING_S:
                    asyncio.get_running_loop().call_later(
                        _PASSING_S[reason], self._report_lasting, order.gang, reason
                    )
                    return
                if not again and not order.adopted:  # a refusal with new numbers is no Event
                    self._event(record)
        self._changed(order.gang, record)

    def _report_lasting(self, gang: GangId, reason: str) -> None:
        record = self._records.get(gang)
        if record is not None and record.reason == reason:
            self._event(record)
            self._changed(gang, record)

    def _event(self, record: StatusRecord) -> None:
        if record.reason not in _QUIET and not record.is_repeat(record.reason, record.message):
            event = (record.reason, record.message)
            record.events = [*record.events[1 - _EVENTS_MAX :], event]

    def predict(
        self,
        predictions: Mapping[GangId, Prediction],
        reserved: Mapping[GangId, BackfillReservation],
    ) -> None:
        """Write the predictions of pending gangs that changed significantly.

        A prediction changes with every forecast. A change by less than a tenth of the wait is not
        worth a write.
        """
        written = 0
        now_s = time.time()
        for gang, prediction in predictions.items():
            record = self._records.get(gang)
            subject = self._subjects.get(gang)
            if record is None or subject is None or not subject.has_status:
                continue
            if written >= _PREDICTED_AT_ONCE:
                return
            reserved_s = reserved[gang].start_s if gang in reserved else None
            if record.start is not None and not record.is_significant(
                prediction, reserved_s, now_s
            ):
                continue
            record.expected_s, record.reserved_s = prediction.start_s, reserved_s
            record.earliest_s, record.latest_s = prediction.low_s, prediction.high_s
            record.start = {
                "position": prediction.position,
                "expected": _time(prediction.start_s),
                "earliest": _time(prediction.low_s),
                "latest": _time(prediction.high_s),
                "reserved": _time(reserved_s),
                "basis": prediction.source.value,
            }
            written += 1
            self._changed(gang, record)

    def invalid(self, gang: GangId, message: str, *, before: bool) -> None:
        """Report that the object of a gang is malformed.

        If the object was valid `before`, the last valid declaration stays in effect, and an Event
        reports the problem.
        """
        new = self._invalid.get(gang) != message
        self._invalid[gang] = message
        if not before:
            self.apply(Report(gang, State.PENDING.value, ReportReason.INVALID.value, message))
        elif new:
            record = self._records.setdefault(gang, StatusRecord())
            event = f"{message}. The last valid declaration stays in effect."
            record.events = [*record.events[1 - _EVENTS_MAX :], (ReportReason.INVALID.value, event)]
            self._changed(gang, record)

    def hint(self, gang: GangId, message: str, reason: str = keys.REASON) -> None:
        """Report once labels or annotations of a gang's objects that have no effect."""
        if message and (record := self._records.setdefault(gang, StatusRecord())).hint(
            reason, message
        ):
            self._changed(gang, record)

    def _hint_at_strays(self, gang: GangId) -> None:
        """Report on a group that waits for pods its pods that no scheduler handles."""
        subject, record = self._subjects.get(gang), self._records.get(gang)
        waits = record is not None and record.reason == Reason.TOO_FEW_PODS.value
        if waits and subject is not None and subject.is_group:
            self.hint(gang, self.strays.sentence(gang), other_schedulers.REASON)

    def clear_invalid(self, gang: GangId) -> None:
        """Record that the object of a gang is valid."""
        self._invalid.pop(gang, None)

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.strays.run(self._hint_at_strays))
            for _ in range(_WRITERS):
                group.create_task(self._write_loop())

    def _changed(self, gang: GangId, record: StatusRecord) -> None:
        if not record.changed:
            record.changed = True
            self._queue.put(gang)

    async def _write_loop(self) -> None:
        while True:
            gang = await self._queue.get()
            record = self._records.get(gang)
            subject = self._subjects.get(gang)
            if record is None or not record.changed:
                continue
            if record.writing:
                continue  # the present writer writes it next, so that statuses keep their order
            record.changed = False
            if subject is None:
                continue  # written as soon as the object is known
            record.writing = True
            try:
                if subject.has_status and record.state:
                    await self._write_status(subject, record)
                elif subject.external_kind is not None and (
                    writer := status_of(subject.external_kind)
                ):
                    await self._write_external(gang, subject, subject.external_kind, writer, record)
                if self._subjects.get(gang, subject).uid != subject.uid:
                    record.written = None  # another object has the name now
                await self._write_events(subject, record)
            except asyncio.CancelledError:
                record.changed = True  # another writer failed; the restart writes the record
                raise
            except NotFound:
                continue  # the object was deleted meanwhile
            except KubeError as error:
                log.warning("status of %s: %s", gang, error)
                if not isinstance(error, Invalid):
                    asyncio.get_running_loop().call_later(_AGAIN_S, self._changed, gang, record)
            finally:
                record.writing = False
                if record.changed:
                    self._queue.put(gang)

    async def _write_status(self, subject: ObjectRef, record: StatusRecord) -> None:
        placed = record.state == State.PLACED and record.reason in _RUNS
        scheduled = "True" if placed else "False"
        if scheduled != record.scheduled:
            record.scheduled, record.since = scheduled, rfc3339()
        conditions: list[dict[str, Any]] = [
            {
                "type": "Scheduled",
                "status": scheduled,
                "reason": record.reason or "Pending",
                "message": record.message,
                "lastTransitionTime": record.since,
            }
        ]
        conditions += [record.stop] if record.stop is not None else []
        body = {
            "phase": record.state,
            "message": record.message,
            "queue": record.queue,
            "proof": record.proof,
            "start": record.start,
            "refusal": None if record.refusal is None else as_data(record.refusal),
            "assignments": [
                {"pod": pod.split("/", 1)[1], "node": node} for pod, node in record.assignments
            ],
            "conditions": conditions,
        }
        path = f"/apis/{names.GROUP}/{names.VERSION}/namespaces/{subject.namespace}/podgroups"
        if record.written_stop_at != record.stop_at:
            stop_at, annotations = record.stop_at, {names.STOP_ANNOTATION: record.stop_at}
            metadata = {"uid": subject.uid, "annotations": annotations}
            await self.client.patch(object_path(path, subject.name), {"metadata": metadata})
            record.written_stop_at = stop_at
        if record.matches(body):
            return
        await self._patch(path, subject, body)
        record.written = body

    async def _write_external(
        self,
        gang: GangId,
        subject: ObjectRef,
        kind: ExternalKind,
        writer: ExternalStatus,
        record: StatusRecord,
    ) -> None:
        """Write the status of an external group, as its own controller would, if it changed."""
        minimum, pods = self.progress(gang)
        refused = record.refusal is not None
        now = rfc3339()

        def status() -> dict[str, Any]:
            return writer.body(record.progress(minimum, pods, now))

        unchanged, state = record.matches(status()), (record.state, refused)
        if state != record.last_state:
            record.last_state, record.since = state, record.since if unchanged else rfc3339()
        if unchanged:
            return
        body = status()
        path = f"/apis/{kind.api_version}/namespaces/{subject.namespace}/{kind.plural}"
        await self._patch(path, subject, body, STRATEGIC if writer.merged else MERGE)
        record.written = record.before = body

    async def _patch(
        self, path: str, subject: ObjectRef, status: dict[str, Any], merge: str = MERGE
    ) -> None:
        """Write the status of an object; its uid keeps out a successor of the same name."""
        body = {"metadata": {"uid": subject.uid}, "status": status}
        await self.client.patch(f"{object_path(path, subject.name)}/status", body, merge)

    async def _write_events(self, subject: ObjectRef, record: StatusRecord) -> None:
        while record.events:
            reason, message = record.last_event = record.events.pop(0)
            if subject.owned and reason in _REPORTED_BY_JOBS:
                continue
            kind = "Warning" if reason in WARNINGS else "Normal"
            try:
                await post_event(self.client, subject, kind, reason, message)
            except (Unavailable, Throttled):
                record.events = [(reason, message), *record.events]
                raise


def _external_writer(subject: ObjectRef) -> tuple[ExternalKind, ExternalStatus] | None:
    kind = subject.external_kind
    status = status_of(kind) if kind is not None else None
    return (kind, status) if kind is not None and status is not None else None


def _namespace(gang: GangId) -> str:
    return gang.partition("/")[0]


def _time(at_s: float | None) -> str | None:
    return None if at_s is None else rfc3339(at_s)
