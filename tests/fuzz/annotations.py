"""Annotations and labels of pods, groups and jobs for fuzzing, dialect by dialect."""

from gangsched.api.dialects import JOBSET, KEYS

OURS = {
    "topology": "default",
    "topology-required": "rack",
    "topology-preferred": "tier-1",
    "slices": '[{"level": "rack", "size": 2}]',
    "fabric-required": "rack",
    "fabric-preferred": "rack",
    "spread": "rack=2",
    "exclusive-topology": "rack",
    "gpu-kinds": "H100,A100",
    "avoid-nodes": "n,m",
    "movable": "true",
    "min-runtime-seconds": "60",
    "checkpoint-at": "2030-01-01T00:00:00Z",
    "checkpoint-grace-seconds": "120",
    "expected-runtime-seconds": "600",
    "max-runtime-seconds": "900",
    "ready-timeout-seconds": "60",
    "preemptible": "false",
    "schedule-timeout-seconds": "120",
    "after": "afterok:a,after:b",
    "series": "s:2",
    "max-price-per-hour": "400",
    "max-wait-seconds": "600",
}
KUEUE = {
    "podset-required-topology": "rack",
    "podset-preferred-topology": "rack",
    "podset-slice-required-topology": "rack",
    "podset-slice-size": "2",
    "max-exec-time-seconds": "900",
}
LAYERS = {"podset-slice-required-topology-constraints": '[{"topology": "rack", "size": 2}]'}
KAI = {
    "topology": "default",
    "topology-required-placement": "rack",
    "topology-preferred-placement": "rack",
    "segment-size": "2",
    "segment-topology-required-placement": "rack",
    "preemptibility": "preemptible",
}
VOLCANO = {
    "network-topology-mode": "hard",
    "network-topology-highest-tier": "2",
    "preemptable": "true",
}


def _under(prefix: str, values: dict[str, str]) -> dict[str, str]:
    return {prefix + key: value for key, value in values.items()}


ASKED: tuple[dict[str, str], ...] = (
    *({f"gangsched.io/{key}": value} for key, value in OURS.items()),
    _under("gangsched.io/", OURS),
    _under("kueue.x-k8s.io/", KUEUE),
    _under("kueue.x-k8s.io/", LAYERS),
    _under("kai.scheduler/", KAI),
    _under("volcano.sh/", VOLCANO),
    {JOBSET: "rack"},
)
"""Annotations that ask where and how long a gang may run."""

assert {key for one in ASKED for key in one} >= KEYS, "a dialect that nobody fuzzes"

OF_PODS: tuple[dict[str, str], ...] = (
    {"gpu-memory": "1000", "gpu-fraction-num-devices": "2"},
    {"gpu-fraction": "0.5", "gangsched.io/gpu-devices": "0"},
    {"gpu-fraction": "0.25", "gpu-fraction-num-devices": "2", "gangsched.io/gpu-devices": "0,1"},
    {"kueue.x-k8s.io/pod-group-total-count": "2"},
    {"leaderworkerset.sigs.k8s.io/size": "2"},
    {"scheduling.k8s.io/group-name": "f"},
)
"""Annotations of single pods: parts of GPUs, and groups by peers' words."""

LABELS: tuple[dict[str, str], ...] = (
    {"gangsched.io/pod-group": "g", "gangsched.io/rank": "1"},
    {
        "gangsched.io/pod-group": "h",
        "gangsched.io/min-member": "2",
        "training.kubeflow.org/replica-index": "1",
    },
    {"kueue.x-k8s.io/pod-group-name": "k", "kueue.x-k8s.io/queue-name": "default"},
    {
        "leaderworkerset.sigs.k8s.io/name": "l",
        "leaderworkerset.sigs.k8s.io/group-index": "0",
        "batch.kubernetes.io/job-completion-index": "0",
    },
)
"""Labels of pods: their group, and their rank in it."""
