"""Scripts as public documentation has them (written anew), and what sbatch would read in each."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangsched.config import ConfigError
from gangsched.submission.batch_options import OPTIONS, read_options
from gangsched.submission.batch_script import SCRIPT_BYTES_MAX, read_script, split_words
from gangsched.submission.job_request import check_supported, request_of
from gangsched.submission.manifests import PodSettings, Submission, jobsets

SCRIPTS = Path(__file__).parent / "scripts"
EXPECTED = {
    "hello": {"name": "hello", "nodes": 1, "tasks": 1, "time_s": 300},
    "mpi-two-nodes": {
        "name": "mpi",
        "nodes": 2,
        "tasks": 72,
        "tasks_per_node": 36,
        "time_s": 129600,
        "queue": "standard",
    },
    "openmp": {"nodes": 1, "tasks": 1, "cpus_per_task": 16, "memory": 25769803776, "time_s": 9000},
    "hybrid": {
        "nodes": 4,
        "tasks": 8,
        "tasks_per_node": 2,
        "cpus_per_task": 24,
        "memory": 100663296000,
        "time_s": 21600,
    },
    "one-gpu": {"gpus_per_node": 1, "cpus_per_task": 6, "memory": 33554432000, "time_s": 10800},
    "typed-gpu": {"gpus_per_node": 4, "gpu_type": "a100", "time_s": 5430},
    "torchrun": {"nodes": 4, "tasks": 4, "gpus_per_node": 1, "cpus_per_task": 4},
    "deepspeed": {
        "nodes": 2,
        "tasks": 2,
        "gpus_per_node": 8,
        "gpu_type": "h100",
        "exclusive": True,
        "signal": "USR1",
        "warning_s": 120,
        "signal_to_script": True,
        "requeue": True,
        "append": True,
        "output": "logs/%x_%j.log",
    },
    "accelerate": {
        "name": "acc",
        "directory": ".",
        "output": "O-%x.%j",
        "error": "E-%x.%j",
        "nodes": 4,
        "gpus_per_node": 4,
        "cpus_per_task": 160,
        "time_s": 7140,
    },
    "lightning": {
        "nodes": 4,
        "gpus_per_node": 8,
        "tasks_per_node": 8,
        "tasks": 32,
        "memory": None,
        "time_s": 7200,
        "signal": "USR1",
        "warning_s": 90,
        "signal_to_script": False,
    },
    "nccl-tests": {
        "nodes": 16,
        "tasks": 128,
        "gpus_per_node": 8,
        "exclusive": True,
        "exclude": ("node003", "node004", "node005", "bad-1"),
    },
    "array": {"array": (32, 0, 31, 4), "output": "out/%A_%a.txt"},
    "array-list": {"array": (6, 1, 20, None)},
    "array-step": {"array": (5, 0, 100, None)},
    "depends": {"dependencies": (("afterok", "123"), ("afterok", "124"), ("afterany", "200"))},
    "singleton": {"singleton": True, "name": "nightly"},
    "quoted": {"name": "my long name", "comment": "it # stays", "output": "a b.out"},
    "comments": {"nodes": 2, "time_s": 600},
    "after-command": {"nodes": 2, "memory": None},
    "later-wins": {"time_s": 1800, "nodes": 3, "requeue": True},
    "no-requeue": {"requeue": False},
    "abbreviated": {"name": "short", "cpus_per_task": 3, "queue": "debug"},
    "range": {"nodes": 2, "tasks": 8},
    "tasks-only": {"nodes": 3, "tasks": 10, "tasks_per_node": 4},
    "gpus-total": {"nodes": 2, "gpus_per_node": 8, "cpus_per_task": 96, "memory": 858993459200},
    "tasks-per-gpu": {"nodes": 2, "tasks": 16, "tasks_per_node": 8, "gpus_per_node": 4},
    "unlimited": {"time_s": None, "priority_class": "high", "hold": True},
    "exports": {"export": (("NCCL_DEBUG", "INFO"), ("LR", "1e-3")), "spread": True},
    "python": {"nodes": 1, "tasks": 4, "tasks_per_node": 4, "time_s": 183845},
    "university": {"nodes": 2, "tasks": 8},
    "fewer-tasks": {"nodes": 2, "tasks": 2},
}


def requested(path):
    script = read_script(path.read_text(), path.name)
    return request_of(script.options, path.name)


def test_every_script_is_expected():
    assert {path.stem for path in SCRIPTS.glob("*.sh")} == set(EXPECTED)
    assert len(EXPECTED) >= 30


@pytest.mark.parametrize("name", EXPECTED)
def test_a_script_is_read_as_sbatch_reads_it(name):
    request = requested(SCRIPTS / f"{name}.sh")
    for field, value in EXPECTED[name].items():
        found = getattr(request, field)
        if field == "array":
            found = (len(found.indices), found.indices[0], found.indices[-1], found.at_once)
        assert found == value, field


def test_what_cannot_be_done_is_named_in_one_sentence():
    script = read_script((SCRIPTS / "university.sh").read_text(), "u")
    with pytest.raises(ConfigError) as caught:
        check_supported(script.options)
    sentence = str(caught.value)
    assert all(sentence.count(f"--{name}:") == 1 for name in ("account", "mail-type", "constraint"))
    ignored = ("account", "mail-type", "mail-user", "constraint")
    check_supported(script.options, ignored)


def test_dependencies_and_limits_of_arrays_become_annotations():
    found = {}
    for name in ("depends", "array", "singleton"):
        options = read_script((SCRIPTS / f"{name}.sh").read_text(), name).options
        check_supported(options)
        request = request_of(options, name)
        submission = Submission(request, "", (), 7, "ns", PodSettings("none"), user="Ann@x")
        found[name] = {
            key: value
            for key, value in jobsets(submission)[0]["metadata"]["annotations"].items()
            if key in ("gangsched.io/after", "gangsched.io/series")
        }
    assert found["depends"] == {"gangsched.io/after": "afterok:123,afterok:124,afterany:200"}
    assert found["singleton"] == {"gangsched.io/series": "nightly.ann-x:1"}
    name, _, most = found["array"]["gangsched.io/series"].partition(":")
    assert name.endswith("-7")
    assert most == "4"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--nodes=0"], "--nodes: '0' must be a whole number from 1 to 5,000"),
        (["--nodes=5-2"], "--nodes: '5-2' must be MINIMUM-MAXIMUM"),
        (["--time=soon"], "--time: 'soon' must be MINUTES"),
        (["--mem=lots"], "--mem: 'lots' must be NUMBER[K|M|G|T]"),
        (["--mem=99999999999T"], "--mem:"),
        (["--array=5-1"], "--array: '5-1' must be FIRST-LAST"),
        (["--array=0-999999999"], "more than 1000 tasks"),
        (["--array=" + ",".join(f"{n}00000-{n}00900" for n in range(1, 9))], "more than 1000"),
        (["--gres=license:2"], "--gres: 'license:2' must be gpu"),
        (["--gres=gpu:a100:2,gpu:h100:2"], "two types of GPUs"),
        (["--gpus=5", "--nodes=2"], "5 GPUs cannot be shared equally by 2 nodes"),
        (["--gpus=4", "--nodes=2", "--gpus-per-node=8"], "--gpus: 4 contradicts 8"),
        (["-n9", "-N2", "--ntasks-per-node=4"], "9 tasks do not fit on 2 nodes with 4"),
        (["--dependency=afterok"], "names no job"),
        (["--dependency=afterok:1?afterok:2"], "alternatives"),
        (["--dependency=before:1"], "must be one of after"),
        (["--signal=USR1@soon"], "--signal: 'USR1@soon' must be"),
        (["--exclude=node[9-1]"], "is no list of nodes"),
        (["--exclude=node[1-99999999]"], "is no list of nodes"),
        (["--partition=a,b"], "names several"),
        (["--export=HOME"], "--export: 'HOME' must be NAME=VALUE"),
        (["--open-mode=both"], "must be append or truncate"),
        (["--exclusive=mcs"], "only --exclusive is supported"),
    ],
)
def test_a_malformed_value_has_a_sentence(words, sentence):
    options, rest = read_options(words, "submit")
    assert not rest
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        request_of(options, "x")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--nonsense"], "there is no option --nonsense"),
        (["--ntasks-per"], "may mean --ntasks-per-gpu, --ntasks-per-node"),
        (["-N"], "-N needs a value"),
        (["--nodes"], "--nodes needs a value"),
        (["--hold=yes"], "--hold takes no value"),
        (["-Z3"], "there is no option -Z"),
    ],
)
def test_a_malformed_option_has_a_sentence(words, sentence):
    with pytest.raises(ConfigError, match=re.escape(sentence)) as caught:
        read_options(words, "submit")
    assert str(caught.value).startswith("submit: ")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("echo\n", "the first line of a script has to be like #!/bin/bash"),
        ("#!/bin/sh\r\n#SBATCH -N2\r\n", "the lines end as on DOS"),
        ("#!/bin/sh\n#SBATCH -J 'x\n", "line 2: the quote ' is not closed"),
        ("#!/bin/sh\n#SBATCH two words\n", "line 2: 'two' is no option"),
        ("#!/bin/sh\n" + "#" * (SCRIPT_BYTES_MAX + 1), "larger than 512 KiB"),
    ],
)
def test_a_malformed_script_has_a_sentence(text, sentence):
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        read_script(text, "job.sh")


def test_words_end_options_and_the_command_line_wins():
    options, rest = read_options(["-N2", "-J", "x", "--", "-script", "-N9"], "submit")
    assert (options, rest) == ([("nodes", "2"), ("job-name", "x")], ["-script", "-N9"])
    script = read_script((SCRIPTS / "mpi-two-nodes.sh").read_text(), "m")
    request = request_of([*script.options, *options], "m")
    assert (request.name, request.nodes, request.tasks) == ("x", 2, 72)


@given(st.text(max_size=200))
def test_any_line_is_split_or_refused(line):
    try:
        words = split_words(line, "x")
    except ConfigError:
        return
    assert all(isinstance(word, str) for word in words)


@given(st.lists(st.text('abc=-12 #"', min_size=1, max_size=12), max_size=6))
def test_quoted_words_come_back_whole(words):
    assert split_words(" ".join(f"'{word}'" for word in words), "x") == words


@given(st.lists(st.tuples(st.sampled_from(sorted(OPTIONS)), st.text(max_size=20)), max_size=6))
def test_any_options_are_read_or_refused_with_a_sentence(pairs):
    words = [f"--{name}={value}" for name, value in pairs]
    try:
        options, rest = read_options(words, "x")
        request = request_of(options, "name")
    except ConfigError:
        return
    assert not rest
    assert 1 <= request.nodes <= request.tasks
