"""PodGroups of other schedulers: where each kind is listed, and how it is read.

`gangsched/kube/status/external_status.py` writes their status. `owners.py` has the kinds whose pods
are a gang without a group.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import ValidationError

from gangsched.api import dialects
from gangsched.api.podgroup import PodGroupSpec
from gangsched.config import one_sentence
from gangsched.core.bounds import PODS_OF_GANG
from gangsched.core.model.gangs import Gang, Role
from gangsched.core.model.ids import GangId
from gangsched.core.model.queues import DEFAULT_QUEUE
from gangsched.kube.decoding import constraints, native_groups
from gangsched.kube.decoding.membership import KAI, PLUGINS, UPSTREAM, VOLCANO, foreign_id
from gangsched.kube.decoding.pod_limits import few
from gangsched.kube.decoding.quantities import DecodeError, UnknownClassError, seconds
from gangsched.kube.decoding.schemas import GroupObject
from gangsched.kube.decoding.users import user_of

Spec = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Start:
    """Pods of an object that start together: a gang.

    `roles` tell which of them are made only once the others run. An object whose pods start in
    several gangs names each by its `stage`, and gives the roles of its pods as `members`. `asked`
    are fields of our PodGroup's spec, which annotations of the object change.
    """

    minimum: int
    roles: tuple[Role, ...] = ()
    stage: str = ""
    members: frozenset[str] = frozenset()
    asked: Mapping[str, Any] = field(default_factory=dict)


Starts = Callable[[Spec, Mapping[str, str], frozenset[str]], Sequence[Start]]


def least(count: Callable[[Spec, Mapping[str, str], frozenset[str]], int]) -> Starts:
    """Return how an object's pods start that are one gang of at least so many pods."""
    return lambda spec, keys, ours: (Start(count(spec, keys, ours)),)


def one_gang(gang: GangId) -> GangId:
    """Return the id of the object that a gang belongs to, where that is the gang's own."""
    return gang


@dataclass(frozen=True, slots=True)
class ExternalKind:
    """One kind.

    `starts` returns which of its pods start together, by its spec, by its labels and annotations,
    and by the names of our scheduler. `home` returns, by a gang's id, that of the object's first
    gang. Gangs that are `copies` are named by their pods alone, and go with the last of them.
    `reads` are annotations that `starts` reads, and which mean nothing else here. `given` returns
    fields of the Gang that our PodGroups do not have.
    """

    source: str
    api_version: str
    kind: str
    plural: str
    starts: Starts
    fields: Callable[[Spec, str], dict[str, Any]] = lambda _, __: {}
    templates: Callable[[Spec], Iterable[Any]] = lambda _: ()
    """Of its pods, where it has some."""
    home: Callable[[GangId], GangId] = one_gang
    copies: bool = False
    reads: frozenset[str] = frozenset()
    given: Callable[[Spec], Mapping[str, Any]] = lambda _: {}

    @property
    def path(self) -> str:
        """Return where all of them are listed."""
        root = "/apis" if "/" in self.api_version else "/api"
        return f"{root}/{self.api_version}/{self.plural}"

    def read(
        self, group: GroupObject, priorities: Mapping[str, int], ours: frozenset[str]
    ) -> dict[str, tuple[Gang, frozenset[str]]]:
        """Return the gangs an object stands for by their stages, each with the roles of its pods.

        Raises:
            DecodeError: it is not understood.

        """
        metadata = group.metadata
        subject = f"{self.kind} {metadata.namespace}/{metadata.name}"
        try:
            starts = self.starts(group.spec, metadata.labels | metadata.annotations, ours)
            said = {k: v for k, v in metadata.annotations.items() if k not in self.reads}
            asked = dialects.from_annotations(said, subject)
            asked |= self.fields(group.spec, subject)
            gangs = {
                one.stage: (self._gang(group, one, asked, priorities), one.members)
                for one in starts
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
        asked: Mapping[str, Any],
        priorities: Mapping[str, int],
    ) -> Gang:
        metadata = group.metadata
        fields = {"minMember": max(start.minimum, 1), **start.asked, **asked}
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
        found = Gang(
            GangId(f"{first}.{start.stage}") if start.stage else first,
            spec.minMember or 1,
            start.roles,
            queue=queue or spec.queue or DEFAULT_QUEUE,
            priority=priorities.get(name) if name else None,
            created_s=seconds(metadata.creation_timestamp),
            schedule_timeout_s=spec.scheduleTimeoutSeconds,
            expected_runtime_s=spec.expectedRuntimeSeconds,
            constraints=constraints.constraints(spec),
            preemptible=spec.preemptible,
            user=user_of(metadata.annotations, metadata.namespace),
            implicit=self.copies,
        )
        return replace(found, **self.given(group.spec))


def _labels(template: Any) -> Mapping[str, str]:
    return ((template or {}).get("metadata") or {}).get("labels") or {}


# -- how many -----------------------------------------------------------------------------------


def _member(spec: Spec, _: Mapping[str, str], __: frozenset[str]) -> int:
    return int(spec.get("minMember") or 1)


# -- what else they ask ---------------------------------------------------------------------------


def _volcano_fields(spec: Spec, subject: str) -> dict[str, Any]:
    found = dialects.from_volcano(spec.get("networkTopology") or {}, subject)
    found |= {key: spec[key] for key in ("queue", "priorityClassName") if spec.get(key)}
    return found


def _kai_fields(spec: Spec, subject: str) -> dict[str, Any]:
    found = dialects.from_kai(spec.get("topologyConstraint") or {}, subject)
    found |= {key: spec[key] for key in ("queue", "priorityClassName") if spec.get(key)}
    return found


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
    """Return which table a gang's id is of, or nothing for ours."""
    name = gang.split("/", 1)[1]
    return name.split(":", 1)[0] if ":" in name else ""
