"""Layers of which each byte depends on the files alone, and the OCI layout that holds them."""

import io
import json
import os
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gangsched.local import gobuild

ROOT = Path(__file__).parents[2]


def run(*command: object, **more: str) -> str:
    """Run a tool to its end and return what it printed.

    Raises:
        BuildError: it failed.

    """
    line = [str(word) for word in command]
    return gobuild.run(line, f"running {Path(line[0]).name}", ROOT, os.environ | more)


@dataclass(frozen=True, slots=True)
class Layout:
    """An OCI layout, as umoci writes it."""

    umoci: Path
    folder: Path
    time_s: int

    def __call__(self, command: str, tag: str, *words: object) -> None:
        """Run a command of umoci on one of the layout's images."""
        image = f"{self.folder}:{tag}"
        run(self.umoci, *command.split(), "--image", image, *words, **self._time())

    def _time(self) -> dict[str, str]:
        return {"SOURCE_DATE_EPOCH": str(self.time_s)}

    def add(self, tag: str, what: str, folder: Path, belongs: Callable[[str], bool]) -> None:
        """Add a folder as a layer."""
        with tempfile.NamedTemporaryFile(dir=self.folder.parent, suffix=".tar") as layer:
            write_layer(folder, Path(layer.name), self.time_s, belongs)
            self("raw add-layer", tag, "--history.created_by", what, layer.name)

    def manifest(self) -> tuple[str, Mapping[str, Any]]:
        """Return the digest and the manifest of the only image."""
        (described,) = json.loads((self.folder / "index.json").read_text())["manifests"]
        digest = described["digest"]
        return digest, json.loads((self.folder / _blob(digest)).read_text())


def _blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def write_layer(folder: Path, target: Path, time_s: int, belongs: Callable[[str], bool]) -> None:
    """Write a folder as a layer: the same files give the same bytes."""
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as tar:
        for name in _chosen(folder, belongs):
            path = folder / name
            entry = tarfile.TarInfo(str(name))
            entry.mtime = time_s
            content = b""
            if path.is_symlink():
                entry.type, entry.linkname = tarfile.SYMTYPE, str(path.readlink())
                entry.mode = 0o777
            elif path.is_dir():
                entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name == Path("tmp") else 0o755
            else:
                content = _content(path, str(name), belongs)
                entry.size = len(content)
                entry.mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
            tar.addfile(entry, io.BytesIO(content))


def _chosen(folder: Path, belongs: Callable[[str], bool]) -> list[Path]:
    """Return what belongs into the image, with the folders it is in and those that came empty."""
    found: set[Path] = set()
    for place, folders, files in os.walk(folder):
        here = Path(place).relative_to(folder)
        links = [name for name in folders if (Path(place) / name).is_symlink()]
        kept = [here / name for name in (*files, *links) if belongs(str(here / name))]
        if kept or not (folders or files):
            found.update((here, *here.parents, *kept))
    return sorted(found - {Path()}, key=lambda path: path.parts)


def _content(path: Path, name: str, belongs: Callable[[str], bool]) -> bytes:
    content = path.read_bytes()
    if path.name != "RECORD":
        return content
    site = name.rsplit("/", 2)[0]
    lines = content.decode().splitlines(keepends=True)
    kept = (line for line in lines if belongs(f"{site}/{line.partition(',')[0].strip(chr(34))}"))
    return "".join(sorted(kept)).encode()


def write_tar(layout: Layout, target: Path, name: str) -> None:
    """Write the layout as one file, with the list by which `docker load` finds its way."""
    _, manifest = layout.manifest()
    listed = {
        "Config": _blob(manifest["config"]["digest"]),
        "RepoTags": [name],
        "Layers": [_blob(one["digest"]) for one in manifest["layers"]],
    }
    content = json.dumps([listed]).encode()

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        entry.mtime = layout.time_s
        entry.mode = 0o755 if entry.isdir() else 0o644
        return entry

    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(layout.folder.rglob("*")):
            tar.add(path, path.relative_to(layout.folder), recursive=False, filter=plain)
        entry = plain(tarfile.TarInfo("manifest.json"))
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
