"""The planning loop: a failure of one gang does not delay others."""

import asyncio
import contextlib
import io
from dataclasses import replace

from builders import POLICIES, gang, node, pod
from prometheus_client import generate_latest
from waiting import until_async

from gangsched.config import SchedulerConfig
from gangsched.core.engine.engine import State
from gangsched.core.facts import GangSeen, NodeSeen
from gangsched.core.model.ids import GangId
from gangsched.core.orders import Drain, DrainReason
from gangsched.kube.service import Scheduler
from gangsched.metrics import Metrics
from gangsched.recording.audit_log import AuditLog
from policies.pack import Pack


class Raising:
    """Cannot place one gang."""

    def place(self, waiting, snapshot):
        """Raise, as a defect would."""
        if waiting.gang.id == "ns/bad":
            raise ZeroDivisionError("a defect")
        return Pack().place(waiting, snapshot)


async def test_a_gang_that_cannot_be_planned_delays_no_other(caplog):
    policies = replace(POLICIES, placer=Raising())
    config = SchedulerConfig(plan_interval_s=0.01)
    scheduler = Scheduler(None, config, policies, Metrics(), read_only=True)
    facts = [NodeSeen(node("n")), GangSeen(gang("bad", 1)), pod("bad-0", "bad")]
    for fact in (*facts, GangSeen(gang("good", 1)), pod("good-0", "good")):
        scheduler.driver.observe(fact)
    scheduler._wake.set()
    planning = asyncio.create_task(scheduler._planning_loop())
    good = scheduler.engine.view.gangs[GangId("ns/good")]
    await until_async(
        lambda: good.state is State.RESERVED or planning.done(), "the good gang's room"
    )
    planning.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await planning
    assert good.state is State.RESERVED
    assert "ZeroDivisionError: a defect" in scheduler.engine.view.refusals[GangId("ns/bad")].message
    assert b"gangsched_plan_failures_total 1.0" in generate_latest(scheduler.metrics.registry)
    assert "planning failed; the gang is set aside" in caplog.text


async def test_a_gang_that_a_drain_ends_is_counted_and_audited():
    metrics, trail = Metrics(), io.StringIO()
    scheduler = Scheduler(None, SchedulerConfig(), POLICIES, metrics, audit_log=AuditLog(trail))
    orders = (Drain(GangId("ns/g"), DrainReason.QUEUE, "q", 7200.0),)
    scheduler.driver.execute(orders)
    text = generate_latest(metrics.registry).decode()
    assert 'gangsched_preemptions_total{queue="",reason="QueueDrained"} 1.0' in text
    assert 'gangsched_evicted_gpu_seconds_total{queue=""} 7200.0' in text
    assert '"for":{"queue":"q"}' in trail.getvalue()
