"""Type-checking imports respect the layers, and hide no cycle that is not listed here."""

import ast
import tomllib
from functools import cache
from pathlib import Path

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
