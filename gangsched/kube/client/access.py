"""Cluster, credentials and namespace, as a kubeconfig says.

Credentials come from the `kubernetes` package, so every kind of kubeconfig and the in-cluster
account work.
"""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from gangsched.core.model.text import shown
from gangsched.imports import collecting_nothing
from gangsched.kube.client.errors import KubeError

if TYPE_CHECKING:
    from kubernetes.client import Configuration

_DEFAULT_FILE = "~/.kube/config"
_OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_CONTEXTS_SHOWN = 8
_SHAPELESS = (TypeError, AttributeError, KeyError)
"""Errors of the library for YAML that is no kubeconfig, beside its own error."""


@dataclass(frozen=True, slots=True)
class Access:
    """A kubeconfig and one of its contexts, by default those that kubectl or a pod would use."""

    kubeconfig: Path | None = None
    context: str | None = None

    def credentials(self) -> "Configuration":
        """Return the server and the credentials.

        Raises:
            KubeError: there is no kubeconfig, or it cannot be used.

        """
        library = _library()
        settings = library.client.Configuration()
        if self._in_cluster():
            with _understood("the pod's account"):
                library.config.load_incluster_config(client_configuration=settings)
            return settings
        file = self.file()
        with _understood(file):
            self._check_context(file)
            library.config.load_kube_config(file, self.context, client_configuration=settings)
        return settings

    def namespace(self) -> str:
        """Return the default namespace of names, as kubectl has it.

        Raises:
            KubeError: there is no kubeconfig, or it cannot be used.

        """
        if self._in_cluster():
            return _OWN_NAMESPACE.read_text().strip() if _OWN_NAMESPACE.exists() else "default"
        file = self.file()
        with _understood(file):
            self._check_context(file)
            contexts, current = _library().config.list_kube_config_contexts(file)
            chosen = next(
                (context for context in contexts if context["name"] == self.context), current
            )
            return str(chosen["context"].get("namespace") or "default")

    def _check_context(self, file: str) -> None:
        if self.context is None:
            return
        contexts, _ = _library().config.list_kube_config_contexts(file)
        names = [str(context["name"]) for context in contexts]
        if self.context not in names:
            listed = ", ".join(names[:_CONTEXTS_SHOWN])
            more = f" and {len(names) - _CONTEXTS_SHOWN} more" * (len(names) > _CONTEXTS_SHOWN)
            raise KubeError(
                0, f"--context: {shown(self.context)} does not exist; there are: {listed}{more}"
            )

    def file(self) -> str:
        """Return the kubeconfig, or several of them with colons between, as kubectl does.

        Raises:
            KubeError: there is none.

        """
        if self.kubeconfig is not None:
            if not self.kubeconfig.exists():
                raise KubeError(0, f"no usable kubeconfig: {self.kubeconfig} does not exist")
            return str(self.kubeconfig)
        given = os.environ.get("KUBECONFIG") or ""
        paths = given.split(os.pathsep) if given else [_DEFAULT_FILE]
        if any(Path(path).expanduser().exists() for path in paths if path):
            return given or _DEFAULT_FILE
        missing = f"KUBECONFIG names {shown(given)}, which" if given else _DEFAULT_FILE
        raise KubeError(
            0, f"no usable kubeconfig: {missing} does not exist; give --kubeconfig or KUBECONFIG"
        )

    def _in_cluster(self) -> bool:
        """Return whether this process runs in a pod without a kubeconfig."""
        if self.kubeconfig is not None or self.context is not None:
            return False
        given = os.environ.get("KUBECONFIG") or Path(_DEFAULT_FILE).expanduser().exists()
        return bool(os.environ.get("KUBERNETES_SERVICE_HOST")) and not given


@cache
def _library() -> Any:
    """Import the library, which takes 0.4 s: commands that ask no cluster do without."""
    with collecting_nothing():
        import kubernetes  # noqa: PLC0415
    return kubernetes


@contextlib.contextmanager
def _understood(subject: str) -> Iterator[None]:
    """Raise every error of a kubeconfig as a KubeError with one line."""
    try:
        yield
    except (
        _library().config.ConfigException,
        yaml.YAMLError,
        OSError,
        UnicodeDecodeError,
    ) as error:
        problem = " ".join(str(error).split())
        raise KubeError(0, f"no usable kubeconfig: {subject}: {problem}") from error
    except _SHAPELESS as error:
        raise KubeError(0, f"no usable kubeconfig: {subject} is none") from error
