"""Loads images into a local control plane: pods of process nodes then run on their root."""

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from gangsched.local import components, gobuild
from gangsched.local.agent import images
from gangsched.local.gobuild import Progress
from gangsched.local.plane import Plane, PlaneError

_TAG = "org.opencontainers.image.ref.name"


def load(plane: Plane, layout: Path, name: str, progress: Progress) -> Path:
    """Unpack an image of an OCI layout; return its root. Pods name the image by `name`, with a tag.

    Raises:
        PlaneError: the plane does not run, or the layout has no image of this tag.

    """
    if not plane.running():
        raise PlaneError(f"local control plane {plane.name!r} does not run")
    _, colon, tag = name.rpartition(":")
    if not colon or "/" in tag:
        raise PlaneError(f"{name}: give NAME:TAG, with a tag of the layout")
    config = _config(layout, tag)
    umoci = components.ensure(progress, components.IMAGES) / "umoci"
    progress(f"unpacking {name}")
    target = images.place(plane.folder / "agent" / "images", name)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as temporary:
        unpacked = Path(temporary) / "image"
        unpacked.mkdir()
        image = ("--image", f"{layout}:{tag}")
        command = [str(umoci), "raw", "unpack", "--rootless", *image, str(unpacked / "root")]
        try:
            gobuild.run(command, f"unpacking {name}")
        except gobuild.BuildError as error:
            raise PlaneError(str(error)) from error
        (unpacked / "config.json").write_text(json.dumps(config))
        shutil.rmtree(target, ignore_errors=True)
        unpacked.rename(target)
    return target / "root"


def _config(layout: Path, tag: str) -> dict[str, Any]:
    """Return the configuration of an image of a layout."""
    try:
        entries = json.loads((layout / "index.json").read_text())["manifests"]
        tagged = {entry.get("annotations", {}).get(_TAG): entry for entry in entries}
        if tag not in tagged:
            tags = ", ".join(sorted(filter(None, tagged)))
            raise PlaneError(f"{layout} has no image tagged {tag!r}; its tags: {tags or 'none'}")
        manifest = _blob(layout, tagged[tag])
        config: dict[str, Any] = _blob(layout, manifest["config"]).get("config") or {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise PlaneError(f"{layout} is not an OCI layout: {error}") from error
    return config


def _blob(layout: Path, described: dict[str, str]) -> dict[str, Any]:
    algorithm, _, digest = described["digest"].partition(":")
    document: dict[str, Any] = json.loads((layout / "blobs" / algorithm / digest).read_text())
    return document
