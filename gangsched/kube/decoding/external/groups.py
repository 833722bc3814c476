"""PodGroups of other schedulers: the API path of each kind, and how it is read.

`gangsched/kube/status/external_status.py` writes their status. `owners.py` has the kinds with pods
that are a gang without a group.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import ValidationError

from gangsched.api import dialects
from gangsched.api.podgroup import PodGroupSpec
from gangsched.config import one_sentence
from gangsched.core.bounds import PODS_OF_GANG
from gangsched.core.model.dependencies import Outcome
from gangsched.core.model.gangs import Gang, Role
from gangsched.core.model.ids import GangId
from gangsched.core.model.queues import DEFAULT_QUEUE
from gangsched.kube.decoding import constraints, native_groups, start_conditions
from gangsched.kube.decoding.membership import KAI, PLUGINS, UPSTREAM, VOLCANO, foreign_id
from gangsched.kube.decoding.pod_limits import few
from gangsched.kube.decoding.quantities import DecodeError, UnknownClassError, parse_timestamp
from gangsched.kube.decoding.schemas import GroupObject
from gangsched.kube.decoding.users import user_of

Spec = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Start:
    """One gang of an object: pods that start together.

    `roles` mark the pods that the controller makes only when the other pods run. If the pods of an
    object start in several gangs, each gang has a `stage`, and `members` are the roles of its pods.
    `asked` are fields of our PodGroup's spec; annotations of the object have precedence.
    """

    minimum: int
    roles: tuple[Role, ...] = ()
    stage: str = ""
    members: frozenset[str] = frozenset()
    asked: Mapping[str, Any] = field(default_factory=dict)


Starts = Callable[[Spec, Mapping[str, str], frozenset[str]], Sequence[Start]]


def least(count: Callable[[Spec, Mapping[str, str], frozenset[str]], int]) -> Starts:
    """Return `starts` of a kind with one gang per object, with `count` pods as its minimum."""
    return lambda spec, keys, ours: (Start(count(spec, keys, ours)),)


def one_gang(gang: GangId) -> GangId:
    """Return the id of the object of a gang, for kinds with one gang per object."""
    return gang


@dataclass(frozen=True, slots=True)
class ExternalKind:
    """A kind of another API with objects that stand for gangs.

    `starts` returns the gangs of an object. Its arguments are the spec, the labels and annotations,
    and the names of our scheduler. `home` returns the id of the object's first gang from the id of
    any of its gangs. If the gangs are `copies`, only the pods name them, and a gang ends with its
    last pod. `reads` are annotations that only `starts` reads. `given` returns fields of the Gang
    that our PodGroups do not have.
    """

    source: str
    api_version: str
    kind: str
    plural: str
    starts: Starts
    fields: Callable[[Spec, str], dict[str, Any]] = lambda _, __: {}
    templates: Callable[[Spec], Iterable[Any]] = lambda _: ()
    """Returns the pod templates of an object."""
    home: Callable[[GangId], GangId] = one_gang
    copies: bool = False
    reads: frozenset[str] = frozenset()
    given: Callable[[Spec], Mapping[str, Any]] = lambda _: {}
    outcome: Callable[[Mapping[str, Any]], Outcome | None] = lambda _: None
    """Returns from the status of an object how it ended, or None while it may start pods."""

    @property
    def path(self) -> str:
        """Return the API path that lists all objects of the kind."""
        root = "/apis" if "/" in self.api_version else "/api"
        return f"{root}/{self.api_version}/{self.plural}"

    def read(
        self, group: GroupObject, priorities: Mapping[str, int], ours: frozenset[str]
    ) -> dict[str, tuple[Gang, frozenset[str]]]:
        """Return the gangs of an object by stage, each with the roles of its pods.

        Raises:
            DecodeError: the object is malformed.

        """
        metadata = group.metadata
        subject = f"{self.kind} {metadata.namespace}/{metadata.name}"
        try:
            starts = self.starts(group.spec, metadata.labels | metadata.annotations, ours)
            annotations = {k: v for k, v in metadata.annotations.items() if k not in self.reads}
            fields = dialects.from_annotations(annotations, subject)
            fields |= self.fields(group.spec, subject)
            gangs = {
                start.stage: (self._gang(group, start, fields, priorities), start.members)
                for start in starts
            }
        except dialects.DialectError as error:
            raise DecodeError(str(error)) from error
        except UnknownClassError:
            raise
        except DecodeError as error:
            raise DecodeError(f"{subject}: {error}") from error
        except ValidationError as error:
            raise DecodeError(one_sentence(error, subject)) from error
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise DecodeError(f"{subject}: {error}") from error
        return gangs

    def _gang(
        self,
        group: GroupObject,
        start: Start,
        own_fields: Mapping[str, Any],
        priorities: Mapping[str, int],
    ) -> Gang:
        metadata = group.metadata
        fields = {"minMember": max(start.minimum, 1), **start.asked, **own_fields}
        few(max(start.minimum, sum(role.count for role in start.roles)), PODS_OF_GANG)
        spec = PodGroupSpec.model_validate(fields)
        name = spec.priorityClassName
        if name and name not in priorities:
            subject = f"{self.kind} {metadata.namespace}/{metadata.name}"
            raise UnknownClassError(f"{subject}: spec.priorityClassName", name, priorities)
        labels = [_labels(template) for template in self.templates(group.spec)]
        admitted = dialects.admitted_elsewhere(*labels)
        keys = (metadata.labels, metadata.annotations, *labels)
        queue = dialects.queue_of(*keys, admitted=admitted)
        first = foreign_id(metadata.namespace, self.source, metadata.name)
        gang = Gang(
            GangId(f"{first}.{start.stage}") if start.stage else first,
            spec.minMember or 1,
            start.roles,
            queue=queue or spec.queue or DEFAULT_QUEUE,
            priority=priorities.get(name) if name else None,
            created_s=parse_timestamp(metadata.creation_timestamp),
            schedule_timeout_s=spec.scheduleTimeoutSeconds,
            expected_runtime_s=spec.expectedRuntimeSeconds,
            constraints=constraints.constraints(spec),
            preemptible=spec.preemptible,
            checkpoint_grace_s=spec.checkpointGraceSeconds,
            movable=spec.movable,
            min_runtime_s=spec.minRuntimeSeconds,
            checkpoint_s=parse_timestamp(spec.checkpointAt or "") or None,
            user=user_of(metadata.annotations, metadata.namespace),
            implicit=self.copies,
            dependencies=start_conditions.dependencies(spec, metadata.name),
            series=start_conditions.series(spec),
            price_max=spec.maxPricePerHour,
            wait_max_s=spec.maxWaitSeconds,
        )
        return replace(gang, **self.given(group.spec))


def _labels(template: Any) -> Mapping[str, str]:
    return ((template or {}).get("metadata") or {}).get("labels") or {}


# -- minimum ------------------------------------------------------------------------------------


def _member(spec: Spec, _: Mapping[str, str], __: frozenset[str]) -> int:
    return int(spec.get("minMember") or 1)


# -- other fields ---------------------------------------------------------------------------------


def _volcano_fields(spec: Spec, subject: str) -> dict[str, Any]:
    fields = dialects.from_volcano(spec.get("networkTopology") or {}, subject)
    fields |= {key: spec[key] for key in ("queue", "priorityClassName") if spec.get(key)}
    return fields


def _kai_fields(spec: Spec, subject: str) -> dict[str, Any]:
    fields = dialects.from_kai(spec.get("topologyConstraint") or {}, subject)
    fields |= {key: spec[key] for key in ("queue", "priorityClassName") if spec.get(key)}
    return fields


def _plugin_fields(spec: Spec, _: str) -> dict[str, Any]:
    timeout = spec.get("scheduleTimeoutSeconds")
    return {"scheduleTimeoutSeconds": timeout} if timeout else {}


KINDS: tuple[ExternalKind, ...] = (
    ExternalKind(
        PLUGINS,
        f"{PLUGINS}/v1alpha1",
        "PodGroup",
        "podgroups",
        least(_member),
        _plugin_fields,
    ),
    ExternalKind(
        VOLCANO,
        f"{VOLCANO}/v1beta1",
        "PodGroup",
        "podgroups",
        least(_member),
        _volcano_fields,
    ),
    ExternalKind(KAI, f"{KAI}/v2alpha2", "PodGroup", "podgroups", least(_member), _kai_fields),
    *(
        ExternalKind(
            UPSTREAM,
            f"{UPSTREAM}/{version}",
            "PodGroup",
            "podgroups",
            least(native_groups.minimum),
            native_groups.fields,
            given=native_groups.given,
        )
        for version in native_groups.VERSIONS
    ),
)


def source_of(gang: GangId) -> str:
    """Return the source of a gang's id, or an empty string for a gang of our PodGroups."""
    name = gang.split("/", 1)[1]
    return name.split(":", 1)[0] if ":" in name else ""
