"""Labels, annotations and names that users and other programs see. They never change meaning."""

GROUP = "gangsched.io"
VERSION = "v1beta1"

SUPERSEDED = ("v1alpha1",)
"""Earlier versions that are still served, with the same fields (docs/decisions/0026)."""

POD_GROUP_LABEL = "gangsched.io/pod-group"
"""Pod label: the PodGroup it belongs to. With MIN_MEMBER_LABEL no PodGroup object is needed."""

MIN_MEMBER_LABEL = "gangsched.io/min-member"
ROLE_LABEL = "gangsched.io/role"
QUEUE_LABEL = "gangsched.io/queue-name"
QUEUE_LABELS = (
    QUEUE_LABEL,
    "kueue.x-k8s.io/queue-name",
    "scheduling.volcano.sh/queue-name",
    "volcano.sh/queue-name",
    "kai.scheduler/queue",
    "runai/queue",
)
"""Labels and annotations that name a queue, the first found counts."""

USER_ANNOTATION = "gangsched.io/user"
"""Who asked for a job. Written by the admission policy from the request, never by users."""

USER_POLICY = "gangsched-user"
"""The admission policy, and its binding, that write it."""

RUNTIME_ANNOTATION = "gangsched.io/expected-runtime-seconds"
CHECKPOINT_ANNOTATION = "gangsched.io/checkpoint-at"
"""When a job last saved its work (RFC 3339): preemption prefers those who lose least."""

PREEMPTED_ANNOTATION = "gangsched.io/preempted-at"
"""Written by us on pods that are stopped for another gang, with the condition DisruptionTarget."""

GATE = "gangsched.io/gang"
WOKEN_ANNOTATION = "gangsched.io/woken-at"
"""Written by us on pods that kube-scheduler put aside: it looks again at what has changed."""

NO_GATE_ANNOTATION = "gangsched.io/pinned"
"""On pods created by our controllers for a reserved node: the admission policy adds no gate."""

DEVICES_ANNOTATION = "gangsched.io/gpu-devices"
"""Written by us when a pod that shares GPUs is bound: their indices on its node."""

MINIMUM_ANNOTATION = "gangsched.io/started-with"
"""Written by us when a pod is bound: how many members of its gang had to start together."""

MIG_LABEL = "gangsched.io/mig"
MIG_DYNAMIC = "dynamic"
"""On a node: gangsched may have its idle GPUs cut anew (MIG)."""

MIG_LAYOUT_ANNOTATION = "gangsched.io/mig-layout"
"""Written by us on a node whose GPUs we had cut: the layout behind its nvidia.com/mig.config."""

INDEX_LABELS = (
    "gangsched.io/rank",
    "training.kubeflow.org/replica-index",
    "batch.kubernetes.io/job-completion-index",
    "leaderworkerset.sigs.k8s.io/worker-index",
    "apps.kubernetes.io/pod-index",
)
"""Pod labels with a pod's index within its role."""

COSCHEDULING_LABEL = "scheduling.x-k8s.io/pod-group"
REPORTER = "gangsched"

REFUSAL_PREFIX = "gangsched:"
"""Begins every refusal of the extender, so that its echo in a pod's condition is known as ours."""
