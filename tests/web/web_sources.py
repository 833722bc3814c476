"""Sources of pages for tests: a small cluster, and one with names that attack the page."""

from builders import POLICIES, an_engine, needs, node, templated

from gangsched.core.facts import GangSeen, NodeSeen, PodSeen, TopologySeen
from gangsched.core.model.gangs import Gang
from gangsched.core.model.ids import GangId, NodeName, PodName, PodUid
from gangsched.core.model.topology import Level, Topology
from gangsched.core.planning.forecast import Effort
from gangsched.web.keeper import PageSource
from gangsched.web.model import QueueRow, QuotaRow

HOSTILE = "\"><script>alert(1)</script><img src=x onerror=alert(2)>'{{7*7}}"


def page_source(*, hostile: bool = False, live: bool = False) -> PageSource:
    """Return a source with running and pending gangs of the namespaces ns and theirs."""
    word = HOSTILE if hostile else "r1"
    own = f"ns/{HOSTILE}" if hostile else "ns/own"
    engine = an_engine(node("a", labels={"rack": word}), node("b", labels={"rack": word}))
    engine.observe(TopologySeen(Topology(word, (Level("rack", word),))), 0.0)
    for gang, where in ((own, "a"), ("theirs/secret", "b")):
        spec = Gang(GangId(gang), 1, queue=word, user=word, expected_runtime_s=600.0)
        engine.observe(GangSeen(spec), 0.0)
        pod = PodSeen(
            PodUid(gang), PodName(gang), needs(8), spec.id, node=NodeName(where), role=word
        )
        engine.observe(pod, 0.0)
    engine.observe(GangSeen(templated("waits", 2, needs(8), user=word)), 0.0)
    engine.observe(NodeSeen(node(word, gpus=1)), 0.0)
    quota = QuotaRow(word, None, "1", "0", 0.5, 0.25)
    rows = (QueueRow(word, 0, 1, 2, (quota,), 0.5, (word,), word), QueueRow("default", 1, 1, 0))
    return PageSource(
        engine,
        POLICIES,
        lambda: 100.0,
        word,
        live=live,
        queue_rows=lambda: rows,
        redact=lambda text, _: text.replace("theirs/secret", "another gang"),
        effort=Effort(2, 5),
    )
