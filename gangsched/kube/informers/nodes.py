"""The informer of nodes."""

from gangsched.core import facts as f
from gangsched.core.model.ids import NodeName
from gangsched.kube.decoding.cluster.nodes import node_fact, node_name
from gangsched.kube.decoding.metadata import ApiObject
from gangsched.kube.informers.base import NameTracking
from gangsched.kube.informers.context import FactSink
from gangsched.metrics import Metrics


class Nodes(NameTracking):
    """The informer of nodes."""

    kind = "Node"

    def __init__(self, facts: FactSink, metrics: Metrics) -> None:
        super().__init__(metrics)
        self._facts = facts

    def decode_and_apply(self, obj: ApiObject) -> None:
        """Observe the facts of an object."""
        fact = node_fact(obj.raw)
        self.track(obj)
        self._facts.observe(fact)

    def malformed(self, raw: bytes, message: str) -> None:
        """Remove a malformed node, so that no pod is placed on it."""
        self._facts.observe(f.NodeGone(node_name(raw)))

    def on_name_released(self, name: str) -> None:
        """Observe that no object has the name any more."""
        self._facts.observe(f.NodeGone(NodeName(name)))
