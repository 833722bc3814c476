"""Sources of pages for tests: a small cluster, and one with names that attack the page."""

from builders import POLICIES, an_engine, needs, node, pod, templated

from gangsched.core.engine.engine import Engine
from gangsched.core.engine.limits import Limits
from gangsched.core.facts import GangGone, GangSeen, NodeSeen, PodGone, PodSeen, TopologySeen
from gangsched.core.model.gangs import Gang
from gangsched.core.model.ids import GangId, NodeName, PodName, PodUid
from gangsched.core.model.topology import Level, Topology
from gangsched.core.planning.forecast import Effort
from gangsched.core.planning.planner import make_plan
from gangsched.recording.journal import Journal, RecordingEngine
from gangsched.web.keeper import PageSource
from gangsched.web.model import QueueRow, QuotaRow

STEP_S = 10.0
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


def write_journal(path, gangs):
    """Write a journal in which gang n runs from step n+1 to n+3, planned by a scheduler."""
    with path.open("w") as file:
        engine = RecordingEngine(Engine(Limits()), Journal(file))
        engine.observe(NodeSeen(node("a")), 0.0)
        for number in range(gangs + 2):
            at_s = (number + 1) * STEP_S
            if number < gangs:
                engine.observe(GangSeen(templated(f"g{number}", 1, needs(2))), at_s)
                engine.accept(make_plan(engine.begin_cycle(at_s), POLICIES, at_s), at_s)
                engine.observe(_running(number, at_s), at_s)
            if number >= 2:
                engine.observe(PodGone(PodUid(f"g{number - 2}-worker-0")), at_s)
                engine.observe(GangGone(GangId(f"ns/g{number - 2}")), at_s)
    return path


def _running(number, at_s):
    return pod(
        f"g{number}-worker-0",
        f"g{number}",
        needs(2),
        role="worker",
        node=NodeName("a"),
        started_s=at_s,
    )
