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
            lines.append(f"mkdir -p $(dirname {place}) && touch {place}")
        else:
            lines.append(f"mkdir -p {place}")
        lines.append(f"mount --bind {source} {place}")
        if mount.read_only:
            lines.append(f"mount -o remount,bind,ro {place}")
    if image is not None and image.read_only:
        lines.append(f"mount -o remount,bind,ro {target}")
    return "\n".join(lines)


def _of_machine(base: str, target: str) -> list[str]:
    """Cover each top folder of the machine by an overlay.

    (One overlay of / would do for root; inside a user namespace the kernel refuses to stack on a
    tree with locked mounts, and such a folder is then bound as it is.)
    """
    lines = []
    for top in sorted(Path("/").iterdir()):
        name = shlex.quote(top.name)
        if top.is_symlink():
            lines.append(f"ln -s {shlex.quote(str(top.readlink()))} {target}/{name}")
        elif top.is_dir():
            lines.append(f"mkdir {target}/{name}")
            if top.name not in ("proc", "sys", "dev"):
                options = f"lowerdir=/{name},upperdir={base}/u/{name},workdir={base}/w/{name}"
                lines += [
                    f"mkdir {base}/u/{name} {base}/w/{name}",
                    (
                        f"mount -t overlay overlay -o {options},userxattr {target}/{name} "
                        f"2>/dev/null || mount --rbind /{name} {target}/{name}"
                    ),
                ]
    return lines + [
        f"mount --rbind {shlex.quote(m)} {target}{shlex.quote(m)}" for m in _host_mounts()
    ]


def _of_image(image: Image, base: str, target: str) -> list[str]:
    """Cover an image's root by one overlay."""
    options = f"lowerdir={shlex.quote(str(image.root))},upperdir={base}/u,workdir={base}/w"
    return [
        f"mount -t overlay overlay -o {options},userxattr {target}",
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
