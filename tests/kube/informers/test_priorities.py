"""The priority of a gang without pods: its own class, or that of its templates."""

import json

import pytest
from builders import POLICIES

from gangsched.config import SchedulerConfig
from gangsched.kube.decoding import podgroups
from gangsched.kube.decoding.metadata import decode_group
from gangsched.kube.decoding.quantities import DecodeError, UnknownClassError
from gangsched.kube.service import Scheduler
from gangsched.metrics import Metrics

CLASSES = {"urgent": 1000, "low": -10, "some": 5}


def group(*classes: str | None, **spec) -> bytes:
    """Return a PodGroup with a role for each class, whose template names it."""
    roles = [
        {
            "name": f"r{i}",
            "count": 1,
            "template": {"spec": {"priorityClassName": name} if name is not None else {}},
        }
        for i, name in enumerate(classes)
    ]
    return json.dumps(
        {
            "metadata": {"name": "g", "namespace": "ns", "uid": "u"},
            "spec": {"roles": roles, **spec},
        }
    ).encode()


@pytest.mark.parametrize(
    ("raw", "default", "priority"),
    [
        (group("urgent", "urgent"), None, 1000),
        (group(None, "urgent"), None, 1000),
        (group("low", "low"), None, -10),
        (group("low", None), None, 0),
        (group("low", None), 7, 7),
        (group(None, None), None, None),
        (group("", None), 7, 7),
        (group("urgent", priorityClassName="low"), 7, -10),
        (group("missing", priorityClassName="low"), None, -10),
        (group(minMember=2), 7, None),
    ],
)
def test_the_class_of_a_group_or_the_highest_of_its_templates(raw, default, priority):
    assert podgroups.pod_group(decode_group(raw), CLASSES, default)[0].priority == priority


def test_a_class_in_a_template_that_is_not_there():
    words = r"PodGroup ns/g: spec.roles\[r0\].template.spec.priorityClassName 'no' does not exist"
    with pytest.raises(UnknownClassError, match=words):
        podgroups.pod_group(decode_group(group("no")), CLASSES)


def test_a_class_that_is_no_text():
    raw = group("x").replace(b'"x"', b'{"a": 1}')
    with pytest.raises(DecodeError, match=r"spec.roles\[r0\].template.spec: Expected `str`"):
        podgroups.pod_group(decode_group(raw), CLASSES)


def a_class(name: str, value: int, *, default=False) -> bytes:
    """Return a PriorityClass as the API server writes it."""
    metadata = {"name": name, "uid": name}
    return json.dumps({"metadata": metadata, "value": value, "globalDefault": default}).encode()


def test_the_class_of_pods_that_name_none_comes_and_goes():
    scheduler = Scheduler(None, SchedulerConfig(), POLICIES, Metrics(), read_only=True)
    classes, pod_groups = scheduler.informers.priority_classes, scheduler.informers.pod_groups
    classes.on_update(a_class("usual", 50, default=True))
    classes.on_update(a_class("other", 20, default=True))
    assert scheduler.cluster.default_priority == 20  # as the API server chooses
    classes.on_delete("other", None)
    pod_groups.on_update(group(None))
    (gang,) = scheduler.engine.view.gangs.values()
    assert gang.priority() == 50
    classes.on_update(a_class("usual", 50))
    assert scheduler.cluster.default_priority is None
