"""`gangsched submit`: a batch script, or a command, becomes a job."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from gangsched.cli.options import Context, Kubeconfig, Namespace
from gangsched.config import ConfigError
from gangsched.kube.client.access import Access
from gangsched.kube.client.client import KubeClient
from gangsched.submission.batch_options import Given, read_options
from gangsched.submission.batch_script import read_script
from gangsched.submission.job_request import check_supported, request_of
from gangsched.submission.manifests import PodSettings, Submission, jobsets, secret
from gangsched.submission.submitting import next_number, submit

SUBMIT_SETTINGS = {
    "allow_extra_args": True,
    "ignore_unknown_options": True,
    "allow_interspersed_args": False,
}
"""Options of sbatch are read by `batch_options.py`, and those after the script are the script's."""


def submit_job(
    context: typer.Context,
    *,
    image: Annotated[
        str, typer.Option(envvar="GANGSCHED_IMAGE", help="of the pods; it needs python3")
    ] = "",
    volume: Annotated[
        list[str] | None, typer.Option(help="CLAIM:PATH, a PersistentVolumeClaim in all pods")
    ] = None,
    node_selector: Annotated[list[str] | None, typer.Option(help="LABEL=VALUE of nodes")] = None,
    toleration: Annotated[list[str] | None, typer.Option(help="KEY[=VALUE] of taints")] = None,
    ignore: Annotated[
        list[str] | None, typer.Option(help="an option of sbatch to leave out, such as account")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print the objects instead")] = False,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    cluster: Context = None,
) -> None:
    """Submit a script with #SBATCH lines, or a command after `--wrap`, as sbatch does.

    Options of sbatch stand before the script and win over its lines.
    """
    given, words = read_options(context.args, "submit")
    values = dict(given)
    script, options, name = _script(values.get("wrap"), words)
    asked = [*options, *given]
    request = request_of(asked, name, ignore or ())
    check_supported(asked, ignore or ())
    if not image:
        raise ConfigError("--image: name the image of the pods, or set GANGSCHED_IMAGE")
    access = Access(kubeconfig, cluster)
    inside = namespace or access.namespace()
    pods = PodSettings(
        image,
        tuple(_volume(text) for text in volume or ()),
        tuple(_label(text) for text in node_selector or ()),
        tuple(_toleration(text) for text in toleration or ()),
    )
    submission = Submission(request, script, tuple(words[1:]), next_number(), inside, pods)
    if dry_run:
        hidden = secret(submission)
        hidden["stringData"] = dict.fromkeys(hidden["stringData"], "...")
        typer.echo(yaml.safe_dump_all([hidden, *jobsets(submission)], sort_keys=False).rstrip())
        return

    async def create() -> Submission:
        async with KubeClient(access) as client:
            return await submit(client, submission)

    number = asyncio.run(create()).number
    if "parsable" in values:
        typer.echo(str(number))
    elif "quiet" not in values:
        typer.echo(f"Submitted batch job {number}")


def _script(wrap: str | None, words: list[str]) -> tuple[str, Given, str]:
    """Return the text of the script, the options of its lines, and its name."""
    if wrap is not None:
        if words:
            raise ConfigError(f"--wrap: a command and the script {words[0]!r} exclude each other")
        return f"#!/bin/sh\n{wrap}\n", [], "wrap"
    if not words or words[0] == "-":
        if not words and sys.stdin.isatty():
            raise ConfigError("name a script, or give a command with --wrap")
        text, name = sys.stdin.read(), "sbatch"
    else:
        path = Path(words[0])
        try:
            text, name = path.read_text(), path.name
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: {error}") from error
    read = read_script(text, name)
    return read.text, read.options, name


def _volume(text: str) -> tuple[str, str]:
    claim, _, path = text.partition(":")
    if not claim or not path.startswith("/"):
        raise ConfigError(f"--volume: {text!r} must be CLAIM:/PATH")
    return claim, path


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise ConfigError(f"--node-selector: {text!r} must be LABEL=VALUE")
    return key, value


def _toleration(text: str) -> dict[str, Any]:
    key, equals, value = text.partition("=")
    if not key:
        raise ConfigError(f"--toleration: {text!r} must be KEY or KEY=VALUE")
    if not equals:
        return {"key": key, "operator": "Exists"}
    return {"key": key, "operator": "Equal", "value": value}
