"""How much of everything a user may ask for: each bound, why it is there, and who may change it.

Whoever reads, keeps or computes what a user sized takes its bound from here. docs/operations.md
lists them all.
"""

from typing import Final, NamedTuple


class Bound(NamedTuple):
    """At most `most` of something; a `setting` is the field of the configuration to change it."""

    most: int
    what: str
    reason: str
    setting: str = ""


PODS_OF_GANG: Final = Bound(
    100_000,
    "pods of a gang, of all its roles",
    "each is kept in memory, some hundred bytes",
)
ROLES: Final = Bound(64, "roles of a gang", "each is placed for itself")
KINDS: Final = Bound(
    64, "pods of a gang that ask for different things", "each kind is placed for itself"
)
AMOUNT: Final = Bound(
    2**50,
    "of one resource for a pod, or for a gang; a sum beyond it counts as this much",
    "sums of a thousand of them fit in 64 bits",
)
RESOURCES_OF_POD: Final = Bound(
    64, "resources that a pod asks for by name", "a node's resources are a row of an array"
)
DOMAINS_TRIED: Final = Bound(
    2048,
    "domains that a gang is tried in at a time, shared by its kinds of pods",
    "pods of several kinds are filled into each; the tightest and the roomiest are tried",
)
CUTS_TRIED: Final = Bound(
    16, "domains whose GPUs are thought to be cut anew for one gang", "each is a plan of its own"
)
CHANGES_TRIED: Final = Bound(
    32, "changes tried to say what keeps a gang from starting", "each is a plan of its own"
)
SELECTOR_KEYS: Final = Bound(
    64, "label keys that a pod selects nodes by", "each key is compared on every node"
)
SELECTOR_VALUES: Final = Bound(
    1024,
    "conditions, and values of conditions, that a pod selects nodes by",
    "each is compared on every node, and all of them are kept with the pod",
)
TOLERATIONS: Final = Bound(128, "tolerations of a pod", "each is compared with every taint")
HOST_PORTS: Final = Bound(
    256, "ports of its node that a pod takes", "they are compared with those taken on every node"
)
NAME: Final = Bound(
    317, "letters of a name or a value that a pod asks by", "Kubernetes itself allows no more"
)
RESOURCES_OF_NODE: Final = Bound(
    256, "resources of a node", "each is a column for the nodes of the whole cluster"
)
PODS_OF_NODE: Final = Bound(
    8000, "pods of a node that are counted", "the sum of what they ask for fits in 64 bits"
)
SHARED_GPUS: Final = Bound(
    1024, "GPUs that a pod may take shares of", "no node has more, also cut by MIG"
)
UNDISTURBED_S: Final = Bound(
    3_600,
    "seconds that a gang's own minRuntimeSeconds keeps it from being stopped for others",
    "what is lent has to come back; a Queue may say more",
)
ROOM_WITHOUT_PODS_S: Final = Bound(
    600,
    "seconds that room is reserved for pods that do not exist yet",
    "nobody else can use it meanwhile, and no quota of its namespace counts it",
)
LATE_ROOM_S: Final = Bound(
    3_600,
    "seconds that a gang which runs keeps room for those of its pods that are made later",
    "others cannot use the room meanwhile; its queue is charged for it",
)
NO_SHOW_S: Final = Bound(
    86_400,
    "seconds that a gang waits whose pods did not come, again and again, to their reserved room",
    "the wait doubles each time, so that the room goes to others",
)
GROUPS_OF_OBJECT: Final = Bound(
    1_000,
    "PodGroups of one RayCluster, LeaderWorkerSet or job that are read with what it says; further "
    "ones count as they are written",
    "all of them are read again when the object changes",
)
PLANNED_PODS: Final = Bound(
    500_000,
    "pods of a namespace that are planned before they exist",
    "no quota on objects counts them",
    "planned_pods_max",
)
USERS_OF_QUEUE: Final = Bound(
    1000,
    "users of a queue, who hold nothing now, whose GPU time is kept: of those who spent most",
    "each is kept in memory, and is a row of the Queue's status",
)
SPENT_ROWS: Final = Bound(
    1000,
    "rows of a Queue's status about GPU time, one for each user and budget",
    "an object of the API holds about a MiB",
)
LETTERS_OF_USER: Final = Bound(
    253, "letters of a user's name; one that is longer counts as not known", "it is kept for long"
)
RUN_TIMES: Final = Bound(
    5_000,
    "names of gangs, and of users, whose run times are kept; a namespace with most loses first",
    "they are kept in one ConfigMap",
)
HISTORY_LETTERS: Final = Bound(
    800_000,
    "letters of all run times that are kept",
    "a ConfigMap holds a MiB, with what is set aside",
)
PAST_LETTERS: Final = Bound(
    500_000,
    "letters of what gangs have been through (promises, back-off, excluded nodes) that are kept; "
    "namespaces have room in turn",
    "a ConfigMap holds a MiB",
)
SET_ASIDE: Final = Bound(
    100,
    "requests, and as many objects, that are set aside across restarts; the oldest go first",
    "one ConfigMap keeps them all",
)
TOKENS_KNOWN: Final = Bound(
    1024,
    "tokens that may read /metrics, and as many that may not, that are remembered; the oldest go",
    "any pod may send tokens",
)
REVIEWS_WAITING: Final = Bound(
    64,
    "requests for /metrics that wait for the review of their token; further ones are refused",
    "any pod may send tokens, and each costs a call of the API server",
)
BUDGETS: Final = Bound(
    100,
    "PodDisruptionBudgets of a namespace; beyond it no gang of the namespace is moved",
    "they are read before each round of advice",
)
PODS_READ: Final = Bound(
    10_000,
    "pods of a namespace with PodDisruptionBudgets; beyond it no gang of the namespace is moved",
    "they are read before each round of advice",
)
NAMESPACES_READ: Final = Bound(
    32,
    "namespaces whose gangs may be moved in one round of advice",
    "their PodDisruptionBudgets and pods are read before it",
)

# -- job controllers ---------------------------------------------------------------------------

DOCUMENTS_A_STEP: Final = Bound(
    512,
    "objects that a controller makes, changes or deletes for one job before others have their turn",
    "they are built in the event loop",
)
BYTES_A_STEP: Final = Bound(
    2 * 2**20,
    "bytes of the objects that a controller makes for one job before others have their turn",
    "they are built in the event loop, and a template may have a megabyte",
)
JOBS_OF_JOBSET: Final = Bound(
    10_000, "Jobs of a JobSet", "all of them are looked at when one of them changes"
)
CLAIMS_OF_JOBSET: Final = Bound(
    64, "volume claims that the Jobs of a JobSet share", "each is a volume of every pod"
)
PATCHES: Final = Bound(
    64,
    "overrides and patches of a TrainJob, and targets into which its runtime injects variables",
    "each is laid over every replicated job",
)
CONFIG_MAPS: Final = Bound(
    100, "ConfigMaps that the pods of a job read", "each is asked for before the job begins"
)
SENTENCE_LETTERS: Final = Bound(
    2_000, "letters of a sentence that says what is wrong with a job", "it may quote the job"
)
VARIABLE_BYTES: Final = Bound(
    128 * 2**10 - 1,
    "bytes of a variable that lists a job's pods (WORKER_ADDRS, TF_CONFIG)",
    "Linux starts no program with a longer one",
)
HOSTS_BYTES: Final = Bound(
    2**19, "bytes of the host file of an MPI job", "a ConfigMap holds two of them"
)

# -- users' expressions, logs and searches -----------------------------------------------------

EVALUATORS: Final = Bound(
    2,
    "processes that read logs, match users' expressions and search, of a scheduler",
    "they share the machine with planning",
)
EVALUATION_S: Final = Bound(
    120,
    "seconds for the next points of a search, for a trial's log, or for a failed Job's patterns",
    "others wait for the process",
    "evaluation_s",
)
EVALUATION_MIB: Final = Bound(
    512,
    "MiB of memory of such a process",
    "both, and the scheduler, fit into the memory of its container",
    "evaluation_mib",
)
EVALUATION_TRIES: Final = Bound(
    3,
    "times in a row that an evaluation of one object may pass its time or memory",
    "it would pass them again, and its object is told so",
)
EXPRESSION_LETTERS: Final = Bound(
    1_000, "letters of an expression or a condition", "time and memory grow with them"
)
PATTERNS: Final = Bound(
    32, "onJobFailureMessagePatterns of a JobSet", "each is matched with every failed Job"
)
MESSAGE_LETTERS: Final = Bound(
    1_024, "letters of a Job's message that patterns are matched with", "as many as Events keep"
)
FILTERS: Final = Bound(16, "filters of a metrics collector", "each is matched with every line")
METRICS: Final = Bound(32, "further metrics of an objective", "each has its values in the status")
CONDITION_STEPS: Final = Bound(
    8, "steps of a trial's condition", "each walks through the status of the trial's job"
)
LOG_BYTES: Final = Bound(
    2**20,
    "bytes of a trial's log; of a longer one the first and the last half of as many are read",
    "it is read again at every look",
)
LOG_LINES: Final = Bound(
    20_000,
    "lines of a trial's log; of a longer one the first and the last half of as many are read",
    "each is matched with every filter",
)
LINE_LETTERS: Final = Bound(
    4_096, "letters of a line of a log; the rest is not read", "time may grow with their square"
)
MATCHES_OF_LINE: Final = Bound(64, "values that a filter finds in one line", "each is kept")
FIRST_VALUES: Final = Bound(
    1_000,
    "first values of a metric that early stopping counts (start_step)",
    "they are kept one by one",
)
TRIALS: Final = Bound(
    1_000, "trials of an Experiment", "all of them are looked at when one of them changes"
)
PARAMETERS: Final = Bound(100, "parameters of a search", "every point has a value of each")
VALUES: Final = Bound(1_000, "values that a parameter lists", "algorithms weigh each of them")
CANDIDATES: Final = Bound(
    10_000, "n_ei_candidates, and points that a search begins with", "all are drawn at once"
)
TRIAL_BYTES: Final = Bound(
    2**20,
    "letters of a trial's job once its parameters stand in the template",
    "the API server takes no larger object",
)

BOUNDS: Final = {name: value for name, value in vars().items() if isinstance(value, Bound)}
