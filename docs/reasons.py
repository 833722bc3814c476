"""The meaning and the remedy of each reason of a refusal, printed by docs/reference.py."""

from gangsched.core.model.refusal import Reason

REASONS: dict[Reason, tuple[str, str]] = {
    Reason.NO_GROUP: (
        "The pods name a group that does not exist in their namespace.",
        "Create the group, or correct the label or annotation of the pods.",
    ),
    Reason.TOO_FEW_PODS: (
        "Fewer pods exist than the gang needs at least.",
        "Wait for the controller that creates the pods; check its quota and its Events.",
    ),
    Reason.GATED: (
        "A pod of the gang has a scheduling gate of another controller.",
        "The controller that set the gate has to remove it.",
    ),
    Reason.UNKNOWN_QUEUE: (
        "The gang names a Queue that does not exist.",
        "Correct the name, or create the Queue.",
    ),
    Reason.UNSATISFIABLE: (
        "No node qualifies for a pod, even when the cluster is empty.",
        "Correct the selector, tolerations or request that the sentence names.",
    ),
    Reason.TOO_LARGE: (
        "The gang needs more than the cluster has when it is empty.",
        "Request fewer pods or smaller pods, or add nodes.",
    ),
    Reason.NOT_ENOUGH_FREE: (
        "The free capacity of a resource is too small now.",
        "Wait, or apply a remedy; `gangsched explain` says when the gang starts.",
    ),
    Reason.TOPOLOGY: (
        "The cluster has enough free capacity, but no domain that the gang may use has it.",
        "Wait, or request a wider level or a looser spread.",
    ),
    Reason.MISCONFIGURED: (
        "A field or annotation of the gang cannot be used.",
        "Correct the field that the sentence names.",
    ),
    Reason.FREEING_CAPACITY: (
        "GPUs are being repartitioned, or preempted and moved gangs terminate.",
        "Nothing: the freed capacity belongs to this gang.",
    ),
    Reason.BEYOND_PLANNER: (
        "A pod uses a constraint that direct binding does not check.",
        "Run gangsched with `--binding extender`, or remove the constraint.",
    ),
    Reason.BACKING_OFF: (
        "An attempt to start the gang failed a moment ago.",
        "Nothing: the gang is tried again after the back-off; the sentence names the failure.",
    ),
    Reason.QUEUE_INVALID: (
        "The Queue, or a Queue above it, cannot be read.",
        "Correct the Queue; its condition `Ready` names the field.",
    ),
    Reason.QUEUE_STOPPED: (
        "An administrator put the Queue on hold.",
        "Remove `stop` from the Queue.",
    ),
    Reason.NOT_PERMITTED: (
        "The Queue does not admit this namespace, priority class or request.",
        "Use another Queue, or change `namespaces`, `maxPriorityClassName` or `exclusive`.",
    ),
    Reason.QUOTA_IN_USE: (
        "The quota that the Queue may use is in use.",
        "Wait, raise `nominal` or `borrowingLimit`, or let the Queue preempt.",
    ),
    Reason.LARGER_THAN_QUOTA: (
        "The gang needs more than the Queue can ever use.",
        "Request less, or raise `nominal` or `borrowingLimit`.",
    ),
    Reason.MAY_NOT_BORROW: (
        "The gang is not preemptible, and would run on borrowed quota.",
        "Make it preemptible, or set `nonPreemptibleMayBorrow` in the Queue.",
    ),
    Reason.NAMESPACE_QUOTA: (
        "A ResourceQuota of the namespace leaves too little.",
        "Raise that ResourceQuota, or wait for other pods of the namespace.",
    ),
    Reason.NOT_ADMITTED: (
        "A change of a running gang (its queue, its own domains) is not admitted.",
        "The gang continues as before; the change is tried again every `retry_interval_s`.",
    ),
    Reason.USER_LIMIT: (
        "The user's limit in the Queue is in use.",
        "Wait for the user's other gangs, or raise `userLimits`.",
    ),
    Reason.BUDGET: (
        "The budget of the Queue or the user is spent.",
        "Wait for the next period, which the sentence names, or raise the budget.",
    ),
    Reason.BOOKED: (
        "The free nodes belong to an advance reservation that starts before the gang would end.",
        "Wait, or set `expectedRuntimeSeconds` so that the gang ends before.",
    ),
    Reason.BEHIND: (
        "The gang would delay the backfill reservation of a gang ahead of it.",
        "Wait, or set a smaller `expectedRuntimeSeconds` if it is true.",
    ),
    Reason.BLOCKED: (
        "The Queue is strict FIFO, and a gang ahead cannot start yet.",
        "Look at that gang; `strict: false` lets later gangs pass.",
    ),
    Reason.DEPENDENCY: (
        "The gang waits for other gangs, or for a job or PodGroup that does not exist yet.",
        "Wait, create the job that the sentence names, or change the dependency.",
    ),
    Reason.DEPENDENCY_NEVER_MET: (
        "A gang that it waits for ended otherwise, or gangs wait for each other.",
        "Run the other job again under its name, or change the dependency.",
    ),
    Reason.SERIES_FULL: (
        "As many gangs of its series run as may run at a time.",
        "Wait, or raise `maxRunning` of the series.",
    ),
    Reason.GIVEN_UP: (
        "The gang failed to become ready `ready_tries` times.",
        "Look at the logs of its pods, and submit it again.",
    ),
    Reason.PLAN_FAILED: (
        "A policy broke its contract, or planning this gang took too long.",
        "See the alert GangschedPlanFails; another placer may place the gang.",
    ),
}
"""For each reason: the meaning, and the next step."""

REMEDIES = {
    "level": "a wider level of the topology",
    "members": "fewer pods",
    "spread": "more pods in one domain",
    "exclusive": "domains that other gangs may use too",
    "gpu-kind": "another GPU type",
    "avoid": "nodes that the gang excludes",
    "node": "more of a resource on one node",
    "wait": "nothing: capacity or quota comes free at the time given",
    "move": "running gangs moved to other nodes",
}
"""For each kind of remedy: what it changes."""
