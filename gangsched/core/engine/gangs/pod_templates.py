"""Compares the requirements of a pod with those that its member was planned with."""

from collections.abc import Mapping
from dataclasses import replace

from gangsched.core.model.gangs import Role
from gangsched.core.model.nodes import Node
from gangsched.core.model.pods import Expression, NodeTerm, PodRequirements
from gangsched.core.model.refusal import format_amount


def with_amounts(place: PodRequirements, pod: PodRequirements) -> PodRequirements:
    """Return the planned requirements with the amounts of a pod; nodes are chosen as planned."""
    asked = (pod.requests, pod.host_ports, pod.share, pod.unmodelled_constraints)
    if asked == (place.requests, place.host_ports, place.share, place.unmodelled_constraints):
        return place
    requests, host_ports, share, beyond = asked
    return replace(
        place, requests=requests, host_ports=host_ports, share=share, unmodelled_constraints=beyond
    )


def grown(place: PodRequirements, pod: PodRequirements) -> PodRequirements:
    """Return the planned requirements, raised so that a pod fits them as well."""
    most = dict(place.requests)
    for name, asked in pod.requests:
        most[name] = max(most.get(name, 0), asked)
    return replace(
        place,
        requests=tuple(sorted(most.items())),
        host_ports=tuple(sorted({*place.host_ports, *pod.host_ports})),
        share=pod.share or place.share,
        unmodelled_constraints=tuple(
            dict.fromkeys((*place.unmodelled_constraints, *pod.unmodelled_constraints))
        ),
    )


class PodTemplates:
    """The requirements of each role before a pod exists: its template, or what its pods need.

    Admission webhooks may add to a pod what its template does not have.
    """

    def __init__(self) -> None:
        self._learnt: dict[str, tuple[PodRequirements | None, PodRequirements]] = {}

    def of(self, role: Role) -> PodRequirements | None:
        """Return the requirements of a role, or None if only its pods declare them."""
        declared, enough = self._learnt.get(role.name, (None, None))
        return enough if declared is not None and declared == role.needs else role.needs

    def learn(self, role: Role, enough: PodRequirements) -> PodRequirements:
        """Record that the pods of a role need so much, until its template changes."""
        self._learnt[role.name] = role.needs, enough
        return enough


def excess(place: PodRequirements, pod: PodRequirements, node: Node | None, *, judged: bool) -> str:
    """Write what a pod requests beyond what was planned for it on a node; "" if nothing.

    With `judged`, another component checks the constraints that the planner does not model.
    """
    if pod == place:
        return ""
    has = dict(place.requests)
    for name, asked in pod.requests:
        if asked > has.get(name, 0):
            planned = format_amount(name, has.get(name, 0))
            return f"asks for {format_amount(name, asked)}, more than the {planned} planned for it"
    for port in pod.host_ports:
        if port not in place.host_ports:
            return f"takes host port {port[2]}/{port[0]}, which was not planned for it"
    if pod.share is not None and pod.share != place.share:
        return "asks for another part of a GPU than was planned for it"
    more = [
        constraint
        for constraint in pod.unmodelled_constraints
        if constraint not in place.unmodelled_constraints
    ]
    if more and not judged:
        return f"asks for {more[0]}, which was not planned for it"
    if node is not None and not _suits(place, pod, node):
        return f"may not run on {node.name}, which was planned for it"
    return ""


def _suits(place: PodRequirements, pod: PodRequirements, node: Node) -> bool:
    """Return whether a pod may run on a node that the planned requirements allow."""
    selects = pod.selector == place.selector or all(
        holds(toleration, node.labels) for toleration in pod.selector
    )
    requires = pod.required in ((), place.required) or any(
        matches(term, node) for term in pod.required
    )
    if not selects or not requires:
        return False
    if set(place.tolerations) <= set(pod.tolerations):
        return True
    return all(
        any(toleration.tolerates(taint) for toleration in pod.tolerations)
        for taint in node.taints
        if any(toleration.tolerates(taint) for toleration in place.tolerations)
    )


def matches(term: NodeTerm, node: Node) -> bool:
    """Return whether a node meets a node selector term; an empty term matches no node."""
    if not term.labels and not term.names:
        return False
    return all(holds(expression, node.labels) for expression in term.labels) and all(
        (node.name in expression.values) == (expression.operator == "In")
        for expression in term.names
    )


def holds(expression: Expression, labels: Mapping[str, str]) -> bool:
    """Return whether labels match an expression."""
    value = labels.get(expression.key)
    match expression.operator:
        case "In":
            return value in expression.values
        case "NotIn":
            return value not in expression.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            try:
                number, limit = int(value or ""), int(expression.values[0])
            except (IndexError, ValueError):
                return False
            return number > limit if expression.operator == "Gt" else number < limit
    return False
