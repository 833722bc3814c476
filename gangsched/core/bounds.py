"""The bounds of everything that users size, each with its reason and setting.

Code that reads, stores or computes such a thing takes the bound from here. docs/operations.md
lists all of them.
"""

from typing import Final, NamedTuple


class UpperBound(NamedTuple):
    """An upper bound: at most `most` of `what`; `setting` is the field that changes it, if any."""

    most: int
    what: str
    reason: str
    setting: str = ""


PODS_OF_GANG: Final = UpperBound(
    100_000,
    "pods of a gang, of all its roles",
    "the scheduler keeps some hundred bytes of memory for each",
)
ROLES: Final = UpperBound(64, "roles of a gang", "each role is placed separately")
KINDS: Final = UpperBound(
    64, "pods of a gang with different requirements", "each pod class is placed separately"
)
AMOUNT: Final = UpperBound(
    2**50,
    "units of one resource for a pod or a gang; a larger sum counts as this bound",
    "a sum of a thousand such amounts fits in 64 bits",
)
RESOURCES_OF_POD: Final = UpperBound(
    64, "resources that a pod requests", "the resources of a node are a row of an array"
)
DOMAINS_TRIED: Final = UpperBound(
    2048,
    "domains in which one search tries a gang, divided by the number of its pod classes",
    "each is filled with pods of all classes; the fullest and the emptiest domains are tried",
)
CUTS_TRIED: Final = UpperBound(
    16, "domains in which repartitioning GPUs is tried for one gang", "each trial is a plan"
)
CHANGES_TRIED: Final = UpperBound(
    32, "changes that are tried to find what prevents a gang from starting", "each trial is a plan"
)
SELECTOR_KEYS: Final = UpperBound(
    64, "label keys by which a pod selects nodes", "each key is compared on every node"
)
SELECTOR_VALUES: Final = UpperBound(
    1024,
    "conditions, and values of conditions, by which a pod selects nodes",
    "each is compared on every node, and stored with the pod",
)
TOLERATIONS: Final = UpperBound(128, "tolerations of a pod", "each is compared with every taint")
HOST_PORTS: Final = UpperBound(
    256, "host ports of a pod", "each is compared with the ports in use on every node"
)
NAME: Final = UpperBound(
    317, "characters of a name or a value in the requirements of a pod", "Kubernetes allows no more"
)
RESOURCES_OF_NODE: Final = UpperBound(
    256, "resources of a node", "each is a column of an array of all nodes"
)
PODS_OF_NODE: Final = UpperBound(
    8000, "pods of a node that are counted", "the sum of their requests fits in 64 bits"
)
SHARED_GPUS: Final = UpperBound(
    1024, "GPUs of which a pod may use shares", "no node has more, MIG instances included"
)
UNDISTURBED_S: Final = UpperBound(
    3_600,
    "seconds for which minRuntimeSeconds of a gang protects it from preemption",
    "lent quota has to be returned; minRuntimeSeconds of a Queue may be longer",
)
ASSIGNMENT_WITHOUT_PODS_S: Final = UpperBound(
    600,
    "seconds for which an assignment waits for pods that do not exist yet",
    "no other gang can use the capacity, and no ResourceQuota of the namespace counts it",
)
LATE_PODS_S: Final = UpperBound(
    3_600,
    "seconds for which a running gang keeps assignments for pods that are created later",
    "no other gang can use the capacity; the queue of the gang is charged for it",
)
NO_SHOW_S: Final = UpperBound(
    86_400,
    "seconds that a gang waits after its pods repeatedly were not created for their assignments",
    "the wait doubles each time, so that other gangs get the capacity",
)
GROUPS_OF_OBJECT: Final = UpperBound(
    1_000,
    "PodGroups of one RayCluster, LeaderWorkerSet or job that are read together with that object; "
    "further PodGroups count as they are written",
    "all of them are read again when the object changes",
)
PLANNED_PODS: Final = UpperBound(
    500_000,
    "pods of a namespace that are planned before they exist",
    "no ResourceQuota on the number of objects counts them",
    "planned_pods_max",
)
USERS_OF_QUEUE: Final = UpperBound(
    1000,
    "users of a queue without running gangs for which GPU time is stored; those with most are kept",
    "each takes memory, and a row of the status of the Queue",
)
SPENT_ROWS: Final = UpperBound(
    1000,
    "rows about GPU time in the status of a Queue, one for each user and budget",
    "an API object holds about a MiB",
)
LETTERS_OF_USER: Final = UpperBound(
    253,
    "characters of a user name; a longer name counts as unknown",
    "names are stored for a long time",
)
RUN_TIMES: Final = UpperBound(
    5_000,
    "names of gangs and of users with stored run times; the namespace with most loses its first",
    "they are stored in one ConfigMap",
)
HISTORY_LETTERS: Final = UpperBound(
    800_000,
    "characters of all stored run times",
    "a ConfigMap holds a MiB, and this one also has the requests that are set aside",
)
PAST_LETTERS: Final = UpperBound(
    500_000,
    "characters of the stored history of gangs (backfill reservations, back-off, excluded nodes); "
    "namespaces share the space in turn",
    "a ConfigMap holds a MiB",
)
SET_ASIDE: Final = UpperBound(
    100,
    "requests, and as many objects, that stay set aside after a restart; the oldest are dropped",
    "they are stored in one ConfigMap",
)
TOKENS_KNOWN: Final = UpperBound(
    1024,
    "cached tokens that may read /metrics, and as many that may not; the oldest are dropped first",
    "any pod may send tokens",
)
REVIEWS_WAITING: Final = UpperBound(
    64,
    "requests for /metrics that wait for a token review; further requests are rejected",
    "any pod may send tokens, and each costs a call to the API server",
)
BUDGETS: Final = UpperBound(
    100,
    "PodDisruptionBudgets of a namespace; with more, no gang of the namespace is moved",
    "they are read before each round of advice",
)
PODS_READ: Final = UpperBound(
    10_000,
    "pods of a namespace with PodDisruptionBudgets; with more, no gang of the namespace is moved",
    "they are read before each round of advice",
)
NAMESPACES_READ: Final = UpperBound(
    32,
    "namespaces with gangs that may be moved in one round of advice",
    "their PodDisruptionBudgets and pods are read before each round",
)

# -- job controllers ---------------------------------------------------------------------------

DOCUMENTS_A_STEP: Final = UpperBound(
    512,
    "objects that a controller creates, changes or deletes for one job before the next job's turn",
    "they are built in the event loop",
)
BYTES_A_STEP: Final = UpperBound(
    2 * 2**20,
    "bytes of the objects that a controller creates for one job before the next job's turn",
    "they are built in the event loop, and a template may have a megabyte",
)
JOBS_OF_JOBSET: Final = UpperBound(
    10_000, "Jobs of a JobSet", "all of them are examined when one of them changes"
)
CLAIMS_OF_JOBSET: Final = UpperBound(
    64, "volume claims that the Jobs of a JobSet share", "each is a volume of every pod"
)
PATCHES: Final = UpperBound(
    64,
    "overrides and patches of a TrainJob, and targets into which its runtime injects variables",
    "each is applied to every replicated job",
)
CONFIG_MAPS: Final = UpperBound(
    100, "ConfigMaps that the pods of a job read", "each is read before the job starts"
)
SENTENCE_LETTERS: Final = UpperBound(
    2_000, "characters of a message about an invalid job", "the message may quote the job"
)
STORAGE_URI_LETTERS: Final = UpperBound(
    2_048, "characters of a storageUri of a TrainJob", "it is a variable of a pod"
)
TOKEN_BYTES: Final = UpperBound(
    8_192,
    "bytes of a token in spec.initializer of a TrainJob",
    "the controller stores the tokens of a job in one Secret",
)
STORED_FILES: Final = UpperBound(
    100_000, "files of a data set or a model that an initializer fetches", "each is listed first"
)
STORED_BYTES: Final = UpperBound(
    2**41,
    "bytes of a data set or a model that an initializer fetches",
    "a store may send without end, and other pods may share the volume",
)
INITIALIZER_S: Final = UpperBound(
    86_400, "seconds in which an initializer has to fetch everything", "a store may never answer"
)
IGNORE_PATTERNS: Final = UpperBound(
    64, "ignore patterns of an initializer", "each is compared with every file"
)
CACHE_FILES: Final = UpperBound(
    10_000, "Parquet files of a data cache", "head and workers read the footer of each"
)
CACHE_GROUPS: Final = UpperBound(
    100_000, "row groups of a data cache", "head and workers keep the place of each"
)
CACHE_GROUP_BYTES: Final = UpperBound(
    2**30, "bytes of a row group of a data cache", "a worker reads a row group as a whole"
)
CACHE_ROW_BYTES: Final = UpperBound(
    2**26, "bytes of one row of a data cache", "a row is sent as one message"
)
CACHE_ANSWER_BYTES: Final = UpperBound(
    2**24,
    "bytes of one answer of a data cache, unless it is one row",
    "a reader uses an answer only when it has arrived as a whole",
)
CACHE_WORKERS: Final = UpperBound(
    64, "workers of a data cache", "each pod of the cache has the addresses of all workers"
)
CACHE_READERS: Final = UpperBound(
    65_536, "shares of a data cache", "more readers than rows have nothing to read"
)
CACHE_STREAMS: Final = UpperBound(
    64, "answers that a worker of a data cache sends at the same time", "each takes a thread"
)
CACHE_CALL_S: Final = UpperBound(
    30, "seconds of a call to a data cache", "a worker may end, or its node may be lost"
)
CACHE_WORKER_SILENT_S: Final = UpperBound(
    12,
    "seconds without a sign of life after which readers are not sent to a worker of a data cache",
    "its node may be lost",
)
CACHE_PATIENCE_S: Final = UpperBound(
    600,
    "seconds for which a reader of a data cache tries without getting a row",
    "the pods of the cache may be starting again",
)
VARIABLE_BYTES: Final = UpperBound(
    128 * 2**10 - 1,
    "bytes of a variable that lists the pods of a job (WORKER_ADDRS, TF_CONFIG)",
    "Linux starts no program with a longer variable",
)
HOSTS_BYTES: Final = UpperBound(
    2**19, "bytes of the host file of an MPI job", "a ConfigMap holds two host files"
)

# -- users' expressions, logs and searches -----------------------------------------------------

EVALUATORS: Final = UpperBound(
    2,
    "processes of a scheduler that read logs, match expressions of users, and run searches",
    "they share the machine with planning",
)
EVALUATION_S: Final = UpperBound(
    120,
    "seconds for the next points of a search, the log of a trial, or the patterns of a failed Job",
    "other evaluations wait for the process",
    "evaluation_s",
)
EVALUATION_MIB: Final = UpperBound(
    512,
    "MiB of memory of such a process",
    "both processes and the scheduler fit into the memory of the container",
    "evaluation_mib",
)
EVALUATION_TRIES: Final = UpperBound(
    3,
    "consecutive evaluations of one object that exceed the limit of time or memory",
    "the next one would exceed the limit too; the status of the object says so",
)
EXPRESSION_LETTERS: Final = UpperBound(
    1_000, "characters of an expression or a condition", "time and memory grow with its length"
)
PATTERNS: Final = UpperBound(
    32, "onJobFailureMessagePatterns of a JobSet", "each is matched with every failed Job"
)
MESSAGE_LETTERS: Final = UpperBound(
    1_024,
    "characters of the message of a Job that patterns are matched with",
    "an Event keeps as many",
)
FILTERS: Final = UpperBound(16, "filters of a metrics collector", "each is matched with every line")
METRICS: Final = UpperBound(
    32, "additional metrics of an objective", "the status has the values of each"
)
KEPT_VALUES: Final = UpperBound(
    200,
    "values of each metric that the status of a trial keeps; of more, as many at even distances",
    "the status has those of all its metrics",
)
CONDITION_STEPS: Final = UpperBound(
    8, "steps of the condition of a trial", "each reads the whole status of the job"
)
LOG_BYTES: Final = UpperBound(
    2**20,
    "bytes of the log of a trial; of a longer log the first and the last half of as many are read",
    "the log is read again each time",
)
LOG_LINES: Final = UpperBound(
    20_000,
    "lines of the log of a trial; of a longer log the first and the last half of as many are read",
    "each is matched with every filter",
)
LINE_LETTERS: Final = UpperBound(
    4_096,
    "characters of a line of a log; the rest is not read",
    "time may grow with the square of the length",
)
MATCHES_OF_LINE: Final = UpperBound(64, "values that a filter finds in one line", "each is stored")
FIRST_VALUES: Final = UpperBound(
    1_000,
    "first values of a metric that early stopping counts (start_step)",
    "each is stored",
)
TRIALS: Final = UpperBound(
    1_000, "trials of an Experiment", "all of them are examined when one of them changes"
)
PARAMETERS: Final = UpperBound(100, "parameters of a search", "every point has a value for each")
VALUES: Final = UpperBound(
    1_000, "values in the list of a parameter", "algorithms compare all of them"
)
CANDIDATES: Final = UpperBound(
    10_000, "n_ei_candidates, and initial points of a search", "all are drawn at once"
)
PATH_LETTERS: Final = UpperBound(
    1_024, "letters of the path of a trial's metrics or checkpoints", "Katib allows no longer one"
)
SUGGESTED_VALUES: Final = UpperBound(
    5_000, "values of parameters that a Suggestion lists", "all are in one object"
)
TEMPLATE_LETTERS: Final = UpperBound(
    65_536, "letters of the template of a trial in a ConfigMap", "it is read when it changes"
)
TRIAL_BYTES: Final = UpperBound(
    2**20,
    "characters of the job of a trial after its parameters are filled into the template",
    "the API server accepts no larger object",
)
METRIC_QUEUES: Final = UpperBound(
    2_000,
    "pairs of a kind of job and a queue in metrics of jobs; jobs of further pairs, and of queues "
    "that do not exist, are in the queue `other`",
    "Prometheus stores about 60 series for each",
)
METRIC_NAMESPACES: Final = UpperBound(
    100,
    "namespaces in the metrics `training_operator_jobs_*`: the first with jobs; the others are "
    "counted as `other`",
    "Prometheus stores some series for each",
    "job_metrics_namespaces",
)
METRIC_PODS: Final = UpperBound(
    10_000,
    "pods with GPUs in the metric `gangsched_pod_gpus`",
    "each is a series as long as it runs",
)
TRACKED_JOBS: Final = UpperBound(
    10_000,
    "jobs, experiments and trials of a namespace with runs on the tracking server at one time; "
    "further ones run without",
    "each is a record in memory and some calls",
)
TRACKING_BYTES: Final = UpperBound(
    2**20,
    "bytes of an answer of the tracking server; a longer one counts as a failure",
    "the server may be under the control of others",
)
RUN_TAG_LETTERS: Final = UpperBound(
    1_000, "characters of a tag of a run; the rest is cut", "MLflow stores no more than 5,000"
)
EXPERIMENT_LETTERS: Final = UpperBound(
    100,
    "characters of the experiment that a job names for its run",
    "it is sent to the tracking server, and to every pod",
)

BOUNDS: Final = {name: value for name, value in vars().items() if isinstance(value, UpperBound)}
