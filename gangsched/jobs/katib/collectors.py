"""The container that collects a trial's metrics, where they are not lines of the trial's log.

Katib's sidecars write to a database. This one prints NAME=VALUE, and its log is read like that of a
trial. It is a container of the kind that ends with the pod (KEP-753), in the image of the trial.
"""

import copy
import posixpath
from dataclasses import dataclass
from typing import Any

from gangsched.core.bounds import PATH_LETTERS
from gangsched.core.model.text import shown
from gangsched.jobs.common.model import Json
from gangsched.jobs.katib.pod_templates import containers, pod_templates

CONTAINER = "metrics-logger-and-collector"
"""Katib's name of the container."""

PRINTED = r"^(.+)=([^=]+)$"
"""Matches what the container prints: a name may have any letters."""

PUSH_HOST = "katib-db-manager.kubeflow"
"""The address to which Katib's client reports metrics; in a trial's pod, it is the pod itself."""

TRIAL_VARIABLE = "KATIB_TRIAL_NAME"
_FROM_LOG = ("", "StdOut", "None")
_FILE, _EVENTS = "/var/log/katib/metrics.log", "/var/log/katib/tfevent/"
_PORT, _PATH = 8080, "/metrics"
_LARGEST_PORT = 65_535
_VOLUME = "metrics-volume"
_STARTED = "/tmp/metrics-collector-started"  # noqa: S108 -- of the container
_BEGIN = f"""\
export STARTED={_STARTED}
over= child=
finish() {{
  over=yes
  [ "$child" ] || return 0
  while [ ! -e "$STARTED" ] && kill -0 $child; do sleep 0.1; done
  kill -TERM $child
}}
trap finish TERM
rm -f "$STARTED"
(trap "" TERM; exec python3 -c "$0" "$@") &
child=$!
[ ! "$over" ] || finish
wait $child
code=$?
if [ "$over" ]; then wait $child; code=$?; fi
exit $code
"""
"""Starts the program, and sends it the signal to end only when it can take it: a trial may be over
before Python has started, or before the shell has started Python."""

_PROBE: Json = {
    "exec": {"command": ["test", "-e", _STARTED]},
    "periodSeconds": 1,
    "failureThreshold": 120,
}
"""The trial begins when the program runs: it may report metrics at once."""

_SMALL: Json = {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "128Mi"}}


@dataclass(frozen=True, slots=True)
class MetricsSidecar:
    """What a trial's container of metrics does: its arguments, and the folder that it reads."""

    kind: str
    arguments: tuple[str, ...] = ()
    folder: str = ""
    custom: Json | None = None

    @property
    def container(self) -> str:
        """Return the name of the container, or nothing if there is none."""
        if self.custom is not None:
            return str(self.custom.get("name") or CONTAINER)
        return CONTAINER if self.arguments else ""

    @property
    def prints_names(self) -> bool:
        """Return whether it prints NAME=VALUE, and not the lines of a file."""
        return bool(self.arguments) and self.arguments[0] != "text"


def sidecar_of(collector: Json | None) -> MetricsSidecar:
    """Return what a trial's metricsCollector asks for.

    Raises:
        ValueError: a field is wrong; the message is a clause that begins with it.

    """
    collector = collector or {}
    given: Json = collector.get("collector") or {}
    source: Json = collector.get("source") or {}
    place: Json = source.get("fileSystemPath") or {}
    kind = str(given.get("kind") or "")
    match kind:
        case _ if kind in _FROM_LOG:
            return MetricsSidecar(kind)
        case "File":
            path = _checked(place, _FILE, "File")
            form = "json" if place.get("format") == "JSON" else "text"
            return MetricsSidecar(kind, (form, path), posixpath.dirname(path))
        case "TensorFlowEvent":
            path = _checked(place, _EVENTS, "Directory")
            return MetricsSidecar(kind, ("events", path), path)
        case "PrometheusMetric":
            return MetricsSidecar(kind, ("prometheus", _page(source.get("httpGet") or {})))
        case "Push":
            return MetricsSidecar(kind, ("push",))
        case "Custom":
            custom = given.get("customCollector")
            if not isinstance(custom, dict) or not custom.get("image"):
                raise ValueError("collector.customCollector is missing; it is a container")
            folder = ""
            if place:
                path = _checked(place, _FILE, str(place.get("kind") or "File"))
                folder = path if place.get("kind") == "Directory" else posixpath.dirname(path)
            return MetricsSidecar(kind, (), folder, custom)
    raise ValueError(
        f"collector.kind is {shown(kind)}; allowed are: StdOut, File, TensorFlowEvent, "
        f"PrometheusMetric, Push, Custom, None"
    )


def _checked(place: Json, default: str, kind: str) -> str:
    """Return the path of a file or folder.

    Raises:
        ValueError: it is none that a pod can share between containers.

    """
    path: Any = place.get("path") or default
    given = place.get("kind") or kind
    if given != kind:
        raise ValueError(f"source.fileSystemPath.kind is {shown(given)}; it must be {kind}")
    parent = path if kind == "Directory" else posixpath.dirname(str(path))
    if (
        not isinstance(path, str)
        or len(path) > PATH_LETTERS.most
        or not path.startswith("/")
        or ".." in path.split("/")
        or ":" in path
        or parent.strip("/") == ""
    ):
        raise ValueError(
            f"source.fileSystemPath.path is {shown(path)}; it must be an absolute path below a "
            f"folder, without '..' and ':'"
        )
    return path


def _page(get: Json) -> str:
    port: Any = get.get("port") or _PORT
    number = int(port) if str(port).isdecimal() and len(str(port)) <= len(str(_LARGEST_PORT)) else 0
    if not 0 < number <= _LARGEST_PORT:
        raise ValueError(f"source.httpGet.port is {shown(port)}; it must be a number below 65536")
    path: Any = get.get("path") or _PATH
    if not isinstance(path, str) or not path.startswith("/") or len(path) > PATH_LETTERS.most:
        raise ValueError(f"source.httpGet.path is {shown(path)}; it must begin with '/'")
    return f"http://127.0.0.1:{number}{path}"


def with_collector(job: Json, trial: Json, program: str) -> Json:
    """Return a trial's job with the container that collects its metrics, if it needs one.

    Args:
        job: the job.
        trial: the Trial.
        program: the text of the program that collects.

    Raises:
        ValueError: a field of the trial is wrong.

    """
    spec, name = trial["spec"], trial["metadata"]["name"]
    sidecar = sidecar_of(spec.get("metricsCollector"))
    if not sidecar.container:
        return job
    job = copy.deepcopy(job)
    for pod in pod_templates(job):
        for container in containers(pod, spec.get("primaryContainerName")):
            _beside(pod, container, sidecar, name, program)
    return job


def _beside(pod: Json, container: Json, sidecar: MetricsSidecar, trial: str, program: str) -> None:
    collector = sidecar.custom or {
        "name": CONTAINER,
        "image": container.get("image", ""),
        "command": ["sh", "-c", _BEGIN, program, *sidecar.arguments],
        "startupProbe": _PROBE,
        "resources": _SMALL,
    }
    if sidecar.custom is None and (context := container.get("securityContext")):
        collector["securityContext"] = {**context, "readOnlyRootFilesystem": False}
    collector = {**collector, "name": sidecar.container, "restartPolicy": "Always"}
    if sidecar.folder:
        mount = {"name": _VOLUME, "mountPath": sidecar.folder}
        pod["volumes"] = [*(pod.get("volumes") or []), {"name": _VOLUME, "emptyDir": {}}]
        for both in (container, collector):
            both["volumeMounts"] = [*(both.get("volumeMounts") or []), mount]
    if sidecar.kind == "Push":
        aliases = pod.get("hostAliases") or []
        pod["hostAliases"] = [*aliases, {"ip": "127.0.0.1", "hostnames": [PUSH_HOST]}]
        known = container.get("env") or []
        container["env"] = [*known, {"name": TRIAL_VARIABLE, "value": trial}]
    pod["initContainers"] = [collector, *(pod.get("initContainers") or [])]
