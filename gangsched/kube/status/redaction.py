"""Redaction: sentences for a namespace do not name the gangs and queues of other tenants."""

import re
from collections.abc import Container

from gangsched.core.engine.view import EngineView
from gangsched.core.model.ids import GangId
from gangsched.core.model.refusal import plural

_LABEL = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
_NAME = r"[A-Za-z0-9](?:[-\w.:]{0,317}\w)?"
_GANG = rf"{_LABEL}/{_NAME}"
_GANGS = re.compile(rf"(?<![\w./-])([Gg]angs? )?({_GANG}(?:(?:, | and ){_GANG})*)(?![\w/])")
_QUEUE = re.compile(rf"\b([Qq]ueue) ({_NAME})")
_READ = 4096
"""Letters of a sentence that are read at most; the rest is cut off."""


class Redaction:
    """Replaces the names of gangs and queues that the readers of a namespace may not see."""

    def __init__(self, view: EngineView, namespaces: Container[str], *, named: bool) -> None:
        self._view = view
        self._namespaces = namespaces
        self._named = named

    def redact(self, text: str, gang: GangId) -> str:
        """Return a sentence that users of the gang's namespace may read.

        Gangs of other namespaces are counted, and queues that the namespace may not use are not
        named.
        """
        if self._named:
            return text
        namespace = gang.partition("/")[0]
        state = self._view.gangs.get(gang)
        own = state.account[0] if state is not None else ""
        tree = self._view.ledger.usage.tree

        def gangs(match: re.Match[str]) -> str:
            ids = re.split(", | and ", match[2])
            known = [
                gang_id
                for gang_id in ids
                if not self._another(gang_id.partition("/")[0], namespace)
            ]
            count = len(ids) - len(known)
            if not count:
                return match[0]
            rest = f"{plural(count, 'gang')} of other namespaces"
            if count == 1:
                rest = "a gang of another namespace"
            if known:
                return f"{match[1] or ''}{', '.join(known)} and {rest}"
            return f"{rest[0].upper()}{rest[1:]}" if (match[1] or "").startswith("G") else rest

        def queue(match: re.Match[str]) -> str:
            name = match[2]
            seen = name == own or name not in tree.queues or tree.admits(name, namespace)
            if seen:
                return match[0]
            return "another queue" if match[1] == "queue" else "Another queue"

        return _QUEUE.sub(queue, _GANGS.sub(gangs, text[:_READ]))

    def _another(self, name: str, namespace: str) -> bool:
        return name != namespace and name in self._namespaces
