"""The files that ship with the project: CRDs, manifests and examples.

In a checkout they lie beside the package, in an installed wheel inside it.
"""

from pathlib import Path
from typing import Any

import yaml

_PACKAGE = Path(__file__).parent
_INSTALLED = _PACKAGE / "files"
"""Where a wheel has them: see `force-include` in pyproject.toml."""
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The same documents ten times as fast, where PyYAML was built with libyaml."""


def folder(name: str) -> Path:
    """Return a folder that ships with the project, as `manifests/base`."""
    root = _INSTALLED if _INSTALLED.is_dir() else _PACKAGE.parent
    return root / name


def shipped(name: str, file: str = "") -> list[dict[str, Any]]:
    """Return every YAML document of a folder that ships with the project, or of one file there."""
    documents: list[dict[str, Any]] = []
    for path in sorted(folder(name).iterdir(), key=lambda item: item.name):
        whole = path.name.endswith(".yaml") and path.name != "kustomization.yaml"
        if path.name == file or (whole and not file):
            documents += yaml_documents(path.read_text())
    return documents


def yaml_documents(text: str) -> list[dict[str, Any]]:
    """Return the YAML documents of a text that is ours, without those that are empty."""
    return [document for document in yaml.load_all(text, _LOADER) if document]
