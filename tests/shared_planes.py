"""Which tests share a control plane: its name is a parameter of theirs."""

import re

_SHARED = re.compile(r"\[(deployed|direct|extender|laptop)\b")


def plane_of(nodeid: str) -> str:
    """Return the shared plane that a test needs, by the test's name; "" for none."""
    found = _SHARED.search(nodeid)
    return found[1] if found else ""
