"""What the watch of nodes does with an object."""

from gangsched.core import facts as f
from gangsched.core.model.ids import NodeName
from gangsched.kube.decoding.cluster.nodes import node_fact, node_name
from gangsched.kube.decoding.metadata import ApiObject
from gangsched.kube.informers.base import NameTracking
from gangsched.kube.informers.context import FactSink
from gangsched.metrics import Metrics


class Nodes(NameTracking):
    """Nodes: what there is to give."""

    kind = "Node"

    def __init__(self, facts: FactSink, metrics: Metrics) -> None:
        super().__init__(metrics)
        self._facts = facts

    def decode_and_apply(self, obj: ApiObject) -> None:
        """Turn an object into facts."""
        fact = node_fact(obj.raw)
        self.track(obj)
        self._facts.observe(fact)

    def malformed(self, raw: bytes, message: str) -> None:
        """Tell the object's owner, where there is a place for it."""
        self._facts.observe(f.NodeGone(node_name(raw)))  # never place on what is unknown

    def on_name_released(self, name: str) -> None:
        """Turn it into facts that nothing has this name any more."""
        self._facts.observe(f.NodeGone(NodeName(name)))
