"""A restart changes nothing: running gangs, queue order, and answers of commands."""

import json
from datetime import UTC, datetime

import pytest

from gangsched.kube.decoding.quantities import parse_timestamp

pytestmark = pytest.mark.by("direct")  # what is restored is complete before anything is bound

GPU = "nvidia.com/gpu"
KWOK = {"gangsched.io/node-kind": "kwok"}


def planned(cluster, namespace, name, pods):
    """Create a PodGroup that is planned before its pods exist, later than all there are."""
    container = {"name": "c", "resources": {"limits": {GPU: "8"}}}
    template = {"spec": {"containers": [container], "nodeSelector": KWOK}}
    role = {"name": "worker", "count": pods, "template": template}
    cluster.group(namespace, name, scheduleTimeoutSeconds=3600, roles=[role])
    created = cluster.get_group(namespace, name)["metadata"]["creationTimestamp"]
    # The API server keeps whole seconds: two of one second stand in line by their names.
    later_s = parse_timestamp(created) + 1
    cluster.wait(lambda: datetime.now(UTC).timestamp() >= later_s, "the next second")


def statuses(cluster, namespace):
    """Return what PodGroups are told at one moment, by their names."""
    found = cluster.custom.list_namespaced_custom_object(
        "gangsched.io", "v1beta1", namespace, "podgroups"
    )
    return {one["metadata"]["name"]: one.get("status") or {} for one in found["items"]}


def line(cluster, namespace, names):
    """Return the positions that the scheduler tells, and when it promised each to start."""
    told = statuses(cluster, namespace)
    starts = {name: told[name].get("start") or {} for name in names}
    return {name: (start.get("position"), start.get("reserved")) for name, start in starts.items()}


def past(cluster):
    """Return what is kept of gangs that have been through something, by their names."""
    name = "metadata.name=gangsched-past"
    found = cluster.core.list_namespaced_config_map("gangsched-system", field_selector=name).items
    kept = json.loads(found[0].data["gangs.json"])["gangs"] if found else []
    return {one["gang"]: one for one in kept}


@pytest.mark.parametrize("grows", ["gangsched.io", "scheduling.volcano.sh"])
def test_a_gang_that_was_scaled_up_runs_on(cluster, namespace, grows):
    """Its owner asks for more than there is room for: what runs is left alone all the same."""
    version = "v1beta1"
    spec = {"minMember": 2}
    link = {"labels": {"gangsched.io/pod-group": "g"}}
    if grows != "gangsched.io":
        link = {"annotations": {"scheduling.k8s.io/group-name": "g"}}
    body = {"apiVersion": f"{grows}/{version}", "kind": "PodGroup", "metadata": {"name": "g"}}
    group = (grows, version, namespace, "podgroups")
    cluster.custom.create_namespaced_custom_object(*group, body | {"spec": spec})
    for name in ("a", "b"):
        create(cluster, namespace, f"g-{name}", link)
    cluster.wait_placed(namespace, "g-", 2)
    cluster.custom.patch_namespaced_custom_object(*group, "g", {"spec": {"minMember": 6}})
    for name in ("c", "d", "e", "f"):
        create(cluster, namespace, f"g-{name}", link)
    cluster.wait_placed(namespace, "g-", 4)
    if grows == "gangsched.io":  # no sooner: late members may take longer on a slow machine
        soon = {"spec": {"scheduleTimeoutSeconds": 1}}
        cluster.custom.patch_namespaced_custom_object(*group, "g", soon)
    cluster.restart("gangsched", hard=True)
    cluster.gang(namespace, "other", 1)
    cluster.wait_event(namespace, "NotEnoughFree", name="other")
    # It would have been stopped a second after the new process took it for too small.
    cluster.stays(lambda: len(cluster.bound(namespace, "g-")) == 4, 2, "the gang to run on")
    assert not [words for words in cluster.events(namespace) if words[0] == "BelowMinimum"]


def create(cluster, namespace, name, metadata):
    """Create a pod of 8 GPUs that is a member of a group."""
    container = {"name": "c", "image": "none", "resources": {"limits": {GPU: "8"}}}
    spec = {
        "schedulerName": "gangsched",
        "containers": [container],
        "nodeSelector": KWOK,
        "terminationGracePeriodSeconds": 0,
    }
    cluster.core.create_namespaced_pod(
        namespace, {"metadata": {"name": name, **metadata}, "spec": spec}
    )


def test_the_line_stays_and_commands_say_what_the_scheduler_says(cluster, namespace):
    cluster.gang(namespace, "filler", 4)
    cluster.wait_placed(namespace, "filler-", 4)
    names = ("zz", "mm", "aa")
    for name in names:
        planned(cluster, namespace, name, 4)

    def ordered():
        """Return what the first in line is promised, once all are told their turns."""
        told = line(cluster, namespace, names)
        return [told[name][0] for name in names] == [1, 2, 3] and told["zz"][1]

    promised = cluster.wait(ordered, "the order of their creation, and a promise")
    cluster.wait(lambda: f"{namespace}/zz" in past(cluster), "the promise to be kept")
    cluster.restart("gangsched", hard=True)
    cluster.gang(namespace, "other", 1)
    cluster.wait_event(namespace, "NotEnoughFree", name="other")
    assert [line(cluster, namespace, names)[name][0] for name in names] == [1, 2, 3]
    assert line(cluster, namespace, names)["zz"] == (1, promised)
    assert past(cluster)[f"{namespace}/zz"]["promised_s"] == pytest.approx(
        parse_timestamp(promised), abs=1
    )
    code, said = cluster.gangsched("queue", "default", "-o", "json")
    assert code == 0, said
    rows = [row for row in json.loads(said) if row["gang"].startswith(f"{namespace}/")]
    assert [row["gang"].split("/")[1] for row in rows] == [*names, "other"]
    for row in rows[:3]:
        made = cluster.get_group(namespace, row["gang"].split("/")[1])["metadata"]
        assert parse_timestamp(row["since"]) == parse_timestamp(made["creationTimestamp"])
    cluster.core.delete_collection_namespaced_pod(
        namespace, label_selector="gangsched.io/pod-group=filler", grace_period_seconds=0
    )

    def reserved():
        """Return the phases of all, once one of them has its room."""
        phases = {name: one.get("phase") for name, one in statuses(cluster, namespace).items()}
        return "Reserved" in phases.values() and {name: phases[name] for name in names}

    # It keeps the room for ten minutes, since nobody makes its pods.
    found = cluster.wait(reserved, "the first to have its room")
    assert found == {"zz": "Reserved", "mm": "Pending", "aa": "Pending"}
