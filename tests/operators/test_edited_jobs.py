"""Messages about templates that change while pods have the old ones."""

import copy

import pytest

from gangsched.operators.controllers.job_record import JobRecord
from gangsched.operators.controllers.owned_objects import OwnedObjects

SPECS = "pytorchReplicaSpecs"


def body(image="x", uid="u", replicas=1) -> dict:
    """Return a job whose workers run an image."""
    template = {"spec": {"containers": [{"name": "pytorch", "image": image}]}}
    worker = {"replicas": replicas, "template": template}
    return {"metadata": {"uid": uid}, "spec": {SPECS: {"Worker": worker}}}


def heard(*bodies: dict, pods: bool = True) -> list:
    """Return what is said after some states of a job."""
    owned = OwnedObjects(lambda: JobRecord(SPECS))
    owned.owner_seen(bodies[0])
    owned.parts = {("Pod", "j-worker-0"): {}} if pods else {}
    for one in bodies[1:]:
        owned.owner_seen(copy.deepcopy(one))
    said = owned.record.edits()
    assert not owned.record.edits()
    return said


def test_a_template_that_changed_is_named_once():
    (event,) = heard(body(), body("y"), body("y", replicas=2))
    assert (event.type, event.reason) == ("Warning", "TemplateChanged")
    assert event.message.startswith("spec.pytorchReplicaSpecs.Worker.template changed; existing")


def test_replicas_pods_to_come_and_a_successor_are_no_such_change():
    assert not heard(body(), body(replicas=3))
    assert not heard(body(), body("y"), pods=False)
    assert not heard(body(), body("y", uid="another"))


@pytest.mark.parametrize("spec", [None, {}, {SPECS: 3}, {SPECS: {"Worker": 3}}])
def test_jobs_without_shape_have_no_templates(spec):
    odd = {"metadata": {"uid": "u"}, "spec": spec}
    assert not heard(odd, body())
    assert not heard(body(), odd)
