"""Options that several commands have."""

from pathlib import Path
from typing import Annotated

import typer

from gangsched.config import POLICY_GROUPS, ConfigError

_OUTPUTS = ("table", "json", "yaml")


def _known(output: str) -> str:
    if output not in _OUTPUTS:
        raise ConfigError(f"--output: {output!r} is not allowed; use table, json or yaml")
    return output


Output = Annotated[
    str,
    typer.Option(
        "--output",
        "-o",
        help="table, json or yaml",
        callback=_known,
        autocompletion=lambda: list(_OUTPUTS),
    ),
]
Config = Annotated[Path | None, typer.Option(help="YAML file of settings")]
Kubeconfig = Annotated[Path | None, typer.Option(help="default: as kubectl finds it")]
Context = Annotated[
    str | None, typer.Option(help="one of the kubeconfig's; default: the current one")
]
Namespace = Annotated[
    str | None, typer.Option("--namespace", "-n", help="default: that of the context")
]
Home = Annotated[str, typer.Option("--namespace", "-n", help="where gangsched is installed")]
Snapshot = Annotated[
    Path | None, typer.Option(help="what `gangsched snapshot` wrote, in place of the cluster")
]
Policies = Annotated[
    list[str] | None, typer.Option(help="KIND=NAME: order, placer, sharing, backfill, preemptor")
]


def policies(chosen: list[str] | None) -> dict[str, str]:
    """Read KIND=NAME words.

    Raises:
        ConfigError: there is no such kind of policy.

    """
    changes = {kind: name for kind, _, name in (one.partition("=") for one in chosen or [])}
    wrong = changes.keys() - POLICY_GROUPS.keys()
    if wrong:
        raise ConfigError(
            f"--policy: {min(wrong)!r} is no kind of policy; use order, placer, sharing, "
            f"backfill or preemptor"
        )
    return changes
