"""Paths of API objects with names that users chose.

A name with slashes, dots or a question mark would lead to another object than is meant, with our
rights.
"""

import re
from urllib.parse import quote

_DNS_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_DNS_LENGTH = 253


def named(collection: str, name: str) -> str:
    """Return the path of an object in a collection, whatever its name is."""
    return f"{collection}/{quote(name, safe='')}"


def is_dns_name(name: str) -> bool:
    """Return whether an object may have a name: a DNS subdomain (RFC 1123)."""
    return len(name) <= _DNS_LENGTH and _DNS_NAME.fullmatch(name) is not None


def strays(path: str) -> bool:
    """Return whether a path has segments that lead out of it, or are empty."""
    segments = path.partition("?")[0].split("/")[1:]
    return any(segment in ("", ".", "..") for segment in segments)
