"""The root folder of a namespaced pod, as the shell script that mounts it."""

import os
import shlex
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from gangsched.local.agent.images import Image

_LINKS = 40
"""Largest number of links that the kernel follows in one path."""

_OF_FILES = (
    *("9p", "btrfs", "erofs", "ext2", "ext3", "ext4", "f2fs", "nfs", "nfs4", "overlay"),
    *("squashfs", "virtiofs", "xfs", "zfs"),
)
"""File systems that hold files of the machine, as opposed to those of the kernel."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder or file that appears at a path inside the pod.

    `memory` is the folder of a volume that is kept in memory, and `most_bytes` how large it may
    grow; 0 sets no bound.
    """

    source: Path
    target: str
    read_only: bool = False
    memory: Path | None = None
    most_bytes: int = 0


def root_script(
    root: Path,
    name: str,
    mounts: list[Mount],
    image: Image | None = None,
    hidden: tuple[Path, ...] = (),
) -> str:
    """Return the shell script that builds a pod's root folder at `root/r`.

    It is that of an image, or else the machine's own; whatever is written stays in the pod.
    Programs of the pod get "permission denied" from the `hidden` files of devices.
    """
    base, target = shlex.quote(str(root)), shlex.quote(str(root / "r"))
    lines = [
        "mount --make-rprivate /",
        f"hostname {shlex.quote(name)}",
        f"mount -t tmpfs -o mode=755 tmpfs {base}",
        f"mkdir {base}/u {base}/w {base}/r",
        *(_of_machine(base, target) if image is None else _of_image(image, base, target)),
        f"mount -t proc proc {target}/proc",
        f"mount --rbind /dev {target}/dev",
        f"mount --rbind /sys {target}/sys",
        f"mount -t tmpfs -o mode=1777 tmpfs {target}/dev/shm",
        *(_without_device(shlex.quote(str(file)), target) for file in hidden),
    ]
    for folder, most_bytes in sorted({(m.memory, m.most_bytes) for m in mounts if m.memory}):
        size = f",size={most_bytes}" if most_bytes else ""
        lines.append(f"mount -t tmpfs -o mode=1777{size} tmpfs {shlex.quote(str(folder))}")
    for mount in sorted(mounts, key=lambda m: m.target):
        # A link such as /var/run -> /run would lead out of the new root: follow it here.
        real = os.path.realpath(mount.target) if image is None else within(image.root, mount.target)
        source, place = shlex.quote(str(mount.source)), f"{target}{shlex.quote(real)}"
        if mount.memory:
            lines.append(f"mkdir -p {source}")
        if mount.source.is_file():
            above = f"{target}{shlex.quote(str(PurePosixPath(real).parent))}"
            lines.append(f"[ -e {place} ] || {{ mkdir -p {above} && touch {place}; }}")
        else:
            lines.append(f"[ -d {place} ] || mkdir -p {place}")
        lines.append(f"mount --bind {source} {place}")
        if mount.read_only:
            lines.append(f"mount -o remount,bind,ro {place}")
    if image is not None and image.read_only:
        lines.append(f"mount -o remount,bind,ro {target}")
    return "\n".join(lines)


def _of_machine(base: str, target: str) -> list[str]:
    """Cover the machine's root by one overlay.

    Inside a user namespace the kernel refuses to stack on a tree with locked mounts: there each top
    folder gets an overlay of its own, and such a folder is bound as it is. A top folder that is a
    mount has its own overlay too, because that of / does not show what is mounted below it.
    """
    links, folders = [], []
    for top in sorted(Path("/").iterdir()):
        if top.is_symlink():
            links.append(f"ln -s {shlex.quote(str(top.readlink()))} {target}{_quoted(top)}")
        elif top.is_dir():
            folders.append(top)
    kernel = ("proc", "sys", "dev")
    own = [top for top in folders if top.name not in kernel]
    layers = [f"{base}/{layer}{_quoted(top)}" for top in own for layer in ("u", "w")]
    return [
        f"mkdir {base}/a {base}/b {' '.join(layers)}",
        f"if {_overlay('/', f'{base}/a', f'{base}/b', target)} 2>/dev/null; then :",
        *(_of_folder(top, base, target) for top in own if top.is_mount()),
        "else",
        f"mkdir {' '.join(f'{target}{_quoted(top)}' for top in folders)}",
        *links,
        *(_of_folder(top, base, target) for top in own),
        "fi",
        *(f"mount --rbind {shlex.quote(m)} {target}{shlex.quote(m)}" for m in _host_mounts()),
    ]


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))


def _overlay(lower: str, upper: str, work: str, place: str) -> str:
    options = f"lowerdir={lower},upperdir={upper},workdir={work},userxattr"
    return f"mount -t overlay overlay -o {options} {place}"


def _of_folder(top: Path, base: str, target: str) -> str:
    """Return the line that covers a top folder of the machine by an overlay, or else binds it."""
    name = _quoted(top)
    covered = _overlay(name, f"{base}/u{name}", f"{base}/w{name}", f"{target}{name}")
    return f"{covered} 2>/dev/null || mount --rbind {name} {target}{name}"


def _of_image(image: Image, base: str, target: str) -> list[str]:
    """Cover an image's root by one overlay."""
    return [
        _overlay(_quoted(image.root), f"{base}/u", f"{base}/w", target),
        f"mkdir -p {target}/proc {target}/dev {target}/sys",
    ]


def _without_device(file: str, target: str) -> str:
    """Return the line by which a device file cannot be opened, as with a cgroup of devices."""
    place = f"{target}{file}"
    hide = f"mount --bind {place} {place} && mount -o remount,bind,nodev {place}"
    return f"if [ -e {place} ]; then {hide}; fi"


def within(root: Path, target: str) -> str:
    """Return the target of a path by an image's own links, without leaving its root."""
    ahead, resolved, links = list(PurePosixPath(target).parts[:0:-1]), PurePosixPath("/"), 0
    while ahead:
        part = ahead.pop()
        path = root / (resolved / part).relative_to("/")
        if part == "..":
            resolved = resolved.parent
        elif path.is_symlink() and links < _LINKS:
            links += 1
            link = PurePosixPath(path.readlink())
            resolved = PurePosixPath("/") if link.is_absolute() else resolved
            ahead += [name for name in reversed(link.parts) if name != "/"]
        else:
            resolved /= part
    return str(resolved)


def _host_mounts() -> list[str]:
    """Return the mounts below / that hold files: an overlay of a folder does not show them.

    Drivers of GPUs are often such mounts: of a whole folder, or in a container of single files.
    """
    targets = []
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, target, kind = line.split()[:3]
        if kind in _OF_FILES and target != "/" and Path(target).exists():
            targets.append(target)
    return sorted(targets)
