"""Builds the container image without a container engine and without root.

    Debian's packages (apt, dpkg-deb)   the locked wheels (uv)   gangsched's wheel (uv)
              |                                 |                        |
              +---- two layers, in the user's cache ----+      one layer, made each time
                                      |                                  |
                                      +---- umoci: an OCI layout, and a tar of it ----+

The same packages, lock and sources give the same digest: files are sorted, belong to root, have
one time, and one of two modes. Nothing of the image is run while it is built.
"""

import argparse
import contextlib
import fcntl
import hashlib
import importlib.metadata
import os
import platform
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from debian import AUTHORITIES, BIN, PYTHON, SUITE, USER, ImageError, lay_base, of_base, packages
from layout import ROOT, Layout, run, write_tar
from rich.console import Console

from gangsched.local import components, gobuild
from gangsched.local.gobuild import Progress
from gangsched.local.progress import show_progress

LOCK = ROOT / "requirements-image.lock"
UV = Path(sys.executable).parent / "uv"
NAME = "gangsched"
SITE = f"usr/local/lib/python{PYTHON}/dist-packages"

VARIABLES = {
    "PATH": "/usr/local/bin:/usr/bin",
    "LANG": "C.UTF-8",
    "PYTHONUNBUFFERED": "1",
    "SSL_CERT_FILE": f"/{AUTHORITIES}",
}
ENTRY = f"""#!/usr/bin/python{PYTHON}
import sys
from {{module}} import {{function}}
sys.exit({{function}}())
"""

_EPOCH_S = 315532800
"""1980, where the times of wheels begin: the time of all files that no commit of ours made."""


WHEELS = {"amd64": "x86_64-manylinux_2_28", "arm64": "aarch64-manylinux_2_28"}
"""What wheels call the machines that Debian and OCI call alike."""


def install(arch: str, folder: Path, *what: object) -> None:
    """Unpack wheels into a folder; nothing is asked of a registry where the cache has them."""
    command = (UV, "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:")
    target = ("--target", folder, "--python-version", PYTHON, "--python-platform", WHEELS[arch])
    _cached_first(*command, *target, *what)


def _cached_first(uv: object, *command: object, **more: str) -> None:
    try:
        run(uv, "--offline", *command, **more)
    except gobuild.BuildError:
        run(uv, *command, **more)


def of_wheels(path: str) -> bool:
    """Tell whether a file of a wheel belongs into the image: no tests, headers, or machine's own.

    Programs name the Python that installed them; ours are written by `lay_programs`.
    """
    folders = path.removeprefix(f"{SITE}/").split("/")
    unused = {"tests", "include", "__pycache__"} & set(folders[:-1])
    own = folders[-1] in ("direct_url.json", "uv_cache.json", ".lock")
    return not (unused or own or folders[0] == "bin")


def lay_programs(site: Path, folder: Path) -> None:
    """Write the programs of gangsched's wheel."""
    (found,) = site.glob(f"{NAME}-*.dist-info")
    folder.mkdir(parents=True)
    for point in importlib.metadata.Distribution.at(found).entry_points:
        if point.group == "console_scripts":
            program = folder / point.name
            program.write_text(ENTRY.format(module=point.module, function=point.attr))
            program.chmod(0o755)


def base(umoci: Path, arch: str, mirror: str, *, fresh: bool, progress: Progress) -> Path:
    """Return a layout in the user's cache that has all but gangsched itself, as the tag `base`."""
    cache = components.cache() / "image"
    debs = cache / f"{SUITE}-{arch}"
    found = packages(debs, arch, mirror, fresh=fresh or bool(mirror), progress=progress)
    key = hashlib.sha256(LOCK.read_bytes() + umoci.read_bytes())
    for source in sorted(Path(__file__).parent.glob("*.py")):
        key.update(source.read_bytes())
    for deb in found:
        key.update(deb.name.encode() + hashlib.sha256(deb.read_bytes()).digest())
    layout = cache / f"base-{arch}-{key.hexdigest()[:16]}"
    if layout.exists():
        return layout
    for older in cache.glob(f"base-{arch}-*"):
        shutil.rmtree(older)
    with tempfile.TemporaryDirectory(dir=cache) as temporary:
        work = Path(temporary)
        made = Layout(umoci, work / "layout", _EPOCH_S)
        run(umoci, "init", "--layout", made.folder)
        made("new", "base")
        progress("installing the locked wheels into a layer")
        lay_base(found, work / "base")
        made.add("base", f"packages of Debian {SUITE}", work / "base", of_base)
        install(arch, work / "wheels" / SITE, "--require-hashes", "-r", LOCK)
        made.add("base", f"wheels of {LOCK.name}", work / "wheels", of_wheels)
        made.folder.rename(layout)
    return layout


def build(out: Path, arch: str, mirror: str, *, fresh: bool, progress: Progress) -> str:
    """Build the image into `out`: the layout in `oci`, and a tar of it; return what was built.

    What was there before stays until all of it is built.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    tag = project["version"]
    umoci = components.ensure(progress, components.IMAGES) / "umoci"
    cache = components.cache() / "image"
    cache.mkdir(parents=True, exist_ok=True)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent) as temporary:
        work = Path(temporary)
        made = work / "image"
        layout = Layout(umoci, made / "oci", _time_s())
        with (cache / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # another checkout may build too
            ready = base(umoci, arch, mirror, fresh=fresh, progress=progress)
            shutil.copytree(ready, layout.folder, copy_function=_link)
        progress(f"building {NAME} {tag}")
        dated = {"SOURCE_DATE_EPOCH": str(layout.time_s)}
        _cached_first(UV, "build", "--quiet", "--wheel", "--out-dir", work, ROOT, **dated)
        (wheel,) = work.glob("*.whl")
        install(arch, work / "root" / SITE, wheel)
        lay_programs(work / "root" / SITE, work / "root" / BIN)
        layout.add("base", wheel.name, work / "root", of_wheels)
        layout("config", "base", "--tag", tag, *_config(layout, arch, project))
        layout("rm", "base")
        run(umoci, "gc", "--layout", layout.folder)
        write_tar(layout, made / f"{NAME}-{tag}.tar", f"{NAME}:{tag}")
        digest, manifest = layout.manifest()
        shutil.rmtree(out, ignore_errors=True)
        made.rename(out)
    mib = sum(one["size"] for one in manifest["layers"]) / 2**20
    return f"{out}/oci:{tag}, {NAME}-{tag}.tar: {mib:.0f} MiB in layers, {digest}"


def _link(source: str, target: str) -> None:
    """Link a blob, which is never written to; copy the rest."""
    if "/blobs/" in source:
        with contextlib.suppress(OSError):  # the cache may lie on another file system
            os.link(source, target)
            return
    shutil.copy2(source, target)


def _time_s() -> int:
    """Return the image's time: that of the commit, unless another is asked for."""
    asked = os.environ.get("SOURCE_DATE_EPOCH") or _git("log", "-1", "--format=%ct")
    return int(asked or _EPOCH_S)


def _git(*words: str) -> str:
    """Return what git says of the checkout; "" where there is none."""
    try:
        return run("git", *words).strip()
    except gobuild.BuildError:
        return ""


def _config(layout: Layout, arch: str, project: Mapping[str, str]) -> Iterator[str]:
    """Return how the image runs, and what it says of itself, as umoci's options."""
    created = datetime.fromtimestamp(layout.time_s, UTC).isoformat()
    revision = _git("rev-parse", "HEAD")
    changed = "-dirty" if revision and _git("status", "--porcelain") else ""
    labels = {
        "title": NAME,
        "description": project["description"],
        "licenses": project["license"],
        "version": project["version"],
        "revision": f"{revision}{changed}",
    }
    yield from ("--os", "linux", "--architecture", arch)
    yield from ("--no-history", "--created", created)
    yield from ("--config.user", f"{USER}:{USER}", "--config.workingdir", "/")
    yield from ("--config.entrypoint", NAME, "--config.cmd", "run")
    for name, value in VARIABLES.items():
        yield from ("--config.env", f"{name}={value}")
    for name, value in labels.items():
        yield from ("--config.label", f"org.opencontainers.image.{name}={value}")


def main() -> None:
    """Build the image."""
    own = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    parser = argparse.ArgumentParser(description="Builds the container image.")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "image")
    parser.add_argument("--arch", choices=WHEELS, default=own)
    parser.add_argument("--mirror", default="", help="take Debian's newest from there")
    parser.add_argument("--fresh", action="store_true", help="take Debian's newest packages")
    wanted = parser.parse_args()
    console = Console()
    try:
        with show_progress(console, "looking for the parts of the image") as progress:
            done = build(
                wanted.out, wanted.arch, wanted.mirror, fresh=wanted.fresh, progress=progress
            )
    except (ImageError, gobuild.BuildError) as error:
        sys.exit(f"error: {error}")
    console.print(done, soft_wrap=True, highlight=False)


if __name__ == "__main__":
    main()
