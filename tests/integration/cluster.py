"""Helpers for tests on a real cluster: create, read, wait, and inject faults."""

import contextlib
import itertools
import json
import uuid
from collections.abc import Iterator

import yaml
from kubernetes import client, config, utils
from kubernetes.client.exceptions import ApiException
from kubernetes.watch import Watch
from own_commands import run_here
from reading import Reader
from waiting import ended, patience_s, stays, until

from gangsched.jobs.kubeflow.kinds import FRAMEWORKS
from gangsched.local.plane import client_environment

GPU = "nvidia.com/gpu"
OWN_KINDS = ("podgroups.gangsched.io", "queues.gangsched.io", "pytorchjobs", "jobsets", "trainjobs")
"""What is shown of a cluster where a test waited in vain, beside its pods."""
_SHOWN_LINES = 60
_numbers = itertools.count()


def plural(kind: str) -> str:
    """Return the plural of a kind."""
    return f"{kind.lower()}s"


_CLEARED = (
    *(f"{plural(kind)}.kubeflow.org" for kind in FRAMEWORKS),
    "trainjobs",
    "jobsets",
    "jobs.batch",
    "statefulsets",
    "pods",
    "podgroups.gangsched.io",
    "podgroups.scheduling.x-k8s.io",
)
"""What runs in a namespace. Owners come first: their controllers create deleted pods again."""


class QuickClient(client.ApiClient):
    """Reads objects in less than half the time.

    Upstream's makes a Configuration for every part of every object that it reads.
    """

    def _ApiClient__deserialize_model(self, data, klass):  # noqa: N802 -- it overrides a private one
        read = self._ApiClient__deserialize
        fields = (
            (klass.attribute_map[name], name, kind) for name, kind in klass.openapi_types.items()
        )
        given = {name: read(data[key], kind) for key, name, kind in fields if key in data}
        return klass(**given, local_vars_configuration=self.configuration)


class Cluster:
    """One control plane, seen through the official client."""

    def __init__(self, plane, binding: str) -> None:
        self.plane = plane
        self.binding = binding
        configuration = client.Configuration()
        config.load_kube_config(str(plane.kubeconfig), client_configuration=configuration)
        self.api = QuickClient(configuration)
        self.core = client.CoreV1Api(self.api)
        self.custom = client.CustomObjectsApi(self.api)
        self.reader = Reader(self.api)

    # -- namespaces ---------------------------------------------------------------------------

    def new_namespace(self) -> str:
        name = f"t{next(_numbers)}-{uuid.uuid4().hex[:6]}"
        self.core.create_namespace({"metadata": {"name": name}})
        self.wait(lambda: self._has_account(name), "the default service account")
        return name

    def _has_account(self, name: str) -> bool:
        accounts = self.items("serviceaccounts", "-n", name)
        return any(account["metadata"]["name"] == "default" for account in accounts)

    @contextlib.contextmanager
    def named_namespace(self, name: str) -> Iterator[str]:
        """Yield the namespace a guide uses, empty, and empty it afterwards.

        It stays: the API server takes ten seconds to remove one.
        """
        if name not in [one.metadata.name for one in self.core.list_namespace().items]:
            self.core.create_namespace({"metadata": {"name": name}})
        self.wait(lambda: self._has_account(name), "its account")
        yield name
        self.clear_namespace(name)
        kinds = "configmaps,persistentvolumeclaims,resourcequotas,services,secrets"
        self.kubectl("delete", "-n", name, "--all", kinds)

    def remove_namespace(self, name: str) -> None:
        """Delete everything in it and wait, so that no test eats another's room.

        From its own deletion on nothing can be made in it: no controller, however late it hears
        that an owner is gone, makes another pod once all were seen to be gone.
        """
        self.core.delete_namespace(name)
        self.clear_namespace(name)

    def clear_namespace(self, name: str) -> None:
        """Delete what runs in it, and wait until it is gone."""
        self.reader.delete_all(name, _CLEARED)
        self.wait(lambda: not self.items("pods", "-n", name), "the pods to go", 60)

    # -- objects ------------------------------------------------------------------------------

    def kubectl(self, *arguments: str, stdin: str | None = None, check: bool = True) -> str:
        command = [self.plane.info()["kubectl"], *arguments]
        done = ended(command, 60, stdin=stdin, env=client_environment(self.plane))
        if check and done.returncode:
            raise AssertionError(f"kubectl {' '.join(arguments)}: {done.stderr}")
        return done.stdout + (done.stderr if not check else "")

    def yaml(self, body: dict) -> str:
        """Write an object as a file for kubectl: JSON is YAML, and written without effort."""
        return json.dumps(body) + "\n"  # several are joined by ---

    def gangsched(self, *arguments) -> tuple[int, str]:
        """Run our own command in a terminal of 80 columns; return its exit code and output.

        It runs in this process: one of its own takes a minute to begin on busy cores.
        """
        return run_here(arguments, client_environment(self.plane) | {"COLUMNS": "80"})

    def apply(self, namespace: str, text: str) -> None:
        """Apply objects as `kubectl apply --server-side` does."""
        self.reader.apply(namespace, text)

    def create_all(self, text: str) -> None:
        for document in yaml.safe_load_all(text):
            utils.create_from_dict(self.api, document)

    def pod(self, namespace, name, *, gpus=8, labels=None, kind="kwok", **spec) -> None:
        """Create a pod of ours for KWOK nodes."""
        container = {
            "name": "main",
            "image": "none",
            "resources": {"limits": {GPU: str(gpus)}, "requests": {"cpu": "1"}},
        }
        body = {
            "metadata": {"name": name, "labels": labels or {}},
            "spec": {
                "schedulerName": "gangsched",
                "containers": [container],
                "nodeSelector": {"gangsched.io/node-kind": kind},
                "terminationGracePeriodSeconds": 0,
                **spec,
            },
        }
        self.core.create_namespaced_pod(namespace, body)

    def group(self, namespace, name, minimum=None, **spec) -> None:
        """Create a PodGroup of ours."""
        body = {
            "apiVersion": "gangsched.io/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": name},
            "spec": spec,
        }
        if minimum is not None:
            body["spec"]["minMember"] = minimum
        self.custom.create_namespaced_custom_object(
            "gangsched.io", "v1beta1", namespace, "podgroups", body
        )

    def gang(self, namespace, name, members, *, gpus=8, group=None, **pod) -> None:
        """Create a PodGroup (`group` are further fields of its spec) and its pods.

        It has all the time to start: one that a busy machine breaks would be planned anew.
        """
        spec = {"scheduleTimeoutSeconds": 3600, **(group or {})}
        self.group(namespace, name, members, **spec)
        for index in range(members):
            labels = {"gangsched.io/pod-group": name}
            self.pod(namespace, f"{name}-{index}", gpus=gpus, labels=labels, **pod)

    def get_group(self, namespace, name) -> dict:
        return self.custom.get_namespaced_custom_object(
            "gangsched.io", "v1beta1", namespace, "podgroups", name
        )

    def group_status(self, namespace, name) -> dict:
        try:
            return self.get_group(namespace, name).get("status") or {}
        except ApiException as error:
            if error.status == 404:
                return {}
            raise

    def watch_group(self, namespace, name, holds) -> dict:
        """Return the first status that a PodGroup has now or later, and for which `holds` is true.

        A state that passes by is seen too, however slow whoever asks is.
        """
        groups = (self.custom.list_namespaced_custom_object, "gangsched.io", "v1beta1", namespace)
        within_s = int(patience_s(30))
        for event in Watch().stream(*groups, "podgroups", timeout_seconds=within_s):
            body = event["object"]
            if body["metadata"]["name"] == name and holds(body.get("status") or {}):
                return body["status"]
        raise AssertionError(f"waited {within_s} s in vain for {name}\n{self.shown()}")

    def condition(self, namespace, name) -> dict:
        """Return the Scheduled condition of a PodGroup."""
        return (self.group_status(namespace, name).get("conditions") or [{}])[0]

    def bound(self, namespace, prefix="") -> dict[str, str]:
        """Return pod name -> node of the pods that are bound."""
        return {
            pod["metadata"]["name"]: pod["spec"]["nodeName"]
            for pod in self.items("pods", "-n", namespace)
            if pod["spec"].get("nodeName") and pod["metadata"]["name"].startswith(prefix)
        }

    def events(self, namespace, name=None) -> list[tuple[str, str]]:
        return [
            (event.get("reason", ""), event.get("message", ""))
            for event in self.items("events", "-n", namespace)
            if name is None or event["involvedObject"]["name"] == name
        ]

    def wait_event(self, namespace, reason, message="", name=None) -> None:
        """Wait for an Event; they are written after the deed they tell of."""
        self.wait(
            lambda: any(r == reason and message in m for r, m in self.events(namespace, name)),
            f"the Event {reason} {message}",
        )

    def create_job(self, namespace, body) -> None:
        """Create a training job of any kind."""
        group, version = body["apiVersion"].split("/")
        self.custom.create_namespaced_custom_object(
            group, version, namespace, plural(body["kind"]), body
        )

    def patch_job(self, namespace, name, body, kind="PyTorchJob") -> None:
        self.custom.patch_namespaced_custom_object(
            "kubeflow.org", "v1", namespace, plural(kind), name, body
        )

    def job(self, namespace, name, kind="PyTorchJob") -> dict | None:
        try:
            return self.custom.get_namespaced_custom_object(
                "kubeflow.org", "v1", namespace, plural(kind), name
            )
        except ApiException as error:
            if error.status == 404:
                return None
            raise

    def conditions(self, namespace, name, kind="PyTorchJob") -> dict[str, dict]:
        """Return a job's conditions by type."""
        job = self.job(namespace, name, kind) or {}
        return {c["type"]: c for c in (job.get("status") or {}).get("conditions") or []}

    def is_true(self, namespace, name, condition, kind="PyTorchJob") -> bool:
        found = self.conditions(namespace, name, kind)
        return found.get(condition, {}).get("status") == "True"

    # -- waiting and judging ------------------------------------------------------------------

    def wait(self, ready, what, timeout_s=30.0):
        """Wait until `ready` returns something true; `timeout_s` is for a quick, idle machine."""
        return until(lambda: self._answer(ready), what, timeout_s, shown=self.shown)

    def _answer(self, ready):
        """Return what `ready` does, or None where the API server cannot answer now."""
        try:
            return ready()
        except ApiException as error:
            if error.status not in (429, 500, 503):
                raise
        except OSError:
            pass  # the API server is being restarted
        except Exception as error:
            if "urllib3" not in type(error).__module__:
                raise
        return None

    def shown(self) -> str:
        """Return what a reader needs when something did not come: objects, Events and logs."""
        kinds = f"{','.join(OWN_KINDS)},pods"
        looks = (
            ("get", kinds, "-A", "--ignore-not-found", "-o", "wide"),
            ("get", "events", "-A", "--sort-by=.metadata.creationTimestamp", "--no-headers"),
        )
        parts = []
        for look in looks:
            said = self.kubectl(*look, check=False).splitlines()
            parts.append("\n".join(said[-_SHOWN_LINES:]))
        return "\n\n".join([*parts, self.tails()])

    def tails(self) -> str:
        """Return the last words of gangsched, which may run in pods of the cluster itself."""
        ours = sorted(path.stem for path in self.plane.programs.logs.glob("gangsched*.log"))
        if ours:
            return "\n\n".join(f"{name}:\n{self.plane.programs.tail(name, 25)}" for name in ours)
        here = ("-n", "gangsched-system")
        names = self.kubectl("get", "pods", *here, "-o", "name").split()
        logs = (self.kubectl("logs", *here, n, "--tail=12", check=False) for n in names)
        return "\n".join(f"{name}:\n{text}" for name, text in zip(names, logs, strict=True))

    def wait_placed(self, namespace, prefix, count, timeout_s=30.0) -> dict[str, str]:
        return self.wait(
            lambda: (b := self.bound(namespace, prefix)) and len(b) >= count and b,
            f"{count} pods {prefix}* to be bound",
            timeout_s,
        )

    def overcommitted(self) -> list[str]:
        """Return nodes that hold more GPUs than they have, from the API alone."""
        has = {
            node["metadata"]["name"]: int(node["status"]["allocatable"].get(GPU, "0"))
            for node in self.items("nodes")
        }
        used: dict[str, int] = {}
        for pod in self.items("pods", "-A"):
            node = pod["spec"].get("nodeName")
            if node and pod["status"]["phase"] not in ("Succeeded", "Failed"):
                for container in pod["spec"]["containers"]:
                    requests = container.get("resources", {}).get("requests", {})
                    used[node] = used.get(node, 0) + int(requests.get(GPU, "0"))
        return [name for name, total in used.items() if total > has.get(name, total)]

    def stays(self, holds, seconds, what) -> None:
        """Check that something stays true for a while."""
        assert stays(holds, seconds), what

    # -- breaking things ----------------------------------------------------------------------

    def restart(self, program: str, *, hard: bool = False) -> None:
        self.plane.programs.restart(program, hard=hard)

    def metrics(self) -> str:
        import urllib.request

        with urllib.request.urlopen(self.plane.info()["metrics"], timeout=patience_s(20)) as answer:
            return answer.read().decode()

    def count(self, series: str) -> float:
        """Return the sum of the metrics that begin with a text, as gangsched has them now."""
        lines = [line for line in self.metrics().splitlines() if line.startswith(series)]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)

    def json(self, *words: str) -> dict:
        """Return an object, or a list, of the words after `kubectl get`."""
        return self.reader.get(*words)

    def items(self, *words: str) -> list[dict]:
        """Return the objects of a list: those of the official client take long to make."""
        return self.json(*words)["items"]
