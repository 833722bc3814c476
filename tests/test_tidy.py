"""Style rules that Ruff does not have: sizes, waiting, and files that are generated."""

import ast
import runpy
from collections import Counter
from pathlib import Path

import pytest
from mutations import Sample, StaleError, broken

from gangsched.api.crdgen import rendered

ROOT = Path(__file__).parents[1]
SOURCES = sorted(
    path
    for folder in ("gangsched", "policies", "simulator", "bench", "examples")
    for path in (ROOT / folder).rglob("*.py")
)
TESTS = sorted((ROOT / "tests").rglob("*.py"))
FUNCTION_MAX = 70
MODULE_MAX = 600  # about 400 is usual; no module is made only to stay below a limit


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_module_and_no_function_is_long(path):
    text = path.read_text()
    assert text.count("\n") <= MODULE_MAX, "the module does more than one thing"
    if text.count("\n") <= FUNCTION_MAX:
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or 0) - node.lineno + 1
            assert lines <= FUNCTION_MAX, f"{node.name} has {lines} lines"


def test_a_package_of_many_modules_says_why():
    counts = Counter(path.parent for path in SOURCES if path.name != "__init__.py")
    large = [f / "__init__.py" for f, count in counts.items() if count > 12]
    texts = {
        init: ast.get_docstring(ast.parse(init.read_text())) for init in large if init.exists()
    }
    silent = [
        str(init.parent.relative_to(ROOT))
        for init, text in texts.items()
        if "more than twelve modules because" not in (text or "")
    ]
    assert not silent, "sort the modules into packages, or say in the docstring why they are many"
    assert texts, "the rule is about nothing"


CLOCKS = {
    "time.sleep",
    "time.time",
    "time.monotonic",
    "time.perf_counter",
    "asyncio.sleep",
}
MAY_LOOK = {
    "waiting.py": "it waits for all others",
    "steady.py": "it tells how long each run took",
    "fuzz/run.py": "it runs for as many minutes as it is told",
    "integration/test_predictions.py": "its jobs come by the clock of its day",
    "simulator/test_chaos_parts.py": "a clock that is off is what it tests",
}


@pytest.mark.parametrize("path", TESTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_test_waits_by_a_clock_of_its_own(path):
    """Tests wait for conditions, by tests/waiting.py; letting other tasks run once is no wait."""
    if str(path.relative_to(ROOT / "tests")) in MAY_LOOK:
        return
    text = path.read_text()
    if not any(clock in text for clock in CLOCKS):
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in CLOCKS:
            assert ast.unparse(node) == "asyncio.sleep(0)", f"line {node.lineno}: use waiting.until"


def test_the_table_of_bounds_is_what_the_module_says():
    """What a bound is, and why, stands in one place: the page is written from it."""
    bounds = runpy.run_path(str(ROOT / "docs" / "bounds.py"))
    page = (ROOT / "docs" / "operations.md").read_text()
    assert page == bounds["written"](page), "operations.md is out of date: run `make bounds`"


def test_crds_are_what_the_models_say():
    for path, text in rendered(ROOT / "crds").items():
        assert path.read_text() == text, f"{path.name} is out of date: run `make crds`"


def test_every_test_module_has_a_name_of_its_own():
    names = Counter(path.name for path in TESTS if path.name.startswith("test_"))
    twice = sorted(name for name, times in names.items() if times > 1)
    assert twice == [], "pytest imports modules by their bare names, so one of two is never run"


def test_a_mutation_whose_line_is_gone_is_told():
    sample = Sample("what", "file.py", "one = 1", "one = 2")
    assert broken("if two:\n    one = 1\n", sample) == "if two:\n    one = 2\n"
    for text in ("", "one = 1\none = 1\n", "one = 1  # more\n"):
        with pytest.raises(StaleError, match=r"file.py: the line 'one = 1' is there \d times"):
            broken(text, sample)
