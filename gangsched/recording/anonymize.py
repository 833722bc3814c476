"""Replaces names by digests, so that a snapshot may be given to others."""

import hashlib
import re
import secrets
from collections.abc import Iterable, Mapping
from typing import Any

from gangsched.core import facts as f
from gangsched.core.model.ids import GangId
from gangsched.core.model.nodes import Node
from gangsched.core.quota.runtime_history import job_name_prefix

_PRODUCT_LABELS = (
    "nvidia.com/",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "node.kubernetes.io/instance",
)
"""Prefixes of labels with values that name a product, and not a place."""


def _places(node: Node) -> list[str]:
    """Return the values of labels that may name a place."""
    return [v for k, v in node.labels.items() if not k.startswith(_PRODUCT_LABELS)]


class Pseudonyms:
    """Replaces names by digests with a secret salt; equal names get equal digests.

    The digests of a job's runs keep a common prefix, because run times are learned from earlier
    runs. The name of a pod begins with the digest of its gang.
    """

    def __init__(self) -> None:
        self._salt = secrets.token_bytes(16)
        self._known: dict[str, str] = {"default": "default", "": ""}

    def learn(self, facts: Iterable[f.Fact]) -> None:
        """Collect the names of nodes, namespaces, gangs, pods, queues, users and places."""
        listed = list(facts)
        gangs = [fact.gang for fact in listed if isinstance(fact, f.GangSeen)]
        for number, gang in enumerate(gangs):
            self._known.setdefault(gang.id.split("/", 1)[1], self._run(gang.id, number))
            self._learn(gang.id.split("/", 1)[0], gang.queue, gang.user)
        for fact in listed:
            match fact:
                case f.NodeSeen(node):
                    self._learn(node.name, *_places(node))
                case f.NodeSupplySeen(supply):
                    for pool in supply.pools:
                        self._learn(pool.name, pool.template.name)
                        self._learn(*_places(pool.template))
                    for coming in supply.coming:
                        self._learn(*coming.gang.split("/"))
                case f.QueueSeen(queue):
                    self._learn(queue.name, queue.parent, queue.broken, *queue.namespaces)
                case f.PodSeen():
                    self._pod(fact)
                case f.HistoryRestored():
                    self._learn(*(node for node, _ in fact.excluded_nodes))
                    for name in (*fact.vacated, *dict(fact.places), *dict(fact.reserved_nodes)):
                        self._place(name, fact.gang)
                case f.AssignmentsRestored():
                    for name, _ in fact.assignments:
                        self._place(name, fact.gang)
                case f.PreemptionRestored(victim, by):
                    self._learn(*victim.split("/"), *by.split("/"))
                case f.EndRestored(ended):
                    self._learn(*ended.split("/"))
                case f.NamespaceQuotaSeen(namespace, name):
                    self._learn(namespace, name)
                case f.AdvanceReservationSeen(booking):
                    self._learn(booking.name, *booking.queues, *booking.namespaces)
                case _:
                    pass

    def learn_names(self, names: Iterable[str]) -> None:
        """Collect further names; known names keep their digests."""
        self._learn(*names)

    def _run(self, gang: str, number: int) -> str:
        return f"{self._digest(job_name_prefix(GangId(gang)))}-{number}"

    def _pod(self, pod: f.PodSeen) -> None:
        self._learn(pod.uid)
        self._place(pod.name, pod.gang)

    def _place(self, whole: str, of: str | None) -> None:
        """Collect the name of a pod, which may not exist yet."""
        namespace, name = whole.split("/", 1)
        self._learn(namespace)
        gang = (of or "/").split("/", 1)[1]
        if gang and gang in self._known and name.startswith(gang):
            self._known[name] = self._known[gang] + name.removeprefix(gang)
        else:
            self._learn(name, *(of or "").split("/"))

    def _learn(self, *names: str) -> None:
        for name in names:
            if name not in self._known:
                self._known[name] = self._digest(name)

    def _digest(self, name: str) -> str:
        return "x" + hashlib.blake2s(name.encode(), key=self._salt, digest_size=6).hexdigest()

    def hide(self, value: Any) -> Any:
        """Return JSON values with every name replaced; the names of fields and labels stay."""
        match value:
            case str():
                parts = [value] if value in self._known else value.split("/")
                hidden = [self._known.get(part) for part in parts]
                return value if None in hidden else "/".join(part or "" for part in hidden)
            case Mapping():
                return {key: self.hide(item) for key, item in value.items()}
            case list() | tuple():
                return [self.hide(item) for item in value]
        return value

    def text(self, text: str) -> str:
        """Return free text with every known name replaced that is a separate word."""
        longest = sorted((name for name in self._known if len(name) > 1), key=len, reverse=True)
        kept = {"default"}
        known = "|".join(re.escape(name) for name in longest if name not in kept)
        if not known:
            return text
        return re.sub(
            rf"(?<![\w.-])(?:{known})(?![\w-])", lambda match: self._known[match[0]], text
        )

    def history(self, data: Mapping[str, list[list[object]]]) -> dict[str, list[list[object]]]:
        """Return learned run times with hidden names."""
        runs = []
        for user, name, *times in data["runs"]:
            namespace, _ = str(name).split("/", 1)
            self._learn(str(user), namespace)
            gang = GangId(f"{self._known[namespace]}/{self._run(f'{name}-0', 0)}")
            runs.append([self._known[str(user)], job_name_prefix(gang), *times])
        ratios = []
        for user, *some in data["ratios"]:
            self._learn(str(user))
            ratios.append([self._known[str(user)], *some])
        return {"runs": runs, "ratios": ratios, "starts": list(data["starts"])}
