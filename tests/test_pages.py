"""The documentation agrees with the code, as far as a test without a cluster can tell."""

import json
import re
import tomllib
from importlib.metadata import entry_points

import pages
import pytest
import typer
import yaml
from pages import PAGES, ROOT

from gangsched.cli.main import app

EXAMPLES = sorted((ROOT / "examples").rglob("*.yaml"))
FILE = re.compile(
    r"(?:bench|crds|docs|examples|gangsched|manifests|policies|simulator|tests)/[\w./-]+"
)
"""What looks like a file or folder of the project."""


def test_the_page_about_jobs_has_the_query_of_each_alert():
    rules = yaml.safe_load((ROOT / "manifests/monitoring/rules.yaml").read_text())
    groups = {group["name"]: group["rules"] for group in rules["spec"]["groups"]}
    page = " ".join((ROOT / "docs/jobs/watching.md").read_text().split())
    missing = [
        rule["alert"]
        for rule in groups["gangsched.jobs"]
        if " ".join(rule["expr"].split()) not in page or f"**{rule['alert']}**" not in page
    ]
    assert missing == []


@pytest.mark.parametrize("page", PAGES)
def test_every_block_says_what_it_is(page):
    assert pages.untagged(page) == [], f"a fence names one of: {', '.join(pages.LANGUAGES)}"


def test_every_command_and_yaml_of_the_docs_is_run_by_a_test():
    alone = [str(item) for item in pages.everything(*pages.RUN) if not _is_run(item)]
    assert alone == [], "name the test in RUNNERS of pages.py, or why there is none in ELSEWHERE"
    assert pages.share()["docs_commands_run_share"] == 1.0


def _is_run(item: pages.Item) -> bool:
    return bool(pages.elsewhere(item)) or pages.runs(item)


def test_no_exception_is_left_over():
    lines = [item.text for item in pages.everything("sh")]
    for one in (*pages.ELSEWHERE, *pages.AGAIN, *pages.CODES):
        assert any(line.startswith(one) for line in lines), f"no page has {one!r}"
    for page, changes in pages.CHANGED.items():
        for old, _, _ in changes:
            lines = [item.text for item in pages.items(page) if item.kind == "sh"]
            assert any(pages.has_words(one, old) for one in lines), f"{page} has no {old!r}"
    found = {
        (item.page, heading)
        for item in pages.everything(*pages.RUN)
        for heading in ("", item.heading)
    }
    assert pages.RUNNERS.keys() <= found


def test_what_is_data_can_be_read():
    for item in pages.everything("json"):
        for line in item.text.splitlines():
            assert json.loads(line), item
    for item in pages.everything("toml"):
        assert tomllib.loads(item.text), item


def _gangsched():
    """Return the whole command, with those that other packages bring."""
    whole = typer.main.get_command(app)
    for point in entry_points(group="gangsched.commands"):
        one = typer.Typer(add_completion=False)
        one.command()(point.load())
        whole.commands[point.name] = typer.main.get_command(one)
    return whole


@pytest.mark.parametrize("page", PAGES)
def test_commands_between_the_lines_exist(page):
    """With their options; what they do is for the tests of each command."""
    words = [span for span in pages.spans(page) if span.startswith("gangsched ")]
    for span in words:
        command = _gangsched()
        for word in span.split()[1:]:
            if word.startswith("-") and word != "--":
                options = {one for parameter in command.params for one in parameter.opts}
                assert word in options, f"{span}: there is no {word} in {sorted(options)}"
            elif hasattr(command, "commands"):
                assert word in command.commands, f"{span}: there is no {word}"
                command = command.commands[word]


def test_targets_and_benchmarks_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    names = (ROOT / "bench" / "run.py").read_text()
    for page in PAGES:
        text = (ROOT / page).read_text()
        for name in re.findall(r"`(?:\w+=\w+ )?make ([a-z-]+)", text):
            assert name in targets, f"{page}: make {name}"
        for name in re.findall(r"make\s+bench\s+NAME=(\w+)", text):
            assert f'"{name}"' in names, f"{page}: make bench NAME={name}"


@pytest.mark.parametrize("page", PAGES)
def test_files_that_are_named_are_there(page):
    for span in pages.spans(page):
        for name in FILE.findall(span):
            if FILE.match(span):
                assert (ROOT / name.rstrip(".")).exists(), f"{page}: {span}"


def test_the_paths_of_the_architecture_name_what_the_files_define():
    """Each `file` (`name`), or `name` in `file`: the file has a function or class of that name."""
    text = " ".join((ROOT / "docs/ARCHITECTURE.md").read_text().split())
    file, name = r"`(gangsched/[\w/]+\.py)`", r"`([A-Za-z_]\w*(?:\.\w+)?)`"
    named = re.findall(rf"{file}(?: \(|, ){name}", text)
    named += [(path, one) for one, path in re.findall(rf"{name} in {file}", text)]
    named = [(path, one) for path, one in named if not one.endswith(".py")]
    assert len(named) > 15
    for path, one in named:
        source = (ROOT / path).read_text()
        for part in one.split("."):
            assert re.search(rf"\b(def|class) {part}\b", source), f"{path} has no {one}"


def test_extras_that_are_named_are_there():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    text = "".join((ROOT / page).read_text() for page in PAGES)
    found = set(re.findall(r"gangsched\[(\w+)\]", text))
    assert found
    assert found <= project["optional-dependencies"].keys()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.relative_to(ROOT)))
def test_an_example_says_where_its_config_maps_come_from(path):
    """A job without the ConfigMap that it mounts waits, and its file says how to make one.

    For the examples of the guides their table says so.
    """
    text, folder = path.read_text(), ROOT
    head = [line for line in text.splitlines() if line.startswith("#")]
    if path.is_relative_to(ROOT / "examples" / "guides"):
        head = (ROOT / "examples" / "guides" / "guides.yaml").read_text().splitlines()
        folder = path.parent
    made = [
        re.search(r"kubectl create configmap (\S+) --from-file=(?:\S+=)?(\S+)", line)
        for line in head
    ]
    files = [(one[1], folder / one[2]) for one in made if one]
    for name in _config_maps(yaml.safe_load_all(text)):
        named = [file for config_map, file in files if config_map == name]
        assert named, f"its head gives no `kubectl create configmap {name}`"
        assert any(file.exists() for file in named), f"{named} is not there"


def _config_maps(value: object) -> set[str]:
    """Return the names of all ConfigMaps that an object mounts."""
    if isinstance(value, dict):
        own = {value["configMap"]["name"]} if "configMap" in value else set()
        return own.union(*(_config_maps(one) for one in value.values()))
    if isinstance(value, str):
        return set()
    try:
        return set().union(*(_config_maps(one) for one in value))
    except TypeError:
        return set()


def test_a_block_without_a_tag_and_a_command_without_a_test_are_found(tmp_path, monkeypatch):
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    fences = "```\nls\n```\n\n    ls\n\n1. here\n\n   ```sh\n   ls -l \\\n     -a\n   ```\n"
    (tmp_path / "new.md").write_text(
        f"# New\n\n{fences}\n```yaml\nkind: Queue\n---\nplacer: x\n```\n"
    )
    assert pages.untagged("new.md") == ["new.md:3", "new.md:7"]
    _, line, queue, settings = pages.items("new.md")
    assert (line.text.split(), line.heading) == (["ls", "-l", "-a"], "New")
    assert (queue.kind, settings.kind) == ("object", "settings")
    assert not pages.runs(line)
