"""Type-checking imports respect the layers, and hide no cycle that is not listed here."""

import ast
import gc
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from gangsched.imports import collecting_nothing

ROOT = Path(__file__).parents[1]
PACKAGES = ("gangsched", "policies", "simulator")

HIDDEN: frozenset[tuple[str, str]] = frozenset()
"""Who imports whom for types, where the other imports it when it runs. The list only shrinks."""


@cache
def modules() -> dict[str, Path]:
    """Return the source files by the names of their modules."""
    found = {}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(nodes: list[ast.stmt], known: set[str]) -> set[str]:
    """Return the modules of ours that statements import, wherever in them."""
    found = set()
    for node in (one for statement in nodes for one in ast.walk(statement)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found.add(whole if whole in known else node.module)
    return found & known


def _for_types(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


@cache
def graphs() -> tuple[dict[str, set[str]], set[tuple[str, str]]]:
    """Return whom each module imports when it is loaded, and who imports whom for types alone."""
    known, running, typed = set(modules()), {}, set()
    for name, path in modules().items():
        body = ast.parse(path.read_text()).body
        loaded = [one for one in body if not isinstance(one, ast.FunctionDef | ast.ClassDef)]
        running[name] = imported([one for one in loaded if not _for_types(one)], known)
        only = imported([one for one in body if _for_types(one)], known)
        typed |= {(name, other) for other in only - {name}}
    return running, typed


def reaches(begin: str, wanted: str) -> bool:
    """Tell whether loading one module loads another."""
    running, _ = graphs()
    seen, todo = {begin}, [begin]
    while todo:
        fresh = running[todo.pop()] - seen
        seen |= fresh
        todo += fresh
    return wanted in seen


def layers() -> list[dict[str, int]]:
    """Return of each contract of layers the modules with their ranks; 0 may import all others."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    found = []
    for contract in settings["contracts"]:
        if contract["type"] == "layers":
            for container in contract.get("containers", [""]):
                dot = f"{container}." if container else ""
                names = [layer.split(" | ") for layer in contract["layers"]]
                found.append(
                    {
                        f"{dot}{one.strip()}": rank
                        for rank, group in enumerate(names)
                        for one in group
                    }
                )
    return found


def _rank(contract: dict[str, int], module: str) -> tuple[str, int] | None:
    parts = module.split(".")
    parents = (".".join(parts[: end + 1]) for end in range(len(parts)))
    return next(((one, contract[one]) for one in parents if one in contract), None)


def test_no_import_for_types_crosses_a_layer():
    wrong = []
    for importer, other in sorted(graphs()[1]):
        for contract in layers():
            above, below = _rank(contract, importer), _rank(contract, other)
            if above and below and above[0] != below[0] and above[1] >= below[1]:
                wrong.append(f"{importer} -> {other}")
    assert wrong == []


def test_imports_for_types_that_hide_a_cycle_are_listed_and_no_more():
    found = {(importer, other) for importer, other in graphs()[1] if reaches(other, importer)}
    assert found - HIDDEN == set(), "import it when it runs, or move what both need"
    assert HIDDEN - found == set(), "take it off the list: it is no cycle any more"


def test_contracts_are_read():
    """An empty table of layers would let everything pass."""
    ranks = [len(one) for one in layers()]
    assert len(ranks) >= 3
    assert all(ranks)
    assert len(graphs()[1]) >= len(HIDDEN)
    assert _rank(layers()[1], "gangsched.kube.service")


ENGINE = "gangsched.core.engine"
OF_THE_ENGINE = frozenset(
    {
        f"{ENGINE}.engine",
        f"{ENGINE}.scheduling_engine",
        f"{ENGINE}.view",
        f"{ENGINE}.limits",
        f"{ENGINE}.gangs.gang",
        f"{ENGINE}.gangs.incomplete",
        f"{ENGINE}.gangs.late_pods",
        f"{ENGINE}.gangs.member",
        f"{ENGINE}.gangs.pod_templates",
        f"{ENGINE}.gangs.running_views",
    }
)
"""What drivers, commands and the simulator may import of the engine. The list only shrinks."""


def nodes_of(path: Path, word: str) -> Iterator[ast.AST]:
    """Yield the nodes of a source, if the word is in it: to parse all of them takes long."""
    text = path.read_text()
    if word in text:
        yield from ast.walk(ast.parse(text))


def _outside() -> dict[str, Path]:
    return {name: path for name, path in modules().items() if not name.startswith(ENGINE)}


def test_nobody_imports_a_part_of_the_engine():
    running, typed = graphs()
    pairs = {(name, other) for name in _outside() for other in running[name]} | typed
    parts = {
        f"{name} imports {other}"
        for name, other in pairs
        if other.startswith(f"{ENGINE}.") and not name.startswith(ENGINE)
        if other not in OF_THE_ENGINE
    }
    assert not parts, "ask the view of an engine"


def test_nobody_reads_the_parts_of_an_engine():
    """What can be asked of an engine is in its view; its parts are for tests of the core."""
    reads = {
        f"{name}, line {node.lineno}"
        for name, path in _outside().items()
        for node in nodes_of(path, ".parts")
        if isinstance(node, ast.Attribute) and node.attr == "parts"
        if ast.unparse(node.value).endswith("engine")
    }
    assert not reads, "ask the view of an engine"


def test_no_class_inherits_the_engine():
    heirs = {
        f"{name}.{node.name}"
        for name, path in modules().items()
        for node in nodes_of(path, "Engine")
        if isinstance(node, ast.ClassDef)
        if any(ast.unparse(base).split(".")[-1] == "Engine" for base in node.bases)
    }
    assert not heirs, "wrap it: see SchedulingEngine"


def test_the_solver_is_imported_by_its_own_module_alone():
    """It takes a second and 80 MB: gangsched.core.solver loads it with the first program."""
    importers = {
        name
        for name, path in modules().items()
        for node in nodes_of(path, "ortools")
        if (isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ortools"))
        or (isinstance(node, ast.Import) and any(a.name.startswith("ortools") for a in node.names))
    }
    assert importers == {"gangsched.core.solver"}


def _that_fails() -> None:
    assert not gc.isenabled()
    raise ImportError


def test_imports_pause_the_collector_and_freeze_what_they_made():
    before, made = gc.get_freeze_count(), [[] for _ in range(1000)]
    with pytest.raises(ImportError), collecting_nothing():
        _that_fails()
    assert gc.isenabled()
    assert gc.get_freeze_count() >= before + len(made)
