"""Style rules that Ruff does not have: sizes and waiting."""

import ast
from collections import Counter
from pathlib import Path

import pytest
from mutations import Sample, StaleError, broken

ROOT = Path(__file__).parents[1]
SOURCES = sorted(
    path
    for folder in ("gangsched", "policies", "simulator", "bench", "examples")
    for path in (ROOT / folder).rglob("*.py")
)
TESTS = sorted((ROOT / "tests").rglob("*.py"))
FUNCTION_MAX = 70
MODULE_MAX = 600  # about 400 is usual; no module is made only to stay below a limit


def test_no_module_and_no_function_is_long():
    lengths = {path: path.read_text().count("\n") for path in SOURCES}
    modules = [
        f"{_named(path)} has {count} lines" for path, count in lengths.items() if count > MODULE_MAX
    ]
    assert not modules, "such a module does more than one thing"
    functions = [
        f"{node.name} of {_named(path)} has {lines} lines"
        for path, count in lengths.items()
        if count > FUNCTION_MAX
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if (lines := (node.end_lineno or 0) - node.lineno + 1) > FUNCTION_MAX
    ]
    assert not functions


def _named(path: Path) -> str:
    return str(path.relative_to(ROOT))


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


def test_no_test_waits_by_a_clock_of_its_own():
    """Tests wait for conditions, by tests/waiting.py; letting other tasks run once is no wait."""
    texts = {
        path: path.read_text()
        for path in TESTS
        if str(path.relative_to(ROOT / "tests")) not in MAY_LOOK
    }
    own = [
        f"{_named(path)}, line {node.lineno}: {ast.unparse(node)}"
        for path, text in texts.items()
        if any(clock in text for clock in CLOCKS)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in CLOCKS
        if ast.unparse(node) != "asyncio.sleep(0)"
    ]
    assert not own, "use waiting.until"


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
