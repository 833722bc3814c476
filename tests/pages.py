"""The code blocks of the documentation: which test runs each, and how.

The language of a fence decides alone: `sh` is run line by line, `yaml` and `python` too, `json`
and `toml` are read, and `text` (output, drawings) is shown. A line that can only run elsewhere
stands in ELSEWHERE, one that is changed before it runs in CHANGED, both with the reason. A block of
objects whose first line is `# NAME.yaml` is that file for the commands that follow.
"""

import ast
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from markdown_it import MarkdownIt
from markdown_it.token import Token
from own_commands import run_here
from waiting import patience_s, until

from gangsched.local import components

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in (
        *(ROOT / name for name in ("CONTRIBUTING.md", "README.md", "SECURITY.md")),
        *(ROOT / "docs").rglob("*.md"),
    )
    if "decisions" not in path.parts
)
LANGUAGES = ("sh", "yaml", "python", "json", "toml", "text")
RUN = ("sh", "object", "scenario", "settings", "python")
"""Kinds of items that a test has to run."""

ELSEWHERE = {
    "make help": "test_targets_and_benchmarks_exist reads what it lists",
    "make quick": "it lints, and runs tests that run anyway",
    "make demo": "it makes the environment that the tests run in",
    "make test": "it is what runs the tests",
    "gangsched local up --gpus": "it needs a GPU; tests/integration/test_gpus.py starts the same",
    "gangsched local up --tracking": "tests/integration/test_tracking.py starts what it starts",
    "kubectl port-forward -n gangsched-system deploy/gangsched-web 8042": (
        "it forwards until it is stopped; tests/integration/test_deployed.py takes a free port"
    ),
    "kubectl port-forward -n gangsched-system $(kubectl get pods -n gangsched-system "
    "-l gangsched.io/leader=true -o name) 8080": (
        "it forwards until it is stopped; tests/integration/test_deployed.py takes a free port"
    ),
    "gangsched history --all-namespaces --leader https://localhost:8080 --ca ca.crt": (
        "tests/integration/test_deployed.py asks at a free port"
    ),
    "gangsched web": "it serves until it is stopped; tests/integration/test_web_pages.py does",
    "gangsched snapshot cluster.jsonl.gz": "tests/integration/test_web_pages.py writes one",
    "gangsched web cluster.jsonl.gz": "tests/integration/test_web_pages.py serves one",
    "gangsched simulate examples/simulations/three-teams.yaml --seeds 1 --journal "
    "--out build/three-teams": "tests/web/test_simulation_pages.py runs a shorter one",
    "gangsched web build/three-teams/three-teams/seed-0/journal.jsonl": (
        "it serves until it is stopped; tests/web/test_simulation_pages.py shows one"
    ),
    'curl -s -H "Authorization: Bearer $(kubectl create token default)" '
    "localhost:8042/api/v1/gangs": "tests/integration/test_web_pages.py sends the same",
    "gangsched submit --image pytorch/pytorch:2.15.0 train.sh": (
        "tests/integration/test_submit.py submits scripts, on process nodes without images"
    ),
    **{
        f"gangsched demo --guide {number}": "`make bench NAME=guides` runs the same"
        for number in range(1, 5)
    },
    "make image": "tests/integration/test_image.py runs its program, for a folder of its own",
    "skopeo copy oci:build/image/oci:0.1.0 docker://REGISTRY/gangsched:0.1.0": (
        "it needs a registry; the layout that it reads is what test_image.py unpacks"
    ),
    "pip install 'gangsched[simulator]'": "it needs a package registry; the extra is looked up",
}
"""Command lines that no test runs, and why."""

FILE_NAMED = re.compile(r"# (\S+\.yaml)\n")
"""The first line of a block that is the text of a file, for `kubectl apply -f` of the page."""

_FEWER = "the same, smaller"
CHANGED = {
    "docs/simulator.md": (
        ("--seeds 5", "--seeds 1 --set horizon=2h", _FEWER),
        ("--seeds 1000", "--seeds 1 --set horizon=2h", _FEWER),
        ("--trials 50", "--trials 2", _FEWER),
        ("--seeds 3", "--seeds 1 --set workload.end=2h", _FEWER),
        ("--trials 20", "--trials 1 --set workload.end=4h", _FEWER),
        (
            "queues.students.quotas.0.borrowingLimit=40,120",
            "queues.students.quotas.0.borrowingLimit=40,120 --set horizon=2h",
            _FEWER,
        ),
    ),
}
"""What is written otherwise before it runs: page -> (words, other words, why)."""

_PLAIN = re.compile(r"gangsched (?!demo|local|web)[\w ./:=,+'\[\]-]+")
"""Lines that run in the process of the test; the shell would change nothing in their words."""

AGAIN = {
    "gangsched doctor": "process nodes do not probe: their pods count as ready before one leads",
    "kubectl logs -f pi-launcher": "the pod is there once its gang has room",
}
"""Commands that are tried until they work, as their reader would."""

CODES = {"gangsched explain": (0, 3), "gangsched defrag": (0, 1)}
"""Commands that answer by their exit code; every other has to end with 0."""

STAND_INS = {
    "sacct": """#!/bin/sh
# What Slurm would say of ten jobs, the last of which never ended: its columns are those asked for.
for word; do columns=$word; done
echo "$columns" | tr , '|'
for n in 0 1 2 3 4 5 6 7 8; do
  echo "$n|train|eve|vision|gpu|2024-01-01T0$n:00:00|2024-01-01T0$n:00:09|2024-01-02T00:00:00"\\
"|2|cpu=8,gres/gpu=16,node=2|1-00:00:00"
done
echo "9|late|eve|||Unknown|||||"
"""
}
"""Programs that are not on this machine, and what answers in their place."""

_WALKS = "tests/integration/test_walks.py::"
_SIMULATE = "tests/simulator/test_simulate.py::test_the_guide_of_the_page_works"
_DEPLOYED = "tests/integration/test_deployed.py::"
_DOCS = "tests/policies/test_docs.py::"
RUNNERS = {
    ("CONTRIBUTING.md", "A policy"): f"{_DOCS}test_an_order_is_added_as_written",
    ("CONTRIBUTING.md", "A kind of job"): f"{_DOCS}test_a_kind_of_job_is_added_as_written",
    ("CONTRIBUTING.md", "A dialect of groups"): f"{_DOCS}test_a_dialect_is_added_as_written",
    ("CONTRIBUTING.md", "A filter of nodes"): f"{_DOCS}test_a_filter_is_added_as_written",
    ("README.md", ""): f"{_WALKS}readme",
    (
        "docs/jobs/cache.md",
        "",
    ): "tests/integration/test_datacache_jobs.py::test_the_page_trains_from_a_cache",
    ("docs/jobs/experiment.md", ""): (
        "tests/integration/test_experiments.py::test_a_search_runs_to_its_end_and_tells_the_best"
    ),
    (
        "docs/jobs/llm.md",
        "",
    ): "tests/integration/test_llm.py::test_the_page_fine_tunes_by_the_sdk",
    ("docs/jobs/mpijob.md", ""): f"{_WALKS}test_an_mpi_job",
    ("docs/jobs/ray.md", ""): "tests/integration/test_ray.py::test_the_page_trains",
    ("docs/jobs/stopping.md", ""): f"{_WALKS}test_a_job_may_answer_and_a_node_is_to_stop",
    (
        "docs/jobs/operators.md",
        "Training Operator",
    ): (
        "tests/integration/test_upstream_operators.py::"
        "test_jobs_of_the_training_operator_start_whole_one_after_another"
    ),
    (
        "docs/jobs/operators.md",
        "Kubeflow Trainer",
    ): "tests/integration/test_upstream_jobsets.py::runtime",
    ("docs/jobs/operators.md", "KubeRay"): "tests/integration/test_upstream_groups.py::kuberay",
    ("docs/jobs/operators.md", "LeaderWorkerSet"): "tests/integration/test_upstream_groups.py::lws",
    ("docs/web.md", "In the cluster"): f"{_DEPLOYED}test_the_pages_are_served_to_tokens",
    (
        "docs/web.md",
        "Pending workloads for clients of Kueue",
    ): f"{_DEPLOYED}test_clients_of_kueue_read_positions",
    ("docs/history.md", "In a cluster"): f"{_DEPLOYED}test_the_leader_serves_its_history",
    (
        "docs/history.md",
        "",
    ): "tests/integration/test_gang_records.py::test_the_page_lists_and_replays",
    ("docs/jobs/tracking.md", ""): "tests/integration/test_tracking.py::test_the_page",
    ("docs/jobs/trainjob.md", ""): f"{_WALKS}test_a_function_is_trained",
    (
        "docs/jobs/watching.md",
        "",
    ): "tests/integration/test_monitoring.py::test_the_page_asks_what_prometheus_has",
    ("docs/operations.md", "Install"): f"{_DEPLOYED}test_the_page_installs_and_upgrades",
    (
        "docs/operations.md",
        "With Helm",
    ): "tests/integration/test_chart.py::test_the_first_guides_commands",
    ("docs/operations.md", "Upgrade"): f"{_DEPLOYED}test_the_page_installs_and_upgrades",
    ("docs/operations.md", "Uninstall"): f"{_DEPLOYED}test_running_jobs_outlive_an_uninstallation",
    ("docs/placement.md", ""): f"{_WALKS}test_moves_are_looked_for",
    ("docs/policies.md", ""): "tests/policies/test_docs.py::the_policy",
    ("docs/simulator.md", "The simulator"): _SIMULATE,
    ("docs/simulator.md", "Choose a policy from your own accounting"): _SIMULATE,
    ("docs/simulator.md", "Which pools do I need?"): _SIMULATE,
    ("docs/simulator.md", "Fault injection"): _SIMULATE,
    ("docs/simulator.md", "Many runs, and better settings"): _SIMULATE,
    ("docs/simulator.md", "From a live cluster"): f"{_WALKS}test_a_snapshot_is_asked",
    ("docs/tutorials/first-gang.md", ""): f"{_WALKS}test_a_tutorial",
    ("docs/tutorials/first-queue.md", ""): f"{_WALKS}test_a_tutorial",
    ("docs/tutorials/from-kueue.md", ""): f"{_WALKS}test_a_tutorial",
    ("docs/tutorials/from-volcano.md", ""): f"{_WALKS}test_a_tutorial",
}
"""Which test, or fixture, runs the commands of a page, or of those below one of its headings."""

BY_KIND = {
    "object": f"{_WALKS}test_an_object_is_taken",
    "settings": "tests/policies/test_docs.py::test_the_settings_of_the_pages_are_taken",
}
"""Which test runs all items of a kind, of every page."""


@dataclass(frozen=True, slots=True)
class Item:
    """One command line, one YAML document, or another block as a whole."""

    page: str
    line: int
    heading: str
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.text.splitlines()[0]}"

    def runner(self) -> str:
        """Return the test that runs it; "" where there is none."""
        here, whole = (self.page, self.heading), (self.page, "")
        return BY_KIND.get(self.kind) or RUNNERS.get(here) or RUNNERS.get(whole, "")


@cache
def _tokens(page: str) -> tuple[Token, ...]:
    """Return a page's tokens, with those inside of lines."""

    def flat(tokens: list[Token]) -> Iterator[Token]:
        for token in tokens:
            yield token
            yield from flat(token.children or [])

    parser = MarkdownIt("commonmark").enable("table")
    return tuple(flat(parser.parse((ROOT / page).read_text())))


def spans(page: str) -> list[str]:
    """Return what a page has between single back ticks."""
    return [token.content for token in _tokens(page) if token.type == "code_inline"]


def untagged(page: str) -> list[str]:
    """Return the blocks whose fence names no known language, or that have no fence."""
    return [
        f"{page}:{token.map[0] + 1}"
        for token in _tokens(page)
        if token.map
        and (
            token.type == "code_block"
            or (token.type == "fence" and token.info.strip() not in LANGUAGES)
        )
    ]


@cache
def items(page: str) -> tuple[Item, ...]:
    """Return what stands in a page's blocks, in its order."""
    found = []
    heading = ""
    tokens = _tokens(page)
    for index, token in enumerate(tokens):
        if token.type == "heading_open":
            heading = tokens[index + 1].content
        if token.type == "fence" and token.map:
            found += _split(page, token.map[0] + 1, heading, token)
    return tuple(found)


def _split(page: str, line: int, heading: str, fence: Token) -> list[Item]:
    language, text = fence.info.strip(), fence.content
    if language == "sh":
        joined = text.replace("\\\n", " ").splitlines()
        lines = [one for one in joined if one.strip() and not one.startswith("#")]
        return [Item(page, line, heading, "sh", one) for one in lines]
    if language == "yaml":
        parts = text.split("\n---\n")
        return [Item(page, line, heading, _yaml_kind(one), one) for one in parts]
    return [Item(page, line, heading, language, text)]


def has_words(line: str, words: str) -> bool:
    """Tell whether all of some words are words of a line."""
    return set(words.split(" ")) <= set(line.split(" "))


def _yaml_kind(text: str) -> str:
    document = yaml.safe_load(text)
    if "kind" in document:
        return "object"
    return "scenario" if "version" in document else "settings"


def everything(*kinds: str) -> list[Item]:
    """Return the items of some kinds, of all pages."""
    return [item for page in PAGES for item in items(page) if item.kind in kinds]


def elsewhere(item: Item) -> str:
    """Return why an item runs elsewhere; "" where it runs here."""
    return ELSEWHERE.get(item.text.partition("  #")[0].strip(), "")


@cache
def _functions(path: str) -> dict[str, str]:
    """Return the source of each function of a test module."""
    text = (ROOT / path).read_text()
    return {
        node.name: ast.get_source_segment(text, node) or ""
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef)
    }


def runs(item: Item) -> bool:
    """Tell whether there is a test that runs an item, which names its page and heading."""
    test = item.runner()
    if not test:
        return False
    path, _, name = test.partition("::")
    if not (ROOT / path).exists():
        return False
    source = _functions(path).get(name, "")
    if item.kind in BY_KIND:
        return bool(source)
    named = Path(item.page).name in (ROOT / path).read_text()
    by_heading = (item.page, item.heading) in RUNNERS
    return bool(source) and named and (not by_heading or item.heading in source)


def share() -> dict[str, float]:
    """Return the figures: what there is to run, what runs elsewhere, and the share that runs."""
    found = everything(*RUN)
    here = [item for item in found if not elsewhere(item)]
    return {
        "docs_commands": len(here),
        "docs_commands_elsewhere": len(found) - len(here),
        "docs_commands_run_share": sum(map(runs, here)) / len(here),
    }


class Shell:
    """What a reader sits at: a folder with the project's files, where lines are run in order.

    `kubeconfig` is of the control plane that is asked, `namespace` the one that commands work in.
    """

    def __init__(self, folder: Path, kubeconfig: Path | None = None, namespace: str = "") -> None:
        self.folder = folder
        self._kept: list[str] = []
        self._file = (0, folder)
        programs = folder / "bin"
        programs.mkdir()
        (programs / "kubectl").symlink_to(components.program("kubectl"))
        for name, text in STAND_INS.items():
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        for name in ("crds", "docs", "examples", "manifests"):
            (folder / name).symlink_to(ROOT / name)
        (folder / ".venv").symlink_to(sys.prefix)
        path = os.pathsep.join(
            (str(programs), str(Path(sys.executable).parent), os.environ["PATH"])
        )
        self.environment = os.environ | {"PATH": path, "COLUMNS": "80"}
        if kubeconfig is not None:
            self.environment["KUBECONFIG"] = str(self._within(kubeconfig, namespace))

    def _within(self, kubeconfig: Path, namespace: str) -> Path:
        document: dict[str, Any] = yaml.safe_load(kubeconfig.read_text())
        if namespace:
            for one in document["contexts"]:
                one["context"]["namespace"] = namespace
        path = self.folder / "kubeconfig"
        path.write_text(yaml.safe_dump(document))
        return path

    def walk(self, page: str, *headings: str) -> dict[str, str]:
        """Do what a page says, or what it says below some headings; return what each line said."""
        chosen = [one for one in items(page) if not headings or one.heading in headings]
        assert {one.heading for one in chosen} >= set(headings), f"{page} has other headings"
        return {one.text: self.do(one) for one in chosen if not elsewhere(one)}

    def do(self, item: Item) -> str:
        """Run a line or a program as it stands, or make the file that the page writes down."""
        if item.kind == "sh":
            return self._line(item)
        if item.kind == "python":
            (self.folder / "program.py").write_text(item.text)
            return self._said(f"python {self.folder / 'program.py'}", (0,))
        if item.kind == "scenario":
            name = yaml.safe_load(item.text)["name"]
            (self.folder / f"{name}.yaml").write_text(item.text)
        if item.kind == "object":
            self._save(item)
        return ""

    def _save(self, item: Item) -> None:
        """Write the documents of a block to the file that its first line names, if one does."""
        named = FILE_NAMED.match(item.text)
        if named:
            self._file = (item.line, self.folder / named[1])
            self._file[1].write_text("")
        line, path = self._file
        if item.line == line:
            path.write_text(f"{path.read_text()}---\n{item.text}\n")

    def _line(self, item: Item) -> str:
        line = item.text
        for old, new, _ in CHANGED.get(item.page, ()):
            if has_words(line, old):
                line = line.replace(old, new)
        if line.startswith(("export ", "source ")):
            self._kept.append(line)
            return ""
        codes = next((allowed for one, allowed in CODES.items() if line.startswith(one)), (0,))
        if any(line.startswith(one) for one in AGAIN):
            return until(lambda: self._try(line), line, 60)
        return self._said(line, codes)

    def _try(self, line: str) -> str:
        done = self._run(line)
        return "" if done.returncode else done.stdout + " "

    def _said(self, line: str, codes: tuple[int, ...]) -> str:
        done = self._run(line)
        assert done.returncode in codes, f"{line}\nexit code {done.returncode}\n{done.stdout}"
        return done.stdout

    def _run(self, line: str) -> subprocess.CompletedProcess[str]:
        if not self._kept and _PLAIN.fullmatch(line):
            words = shlex.split(line)[1:]
            return subprocess.CompletedProcess(
                words, *run_here(words, self.environment, self.folder)
            )
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", "\n".join((*self._kept, line))],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=patience_s(150),
        )
