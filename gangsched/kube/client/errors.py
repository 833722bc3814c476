"""Errors of the Kubernetes API, as exceptions of this package.

KubeError
├── NotFound            404
├── Conflict            409: another write came first, or the object exists
├── Gone                410: the resource version is too old, list again
├── Forbidden           401, 403
│   └── NoRight         403 by RBAC
├── Invalid             400, 422: the object itself is refused
├── Throttled           429
├── Unavailable         5xx, or no connection at all
└── NotLeading          never sent: another process may lead
"""

import re

_BY_RBAC = re.compile(r'User "[^"]*" cannot \w+ resource')
"""The text of an RBAC denial; the texts of admission and quotas differ."""


class KubeError(Exception):
    """The API server rejected a request or gave no answer; the message is its own."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class NotFound(KubeError):  # noqa: N818 -- named as the API names its reasons
    """The object does not exist."""


class Conflict(KubeError):  # noqa: N818
    """Another write came first, or the object exists already."""


class Gone(KubeError):  # noqa: N818
    """The resource version is too old."""


class Forbidden(KubeError):  # noqa: N818
    """The caller may not do that."""


class RbacDenied(Forbidden):
    """RBAC denies the request; a new API server denies all until it has read its rules."""


class Invalid(KubeError):  # noqa: N818
    """The API server rejects the object as invalid."""


class Throttled(KubeError):  # noqa: N818
    """The API server requests a later retry."""


class Unavailable(KubeError):  # noqa: N818
    """The API could not be reached or failed by itself."""


class NotLeader(KubeError):  # noqa: N818
    """A write was not sent, since another process may lead."""


class EngineError(Exception):
    """The engine failed on a fact: its state may be wrong, so the process must restart."""


class LeadershipLostError(Exception):
    """Another process may lead now; this one must stop."""


_BY_STATUS: dict[int, type[KubeError]] = {
    400: Invalid,
    401: Forbidden,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: Throttled,
}


def error_for(status: int, message: str) -> KubeError:
    """Return the error that fits an HTTP status."""
    kind = _BY_STATUS.get(status, Unavailable if status >= 500 else KubeError)
    if kind is Forbidden and _BY_RBAC.search(message):
        kind = RbacDenied
    return kind(status, message)


RETRIABLE = (RbacDenied, Throttled, Unavailable)
"""Errors of requests that may succeed on a retry without a change."""
