"""The remaining ResourceQuota, and the namespaces that queues allow."""

import json

import pytest
from test_receivers import Heard

from gangsched.core import facts as f
from gangsched.kube.decoding import podgroups
from gangsched.kube.decoding.cluster import queues
from gangsched.kube.decoding.metadata import ApiObject, decode_group
from gangsched.kube.informers.namespace_quotas import NamespaceQuotas, quota
from gangsched.metrics import Metrics

GPU = "nvidia.com/gpu"


def written(hard, used=None, uid="u", **spec) -> bytes:
    return json.dumps(
        {
            "metadata": {"name": "q", "namespace": "ns", "uid": uid},
            "spec": {"hard": hard, **spec},
            "status": {"used": used or {}},
        }
    ).encode()


@pytest.mark.parametrize(
    ("hard", "used", "left"),
    [
        ({"pods": "4"}, {"pods": "1"}, (("pods", 3),)),
        ({"count/pods": "4", "pods": 5}, {"count/pods": "2"}, (("pods", 2),)),
        ({"cpu": "2"}, {"cpu": "500m"}, (("cpu", 1500),)),
        ({"requests.memory": "1Gi"}, {}, (("memory", 2**30),)),
        ({f"requests.{GPU}": "8"}, {f"requests.{GPU}": "12"}, ((GPU, -4),)),
        ({"limits.cpu": "1", "services": "3", "count/jobs.batch": "1"}, {}, ()),
    ],
)
def test_what_is_left(hard, used, left):
    assert quota(ApiObject(written(hard, used))) == f.NamespaceQuotaSeen("ns", "q", left)


def test_scopes_are_left_to_the_api_server():
    assert quota(ApiObject(written({"pods": "1"}, scopes=["BestEffort"]))).left == ()


def test_a_quota_that_is_gone_or_not_understood_counts_nothing():
    heard = Heard()
    quotas = NamespaceQuotas(heard, Metrics())
    quotas.on_update(written({"pods": "1"}))
    quotas.on_update(written({"pods": "many"}))
    quotas.on_update(written({"pods": "1"}, uid="other"))
    quotas.on_delete("u", None)
    quotas.on_delete("other", None)
    seen, gone = f.NamespaceQuotaSeen("ns", "q", (("pods", 1),)), f.NamespaceQuotaGone("ns", "q")
    assert heard.facts == [seen, gone, seen, gone]


def test_queues_and_groups_report_borrowing_and_domains():
    raw = {
        "metadata": {"name": "q"},
        "spec": {"exclusive": "rack", "nonPreemptibleMayBorrow": True},
    }
    found = queues.parse_queue(decode_group(json.dumps(raw).encode()), {}, {})
    assert (found.exclusive, found.non_preemptible_may_borrow) == ("rack", True)
    raw = {
        "metadata": {"name": "g", "namespace": "ns"},
        "spec": {"queue": "b"},
        "status": {"queue": "a", "phase": "Placed"},
    }
    gang, _, _ = podgroups.pod_group(decode_group(json.dumps(raw).encode()), {})
    assert (gang.queue, gang.charged) == ("b", "a")
