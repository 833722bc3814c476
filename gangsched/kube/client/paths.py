"""Paths of API objects with names that users chose.

A name with slashes, dots or a question mark would lead to another object, with our permissions.
"""

import re
from urllib.parse import quote

_DNS_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_DNS_LENGTH = 253


def object_path(collection: str, name: str) -> str:
    """Return the path of an object in a collection, whatever its name is."""
    return f"{collection}/{quote(name, safe='')}"


def is_dns_name(name: str) -> bool:
    """Return whether a name is valid for an object: a DNS subdomain (RFC 1123)."""
    return len(name) <= _DNS_LENGTH and _DNS_NAME.fullmatch(name) is not None


def strays(path: str) -> bool:
    """Return whether a path has empty segments, or segments that lead to another folder."""
    segments = path.partition("?")[0].split("/")[1:]
    return any(segment in ("", ".", "..") for segment in segments)
