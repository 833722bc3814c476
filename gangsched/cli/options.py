"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

from gangsched.config import POLICY_GROUPS, ConfigError

_OUTPUTS = ("table", "json", "yaml")


def _check_output(output: str) -> str:
    if output not in _OUTPUTS:
        raise ConfigError(f"--output: {output!r} is not allowed; use table, json or yaml")
    return output


Output = Annotated[
    str,
    typer.Option(
        "--output",
        "-o",
        help="table, json or yaml",
        callback=_check_output,
        autocompletion=lambda: list(_OUTPUTS),
    ),
]
Config = Annotated[Path | None, typer.Option(help="YAML file with settings")]
Kubeconfig = Annotated[Path | None, typer.Option(help="default: as kubectl finds it")]
Context = Annotated[
    str | None, typer.Option(help="a context of the kubeconfig; default: the current one")
]
Namespace = Annotated[
    str | None, typer.Option("--namespace", "-n", help="default: the context's namespace")
]
Home = Annotated[str, typer.Option("--namespace", "-n", help="the namespace of gangsched")]
Snapshot = Annotated[
    Path | None, typer.Option(help="a file of `gangsched snapshot` in place of the cluster")
]
Policies = Annotated[
    list[str] | None, typer.Option(help="KIND=NAME: order, placer, sharing, backfill, preemptor")
]


def policies(chosen: list[str] | None) -> dict[str, str]:
    """Return the policies of KIND=NAME texts, by kind.

    Raises:
        ConfigError: there is no such kind of policy.

    """
    changes = {kind: name for kind, _, name in (text.partition("=") for text in chosen or [])}
    wrong = changes.keys() - POLICY_GROUPS.keys()
    if wrong:
        raise ConfigError(
            f"--policy: {min(wrong)!r} is not a kind of policy; use order, placer, sharing, "
            f"backfill or preemptor"
        )
    return changes
