"""The image's base: Debian's packages, unpacked; none of their scripts is run."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from layout import run

from gangsched.local.gobuild import Progress

SUITE = "trixie"
PYTHON = "3.13"
"""The version that this suite of Debian has."""
PACKAGES = (
    "base-files",
    "ca-certificates",
    "libstdc++6",
    "netbase",
    f"python{PYTHON}",
    "tzdata",
)
CONFIGURES = ("debconf", "mawk", "openssl")
"""What others depend on only to be configured, which is not done here."""
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")

BIN = "usr/local/bin"
AUTHORITIES = "etc/ssl/certs/ca-certificates.crt"
USER = 65532
USERS = {
    "etc/passwd": "root:x:0:0:root:/root:/usr/sbin/nologin\n"
    f"gangsched:x:{USER}:{USER}:gangsched:/tmp:/usr/sbin/nologin\n",
    "etc/group": f"root:x:0:\ngangsched:x:{USER}:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}
_UNREAD = ("bash-completion", "bug", "info", "lintian", "man", "perl5")


class ImageError(Exception):
    """The image cannot be built here; the message says why."""


def packages(
    folder: Path, arch: str, mirror: str, *, fresh: bool, progress: Progress
) -> list[Path]:
    """Return the packages of the base, and all that they depend on; apt checks each of them.

    They stay in the folder, and are used until newer ones were asked for and are all there.

    Raises:
        ImageError: this machine does not know where Debian's packages are.

    """
    if fresh or not folder.exists():
        for tool in ("apt-get", "dpkg-deb"):
            if not shutil.which(tool):
                raise ImageError(f"{tool} not found: the image is built where Debian's tools are")
        if not KEYRING.exists():
            raise ImageError(f"{KEYRING} not found: install the package debian-archive-keyring")
        progress(f"installing Debian's packages ({SUITE}, {arch}) into the user's cache")
        with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
            archives = _download(Path(temporary), arch, mirror)
            shutil.rmtree(folder, ignore_errors=True)
            archives.rename(folder)
    return sorted(deb for deb in folder.glob("*.deb") if _name(deb) not in CONFIGURES)


def _download(work: Path, arch: str, mirror: str) -> Path:
    """Have apt download, with a state of its own; return the folder of the packages."""
    archives = work / "cache" / "archives"
    for place in (archives / "partial", work / "state" / "lists" / "partial"):
        place.mkdir(parents=True)
    (work / "status").touch()
    (work / "sources.list").write_text("".join(_sources(mirror)))
    (work / "apt.conf").write_text(_apt_settings(work, arch))
    apt = ("apt-get", "-q", "-c", work / "apt.conf")
    run(*apt, "update", "-o", "APT::Update::Error-Mode=any")
    run(*apt, "install", "--yes", "--download-only", *PACKAGES)
    return archives


def _name(deb: Path) -> str:
    return deb.name.partition("_")[0]


def _sources(mirror: str) -> Iterator[str]:
    """Return apt's lines: the mirrors that this machine has its own Debian packages from."""
    main = security = mirror
    if not mirror:
        listed = run("apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages")
        known = {uri.rstrip("/").rpartition("/")[2]: uri for uri in listed.splitlines()}
        main, security = known.get("debian", ""), known.get("debian-security", "")
    if not main:
        raise ImageError("this machine's apt has no mirror of Debian: say MIRROR=URL")
    signed = f"deb [signed-by={KEYRING}]"
    yield f"{signed} {main} {SUITE} main\n"
    if security and not mirror:
        yield f"{signed} {main} {SUITE}-updates main\n"
        yield f"{signed} {security} {SUITE}-security main\n"


def _apt_settings(folder: Path, arch: str) -> str:
    """Return settings by which apt looks at nothing of this machine but how to reach a mirror."""
    hooks = ("APT::Update::Post-Invoke", "APT::Update::Post-Invoke-Success", "APT::Architectures")
    values = {
        "APT::Architecture": arch,
        "APT::Sandbox::User": "root",
        "APT::Install-Recommends": "false",
        "Dir::State": folder / "state",
        "Dir::State::status": folder / "status",
        "Dir::Cache": folder / "cache",
        "Dir::Log": folder / "log",
        "Dir::Etc::SourceList": folder / "sources.list",
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::Etc::Preferences": "/dev/null",
        "Dir::Etc::PreferencesParts": "/dev/null",
    }
    lines = [f"#clear {name};" for name in hooks]
    lines += [f'{name} "{value}";' for name, value in values.items()]
    return "\n".join([*lines, ""])


def lay_base(debs: list[Path], folder: Path) -> None:
    """Unpack the packages, and write the files that their scripts would have made."""
    described = folder / "var/lib/dpkg/status.d"
    for deb in debs:
        run("dpkg-deb", "--extract", deb, folder)
        described.mkdir(parents=True, exist_ok=True)
        # Where scanners look for what an image is made of when dpkg is not in it.
        (described / _name(deb)).write_text(run("dpkg-deb", "--field", deb))
    roots = sorted((folder / "usr/share/ca-certificates").rglob("*.crt"))
    files = USERS | {AUTHORITIES: "".join(root.read_text() for root in roots)}
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    for link in ("python3", "python"):
        (folder / BIN).mkdir(parents=True, exist_ok=True)
        (folder / BIN / link).symlink_to(f"/usr/bin/python{PYTHON}")


def of_base(path: str) -> bool:
    """Tell whether a file of the packages belongs into the image."""
    parts = path.split("/")
    if parts[:3] == ["usr", "share", "doc"]:
        return len(parts) < 5 or parts[-1] == "copyright"
    return not (parts[:2] == ["usr", "share"] and set(parts[2:3]) & set(_UNREAD))
