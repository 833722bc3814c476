"""Names in the API: labels, annotations and the scheduling gate. Their meanings never change."""

GROUP = "gangsched.io"
VERSION = "v1beta1"

SUPERSEDED = ("v1alpha1",)
"""Earlier versions that are still served, with the same fields (docs/decisions/0026)."""

POD_GROUP_LABEL = "gangsched.io/pod-group"
"""Label of a pod: its PodGroup. With MIN_MEMBER_LABEL the gang needs no PodGroup object."""

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
"""Labels and annotations that name a queue; the first one that an object has counts."""

USER_ANNOTATION = "gangsched.io/user"
"""User that created an object. The admission policy writes it from the request; users cannot."""

USER_POLICY = "gangsched-user"
"""Name of the admission policy that writes USER_ANNOTATION, and of its binding."""

RUNTIME_ANNOTATION = "gangsched.io/expected-runtime-seconds"
CHECKPOINT_ANNOTATION = "gangsched.io/checkpoint-at"
"""Time of a job's last checkpoint (RFC 3339): preemption prefers gangs that lose little work."""

GRACE_ANNOTATION = "gangsched.io/checkpoint-grace-seconds"
"""How long a gang may take to save its work before it is stopped. Without it, it gets no notice."""

AFTER_ANNOTATION = "gangsched.io/after"
"""What a gang waits for: `afterok:NAME,afterany:NAME`, jobs or PodGroups of its namespace."""

SERIES_ANNOTATION = "gangsched.io/series"
"""The series of a gang: `NAME:MAXRUNNING`. At most MAXRUNNING gangs of a series run at a time."""

STOP_ANNOTATION = "gangsched.io/stop-at"
"""Written by us on pods and PodGroups that are to be stopped, and by administrators on nodes: the
deadline (RFC 3339). A gang that asked for a grace may save its work until then."""

STOP_ANNOUNCED = "StopAnnounced"
"""The reason in the condition DisruptionTarget of an announced stop."""

PREEMPTED_ANNOTATION = "gangsched.io/preempted-at"
"""gangsched writes it on pods of preempted gangs, with the condition DisruptionTarget."""

TRACKING_ANNOTATION = "gangsched.io/tracking"
"""On a job: `on` or `off`, whether it gets a run on the tracking server."""

EXPERIMENT_ANNOTATION = "gangsched.io/tracking-experiment"
"""On a job: the name of the experiment of its run."""

RUN_ANNOTATION = "gangsched.io/tracking-run"
"""gangsched writes it on a job: the address of its run on the tracking server."""

RUN_OUTCOME_ANNOTATION = "gangsched.io/tracking-outcome"
"""gangsched writes it on a job that is over: the outcome that its run has on the server."""

JOB_ID_LABEL = "gangsched.io/job-id"
"""On jobs of `gangsched submit` and their pods: the number of the job."""

JOB_NAME_LABEL = "gangsched.io/job-name"
"""On jobs of `gangsched submit`: the name that their user gave them."""

ARRAY_LABEL = "gangsched.io/array-job-id"
"""On the tasks of an array job of `gangsched submit`: the number of the array job."""

TASK_LABEL = "gangsched.io/array-task-id"
"""On the tasks of an array job: the index of the task."""

GATE = "gangsched.io/gang"
WOKEN_ANNOTATION = "gangsched.io/woken-at"
"""gangsched writes it on a pod that kube-scheduler marked unschedulable: the change is a retry."""

NO_GATE_ANNOTATION = "gangsched.io/pinned"
"""On pods that our controllers create for a reserved node: the admission policy adds no gate."""

DEVICES_ANNOTATION = "gangsched.io/gpu-devices"
"""gangsched writes it when it binds a pod that shares GPUs: the indices of the GPUs on the node."""

MINIMUM_ANNOTATION = "gangsched.io/started-with"
"""gangsched writes it when it binds a pod: how many members of the gang had to start together."""

PROVISIONING_LABEL = "gangsched.io/provisioning"
"""gangsched writes it on the ProvisioningRequests and NodeClaims that it creates, and deletes no
others."""

PROVISIONED_GANG_ANNOTATION = "gangsched.io/gang"
"""gangsched writes it on a ProvisioningRequest, a NodeClaim or a placeholder pod: the gang that the
nodes are for."""

PLACEHOLDER_LABEL = "gangsched.io/placeholder"
PLACEHOLDERS_ANNOTATION = "gangsched.io/placeholders"
"""gangsched writes both on its placeholder pods: the annotation says how many belong together."""

PURCHASE_ANNOTATION = "gangsched.io/purchase"
"""gangsched writes it on a NodeClaim: how many nodes of each pool belong together (`p5=4`)."""

PRICE_ANNOTATION = "gangsched.io/price-per-hour"
"""What a node costs for an hour, in $."""

CLOSED_TAINT = "gangsched.io/closed"
"""Taint of a node that gangsched bought and that no pod may use: others are still to come, or it is
about to be given back."""

MIG_LABEL = "gangsched.io/mig"
MIG_DYNAMIC = "dynamic"
"""Label of a node: gangsched may repartition its idle GPUs (MIG)."""

MIG_LAYOUT_ANNOTATION = "gangsched.io/mig-layout"
"""gangsched writes it on a node that it repartitions: the layout of its nvidia.com/mig.config."""

INDEX_LABELS = (
    "gangsched.io/rank",
    "training.kubeflow.org/replica-index",
    "batch.kubernetes.io/job-completion-index",
    "leaderworkerset.sigs.k8s.io/worker-index",
    "apps.kubernetes.io/pod-index",
)
"""Labels with the index of a pod in its role."""

COSCHEDULING_LABEL = "scheduling.x-k8s.io/pod-group"
REPORTER = "gangsched"

REFUSAL_PREFIX = "gangsched:"
"""Begins every refusal of the extender: kube-scheduler copies it into conditions of pods."""
