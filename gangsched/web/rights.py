"""What a viewer may see, and the model without the rest.

Gangs of others become anonymous: how much they use stays visible, and not who uses it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec

from gangsched.web.model import GangRow, NodeTile, PageModel, QueueRow, Segment

Redact = Callable[[str, str], str]
"""Removes from a sentence about a gang the names that readers of its namespace may not see."""


@dataclass(frozen=True, slots=True)
class Rights:
    """The namespaces and queues with names that a viewer may see, and whether nodes."""

    all_namespaces: bool = False
    namespaces: frozenset[str] = frozenset()
    all_queues: bool = False
    queues: frozenset[str] = frozenset()
    nodes: bool = False

    @property
    def everything(self) -> bool:
        """Return whether nothing is hidden."""
        return self.all_namespaces and self.all_queues and self.nodes

    def may_see_gang(self, gang: str) -> bool:
        """Return whether the viewer may see a gang."""
        return self.all_namespaces or gang.partition("/")[0] in self.namespaces


EVERYTHING = Rights(all_namespaces=True, all_queues=True, nodes=True)


def visible_part(model: PageModel, rights: Rights, redact: Redact) -> PageModel:
    """Return the model as a viewer with these rights sees it."""
    if rights.everything:
        return model
    gangs = {
        name: _visible_gang(row, rights, redact)
        for name, row in model.gangs.items()
        if rights.may_see_gang(name)
    }
    own_queues = {row.queue for row in gangs.values()}
    queues = tuple(
        _visible_queue(row, rights) for row in model.queues if _sees(row, rights, own_queues)
    )
    seen_queues = {row.name for row in queues}
    return replace(
        model,
        levels=model.levels if rights.nodes else (),
        pools=model.pools if rights.nodes else (),
        nodes=tuple(_visible_node(node, rights) for node in model.nodes),
        queues=queues,
        gangs=gangs,
        hidden_gangs=len(model.gangs) - len(gangs),
        runs=tuple(
            run
            if rights.may_see_gang(run.gang)
            else msgspec.structs.replace(run, gang="", queue="")
            for run in model.runs
        ),
        windows=tuple(
            row if rights.nodes else msgspec.structs.replace(row, name="", nodes=0)
            for row in model.windows
        ),
        samples={name: rows for name, rows in model.samples.items() if name in seen_queues},
    )


def _sees(row: QueueRow, rights: Rights, own_queues: set[str]) -> bool:
    if rights.all_queues or row.name in rights.queues or row.name in own_queues:
        return True
    usable = row.namespaces is None or not row.namespaces.isdisjoint(rights.namespaces)
    return usable and bool(rights.namespaces or rights.all_namespaces)


def _visible_queue(row: QueueRow, rights: Rights) -> QueueRow:
    if rights.all_queues:
        return row
    namespaces = row.namespaces
    if namespaces is not None and not rights.all_namespaces:
        namespaces &= rights.namespaces
    problem = "It is invalid." if row.problem else ""
    return replace(row, notes=(), problem=problem, namespaces=namespaces)


def _visible_gang(row: GangRow, rights: Rights, redact: Redact) -> GangRow:
    start = row.start
    if start is not None and start.after and not rights.may_see_gang(start.after):
        start = replace(start, after="")
    message = row.message if rights.all_namespaces and rights.all_queues else None
    if message is None:
        message = redact(row.message, row.id)
    return replace(row, start=start, message=message)


def _visible_node(node: NodeTile, rights: Rights) -> NodeTile:
    units: dict[tuple[str, str], float] = {}
    for segment in node.segments:
        seen = bool(segment.gang) and rights.may_see_gang(segment.gang)
        key = (segment.gang, segment.queue) if seen else ("", "")
        units[key] = units.get(key, 0.0) + segment.units
    segments = tuple(Segment(*key, amount) for key, amount in sorted(units.items()))
    reserved = dict.fromkeys(
        gang if rights.may_see_gang(gang) else "" for gang in node.reserved_for
    )
    named = rights.nodes or any(segment.gang for segment in segments)
    return replace(
        node,
        name=node.name if named else "",
        domain=node.domain if rights.nodes else (),
        gpu_model=node.gpu_model if rights.nodes else "",
        stop_by_s=node.stop_by_s if rights.nodes else None,
        cordoned=node.cordoned and rights.nodes,
        failing=node.failing and rights.nodes,
        segments=segments,
        reserved_for=tuple(reserved),
        set_aside=node.set_aside if rights.nodes else tuple("" for _ in node.set_aside[:1]),
    )
