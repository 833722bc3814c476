"""The address of a store: what STORAGE_URI may be."""

import re
from dataclasses import dataclass

from gangsched.core.bounds import STORAGE_URI_LETTERS

MOUNTS = "/mnt"
"""The folder below which file:// reads: volumes are mounted there, and nothing else is."""

CLAIM_MOUNT = "/mnt/storage"
"""Where the controller of TrainJobs mounts the claim of pvc://."""

SCHEMES = ("file", "hf", "pvc", "s3")

_HOSTS = {
    "file": re.compile(r""),
    "hf": re.compile(r"[A-Za-z0-9][-A-Za-z0-9._]{0,95}"),
    "pvc": re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?"),
    "s3": re.compile(r"[a-z0-9][-a-z0-9.]{1,61}[a-z0-9]"),
}
_ALLOWED = {
    "file": "file:///mnt/FOLDER",
    "hf": "hf://OWNER/NAME",
    "pvc": "pvc://CLAIM/FOLDER",
    "s3": "s3://BUCKET/PREFIX",
}
_CONTROL = re.compile(r"[\x00-\x20\x7f]")
_SHOWN = 100


class StorageError(Exception):
    """The data cannot be fetched; the message says why, and contains no token."""


@dataclass(frozen=True, slots=True)
class Source:
    """A place in a store: `path` is relative and has no `..`."""

    scheme: str
    host: str
    path: str


def parse_source(uri: str) -> Source:
    """Return the place that an address names.

    Raises:
        StorageError: it is no address that an initializer reads.

    """
    if len(uri) > STORAGE_URI_LETTERS.most:
        raise StorageError(
            f"STORAGE_URI has {len(uri)} characters; at most {STORAGE_URI_LETTERS.most} are allowed"
        )
    scheme, separator, rest = uri.partition("://")
    if not separator or scheme not in SCHEMES:
        # The whole address might hold a password: the scheme alone is shown.
        raise StorageError(
            f"STORAGE_URI has the scheme {scheme[:_SHOWN] if separator else ''!r}; allowed are: "
            f"{', '.join(_ALLOWED.values())}"
        )
    host, _, path = rest.partition("/")
    parts = path.rstrip("/").split("/") if path.rstrip("/") else []
    if _CONTROL.search(uri) or not _HOSTS[scheme].fullmatch(host) or {"", ".", ".."} & set(parts):
        raise StorageError(
            f"STORAGE_URI is no address of {scheme}; {_ALLOWED[scheme]} is allowed, without `..`, "
            "white space, user or password"
        )
    if scheme == "file":
        if parts[:1] != [MOUNTS.strip("/")] or len(parts) == 1:
            raise StorageError(
                f"STORAGE_URI is file:///{path[:_SHOWN]}; only volumes mounted below {MOUNTS} are "
                f"read, as in {_ALLOWED[scheme]}"
            )
        parts = parts[1:]
    if scheme == "hf" and not all(_HOSTS["hf"].fullmatch(part) for part in parts[:1]):
        raise StorageError("STORAGE_URI names no repository; hf://OWNER/NAME is allowed")
    return Source(scheme, host, "/".join(parts))


def patterns(text: str, most: int) -> list[str]:
    """Return the patterns of IGNORE_PATTERNS, which commas separate.

    Raises:
        StorageError: there are more than `most`.

    """
    listed = [item.strip() for item in text.split(",") if item.strip()]
    if len(listed) > most:
        raise StorageError(
            f"IGNORE_PATTERNS has {len(listed)} patterns; at most {most} are allowed"
        )
    return listed
