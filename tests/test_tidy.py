"""The style is a test: sizes, docstrings, no stray prints, generated files up to date."""

import ast
from pathlib import Path

import pytest

from gangsched.api.crdgen import rendered

ROOT = Path(__file__).parents[1]
SOURCES = sorted(
    path
    for folder in ("gangsched", "policies", "simulator", "bench", "examples")
    for path in (ROOT / folder).rglob("*.py")
)
FUNCTION_MAX = 70
MODULE_MAX = 400
# The engine is one state machine: cutting it would hide its drawing from its code.
LARGE: dict[str, int] = {}


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_sizes_and_docstrings(path):
    text = path.read_text()
    tree = ast.parse(text)
    name = str(path.relative_to(ROOT))
    assert text.count("\n") <= LARGE.get(name, MODULE_MAX), "split the module"
    assert ast.get_docstring(tree), "a module says what it is for"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or 0) - node.lineno + 1
            assert lines <= FUNCTION_MAX, f"{node.name} has {lines} lines"


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_nothing_is_left_to_do(path):
    for number, line in enumerate(path.read_text().splitlines(), 1):
        assert "TODO" not in line, f"line {number}"
        assert "FIXME" not in line, f"line {number}"


def test_crds_are_what_the_models_say():
    for path, text in rendered(ROOT / "crds").items():
        assert path.read_text() == text, f"{path.name} is out of date: run `make crds`"
