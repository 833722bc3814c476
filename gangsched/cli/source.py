"""The cluster or snapshot that a command reads, and the options that name it."""

import asyncio
import functools
import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangsched.cli.options import Config, Context, Kubeconfig, Snapshot
from gangsched.config import ConfigError, load_config
from gangsched.kube.client.access import Access

if TYPE_CHECKING:
    from gangsched.cli.cluster.view import ClusterView


@dataclass(frozen=True, slots=True)
class ClusterSource:
    """A cluster, or a snapshot in place of it, and the settings of its scheduler."""

    access: Access
    config: Path | None = None
    snapshot: Path | None = None

    def view(self, **changes: str) -> "ClusterView":
        """Read the cluster or the snapshot, with settings changed.

        Raises:
            ConfigError: the settings or the snapshot cannot be used.
            KubeError: the API server gave no answer.

        """
        from gangsched.cli.cluster.view import read_cluster, restore_view  # noqa: PLC0415 -- the solver is heavy
        from gangsched.plugins import load_policies  # noqa: PLC0415

        settings = load_config(self.config, **changes)
        policies = load_policies(settings)
        if self.snapshot is not None:
            return restore_view(self.snapshot, settings, policies)
        return asyncio.run(read_cluster(self.access, settings, policies))

    def namespace(self, given: str | None) -> str:
        """Return the namespace of names without one; a snapshot has no kubeconfig to name it."""
        if given is not None:
            return given
        return self.access.namespace() if self.snapshot is None else "default"

    def full_name(self, name: str, namespace: str | None) -> str:
        """Return NAMESPACE/NAME of a name that may lack its namespace.

        Raises:
            ConfigError: the name has a namespace, and `--namespace` is another.

        """
        own, slash, _ = name.partition("/")
        if not slash:
            return f"{self.namespace(namespace)}/{name}"
        if namespace not in (None, own):
            raise ConfigError(f"--namespace: {namespace!r} is not the namespace of {name!r}")
        return name


def local_history(access: Access) -> Path:
    """Return the history of a local control plane, which is beside its kubeconfig.

    Raises:
        ConfigError: there is none.
        KubeError: there is no kubeconfig.

    """
    kubeconfig = Path(access.file().partition(os.pathsep)[0]).expanduser()
    found = kubeconfig.parent / "history.db"
    if not found.is_file():
        raise ConfigError("history: name the --file of the setting `history`, or the --leader")
    return found


def with_source(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that has the options of a ClusterSource, not the parameter `source`."""

    def run(
        *,
        config: Config = None,
        kubeconfig: Kubeconfig = None,
        context: Context = None,
        snapshot: Snapshot = None,
        **own: Any,
    ) -> None:
        command(source=ClusterSource(Access(kubeconfig, context), config, snapshot), **own)

    given = inspect.signature(command).parameters.values()
    shared = inspect.signature(run).parameters.values()
    options = [option for option in given if option.name != "source"]
    options += [option for option in shared if option.kind is option.KEYWORD_ONLY]
    functools.update_wrapper(run, command)
    run.__annotations__ = {option.name: option.annotation for option in options}
    run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    return run
