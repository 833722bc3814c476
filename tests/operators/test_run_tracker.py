"""Every job gets one run, whatever the tracking server does, and no job waits for a bad server."""

import asyncio
import base64
import contextlib

import msgspec
import pytest
from mlflow_stand_in import stand_in
from pydantic import ValidationError
from waiting import until_async

from gangsched.api import names
from gangsched.config import SchedulerConfig, TrackingConfig
from gangsched.core.bounds import TRACKED_JOBS
from gangsched.jobs.tracking import UID, JobGpuTime, gang_hold
from gangsched.kube.client.errors import Forbidden, NotFound
from gangsched.operators.api_objects import with_env
from gangsched.operators.controllers.pod_jobs import RUN_VARIABLES
from gangsched.operators.tracking import run_writer
from gangsched.operators.tracking.patience import Patience
from gangsched.operators.tracking.run_tracker import RunTracker
from gangsched.operators.tracking.targets import TargetError, target_of

KINDS = ("PyTorchJob", "TrainJob", "JobSet", "Experiment", "Trial")
SECRET = "gangsched-system/mlflow"  # noqa: S105 -- the name of an object
CREATED = "2026-01-01T00:00:00Z"


class Api:
    """The API server: it keeps annotations and Events, and has one Secret."""

    def __init__(self) -> None:
        self.annotations: dict[str, dict] = {}
        self.events: list[dict] = []
        self.denies = False
        self.secret: dict[str, str] = {}

    async def patch(self, path, body, **_) -> bytes:
        if self.denies:
            raise Forbidden(403, "no")
        name = path.rpartition("/")[2]
        self.annotations.setdefault(name, {}).update(body["metadata"]["annotations"])
        return b"{}"

    async def create(self, path, body) -> bytes:
        self.events.append(body)
        return b"{}"

    async def get(self, path, **_) -> bytes:
        if path != "/api/v1/namespaces/gangsched-system/secrets/mlflow":
            raise NotFound(404, "none")
        data = {key: base64.b64encode(v.encode()).decode() for key, v in self.secret.items()}
        return msgspec.json.encode({"data": data})


def job(name="train", *states, kind="PyTorchJob", namespace="team", owner=None, **keys) -> dict:
    """Return a job with true conditions, as the API server has it."""
    conditions = [
        {"type": state, "status": "True", "lastTransitionTime": CREATED} for state in states
    ]
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": f"uid-{name}",
        "creationTimestamp": CREATED,
        "annotations": {f"gangsched.io/{key.replace('_', '-')}": v for key, v in keys.items()},
    }
    if owner is not None:
        reference = {"kind": owner[0], "name": owner[1], "uid": f"uid-{owner[1]}"}
        metadata["ownerReferences"] = [reference | {"controller": True}]
    body = {"kind": kind, "metadata": metadata, "spec": {}}
    return body | ({"status": {"conditions": conditions}} if states else {})


def group(name="train", phase="Placed", nodes=2, gpus="4") -> dict:
    template = {"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": gpus}}}]}}
    placed = [{"pod": f"{name}-{index}", "node": f"n{index}"} for index in range(nodes)]
    return {
        "metadata": {"name": name, "namespace": "team", "uid": f"group-{name}"},
        "spec": {"roles": [{"name": "Worker", "count": nodes, "template": template}]},
        "status": {"phase": phase, "assignments": placed if phase == "Placed" else []},
    }


class Tracked:
    """A tracker, its server and its API server."""

    def __init__(self, server, api, **settings) -> None:
        self.server, self.api = server, api
        settings = {"uri": server.url, "timeout_s": 30, "wait_s": 10, **settings}
        self.tracker = RunTracker(TrackingConfig(**settings), api)
        self.tracker.begin(KINDS)
        self.woken = 0

    def sees(self, *arguments, queue="default", **more) -> dict:
        body = job(*arguments, **more)
        self.tracker.job_seen(body["kind"], body, queue)
        return body

    def hold_s(self, body) -> float:
        def wake() -> None:
            self.woken += 1

        return self.tracker.hold_s(body, wake)

    async def run_of(self, body) -> str:
        """Return the id in the variables of a job's pods, once there is one."""
        await until_async(lambda: self.tracker.variables(body), f"the run of {body}")
        return self.tracker.variables(body)["MLFLOW_RUN_ID"]

    async def until(self, holds, what: str) -> None:
        await until_async(holds, what)

    async def until_none_waits(self) -> None:
        """Wait until a new job starts at once: the server is known to be slow."""
        seen = []

        def starts_at_once() -> bool:
            seen.append(self.sees(f"later-{len(seen)}"))
            return [self.hold_s(body) for body in seen][-1] == 0

        await self.until(starts_at_once, "a job to start at once")


@contextlib.asynccontextmanager
async def running(tracker):
    task = asyncio.create_task(tracker.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
async def tracked():
    async with stand_in() as server:
        made = Tracked(server, Api())
        async with running(made.tracker):
            yield made


async def test_a_job_has_one_run_from_its_creation_to_its_end(tracked):
    body = tracked.sees(queue="vision")
    assert tracked.hold_s(body) > 0, "its pods wait for the run"
    run_id = await tracked.run_of(body)
    assert tracked.woken
    assert tracked.hold_s(body) == 0
    tracked.tracker.group_seen("PyTorchJob", "train", group())
    tracked.sees("train", "Running", queue="vision")
    tracked.sees("train", "Succeeded", queue="vision")
    run = tracked.server.runs[run_id]
    await tracked.until(lambda: run["status"] == "FINISHED", "the run to end")
    await tracked.until(
        lambda: tracked.api.annotations["train"].get(names.RUN_OUTCOME_ANNOTATION) == "Succeeded",
        "the annotation",
    )
    assert tracked.server.of("uid-train") == [run]
    tags = run["tags"]
    assert tags["gangsched.queue"] == "vision"
    assert tags["gangsched.gang"] == "team/train"
    assert tags["gangsched.nodes"] == "n0, n1"
    assert tags["gangsched.outcome"] == "Succeeded"
    assert float(tags["gangsched.wait_s"]) > 0
    assert float(tags["gangsched.gpu_s"]) >= 0
    link = f"{tracked.server.url}/#/experiments/1/runs/{run_id}"
    assert tracked.api.annotations["train"][names.RUN_ANNOTATION] == link
    assert list(tracked.server.experiments) == ["team"]


async def test_a_restart_finds_the_run_again(tracked):
    run_id = await tracked.run_of(tracked.sees())
    again = Tracked(tracked.server, tracked.api)
    async with running(again.tracker):
        body = again.sees("train", "Running")
        assert await again.run_of(body) == run_id
    assert len(tracked.server.runs) == 1


async def test_a_creation_without_an_answer_makes_no_second_run(tracked, monkeypatch):
    monkeypatch.setattr(run_writer.TrackedJob, "failed", lambda *_: 0.0)
    tracked.server.lost_answers = 1
    body = tracked.sees()
    run_id = await tracked.run_of(body)
    assert list(tracked.server.runs) == [run_id]


async def test_a_run_that_comes_after_its_successor_is_deleted(tracked):
    body = tracked.sees()
    run_id = await tracked.run_of(body)
    late = tracked.server.runs[run_id] | {"run_id": "late"}
    tracked.server.runs["late"] = late
    tracked.tracker._jobs["uid-train"].unsure = True
    tracked.sees("train", "Failed")
    await tracked.until(lambda: late.get("deleted"), "the second run to be deleted")
    await tracked.until(
        lambda: [run["status"] for run in tracked.server.of("uid-train")] == ["FAILED"], "its end"
    )


async def test_trials_are_nested_and_their_jobs_share_their_runs(tracked):
    tracked.sees("search", kind="Experiment", tracking_experiment="mnist")
    trial = tracked.sees("t1", kind="Trial", owner=("Experiment", "search"))
    train = tracked.sees("t1-job", kind="TrainJob", owner=("Trial", "t1"))
    jobset = tracked.sees("t1-set", kind="JobSet", owner=("TrainJob", "t1-job"))
    runs = {await tracked.run_of(body) for body in (trial, train, jobset)}
    assert len(runs) == 1
    (parent,) = tracked.server.of("uid-search")
    (nested,) = tracked.server.of("uid-t1")
    assert nested["tags"]["mlflow.parentRunId"] == parent["run_id"]
    assert nested["experiment_id"] == parent["experiment_id"]
    assert len(tracked.server.runs) == 2
    assert list(tracked.server.experiments) == ["team/mnist"]


async def test_trials_of_an_experiment_without_a_run_have_none(tracked):
    tracked.sees("search", kind="Experiment", tracking="off")
    trial = tracked.sees("t1", kind="Trial", owner=("Experiment", "search"))
    other = await tracked.run_of(tracked.sees("other"))
    await tracked.until(lambda: tracked.hold_s(trial) == 0, "the trial to start without")
    assert list(tracked.server.runs) == [other]


async def test_no_job_takes_the_run_of_another_namespace(tracked):
    tracked.sees("t1", kind="Trial")
    thief = tracked.sees("thief", namespace="other", owner=("Trial", "t1"))
    await tracked.run_of(tracked.sees("honest"))
    assert tracked.tracker.variables(thief) == {}


async def test_a_deleted_job_ends_its_run(tracked):
    body = tracked.sees()
    run_id = await tracked.run_of(body)
    tracked.tracker.job_gone("PyTorchJob", body)
    await tracked.until(lambda: tracked.server.runs[run_id]["status"] == "KILLED", "its end")
    await tracked.until(lambda: not tracked.tracker._jobs, "its record to go")


@pytest.mark.parametrize("fails", ["500", "401", "garbage", "deep", "long", "elsewhere", "evil"])
async def test_a_bad_server_delays_no_job_and_ends_nothing(tracked, fails):
    tracked.server.fails = fails
    body = tracked.sees()
    await tracked.until(lambda: tracked.hold_s(body) == 0, "the job to start without a run")
    assert tracked.tracker.variables(body) == {}
    assert tracked.hold_s(tracked.sees("next")) == 0, "no other job waits either"
    await tracked.until(lambda: tracked.api.events, "an Event that says so")
    message = tracked.api.events[0]["message"]
    assert message.startswith("the job has no run on the tracking server yet: ")
    assert len(message) < 300
    assert "elsewhere" not in tracked.server.calls, "a redirect is not followed"


async def test_a_server_that_is_down_delays_no_job():
    async with stand_in() as server:
        pass
    tracked = Tracked(server, Api())
    async with running(tracked.tracker):
        body = tracked.sees()
        await tracked.until(lambda: tracked.hold_s(body) == 0, "the job to start without a run")


async def test_a_slow_server_has_few_calls_in_flight_and_the_wait_is_bounded():
    async with stand_in() as server:
        server.fails = "slow"
        tracked = Tracked(server, Api(), wait_s=0.05)
        async with running(tracked.tracker):
            bodies = [tracked.sees(f"job-{number}") for number in range(50)]
            await tracked.until(lambda: server.in_flight, "a call")
            await tracked.until(
                lambda: not any(tracked.hold_s(body) for body in bodies), "all jobs to start"
            )
            await tracked.until_none_waits()
            assert server.most_in_flight <= 8


async def test_calls_that_began_late_show_that_a_server_is_slow_too():
    """When the first jobs have waited in vain, the calls are too young to say anything."""
    async with stand_in() as server:
        server.fails = "slow"
        tracked = Tracked(server, Api(), wait_s=0.2, timeout_s=60)
        bodies = [tracked.sees(f"job-{number}") for number in range(50)]
        await tracked.until(
            lambda: tracked.hold_s(bodies[0]) < 0.05, "little of the wait to be left"
        )
        async with running(tracked.tracker):
            await tracked.until(
                lambda: not any(tracked.hold_s(body) for body in bodies), "all jobs to start"
            )
            await tracked.until_none_waits()
            assert len(server.calls) <= 8, "no call has run into its own time limit"


async def test_a_late_run_is_that_of_the_next_start(tracked, monkeypatch):
    monkeypatch.setattr(run_writer.TrackedJob, "failed", lambda *_: 0.0)
    tracked.server.fails = "500"
    body = tracked.sees()
    await tracked.until(lambda: tracked.hold_s(body) == 0, "the job to start without a run")
    tracked.server.fails = ""
    await tracked.run_of(body)
    assert len(tracked.server.of("uid-train")) == 1


async def test_what_one_job_does_wrong_is_no_failure_of_the_server(tracked):
    tracked.server.experiments["deleted"] = "9"
    config = TrackingConfig(uri=tracked.server.url, experiment_prefix="", wait_s=10)
    tracked.tracker._config = config
    wrong = tracked.sees("wrong", tracking_experiment="deleted")
    await tracked.until(lambda: tracked.hold_s(wrong) == 0, "the job to start without a run")
    assert tracked.hold_s(tracked.sees("right")) > 0, "others still wait for their runs"


async def test_a_wrong_annotation_is_reported_and_the_job_runs(tracked):
    body = tracked.sees(tracking_experiment="x" * 10_000)
    assert tracked.hold_s(body) == 0
    await tracked.until(lambda: tracked.api.events, "an Event")
    assert "tracking-experiment is 'xxx" in tracked.api.events[0]["message"]
    assert tracked.server.runs == {}


async def test_without_the_right_to_show_runs_jobs_have_them_all_the_same(tracked, caplog):
    tracked.api.denies = True
    body = tracked.sees()
    await tracked.run_of(body)
    tracked.sees("train", "Succeeded")
    await tracked.until(
        lambda: [run["status"] for run in tracked.server.of("uid-train")] == ["FINISHED"], "an end"
    )
    assert "apply manifests/tracking" in caplog.text


async def test_a_namespace_has_a_bounded_number_of_runs(tracked, monkeypatch):
    few = TRACKED_JOBS._replace(most=2)
    monkeypatch.setattr("gangsched.operators.tracking.run_tracker.TRACKED_JOBS", few)
    bodies = [tracked.sees(f"job-{number}") for number in range(3)]
    for body in bodies[:2]:
        await tracked.run_of(body)
    assert tracked.hold_s(bodies[2]) == 0
    await tracked.run_of(tracked.sees("other", namespace="other"))
    assert len(tracked.server.runs) == 3


@pytest.mark.parametrize(
    ("secret", "header"),
    [
        ({"token": "abc\n"}, "Bearer abc"),
        ({"username": "user-1", "password": "word-1"}, "Basic dXNlci0xOndvcmQtMQ=="),
        ({"token": "a\r\nX-Evil: 1"}, None),
        ({}, None),
    ],
)
async def test_the_credentials_are_the_administrators(secret, header):
    async with stand_in() as server:
        api = Api()
        api.secret = secret
        tracked = Tracked(server, api, secret=SECRET)
        async with running(tracked.tracker):
            body = tracked.sees()
            if header is None:
                await tracked.until(lambda: tracked.hold_s(body) == 0, "no run")
                assert server.calls == []
                return
            await tracked.run_of(body)
            assert {one["Authorization"] for one in server.headers} == {header}
            variables = str(tracked.tracker.variables(body))
            assert not any(text.strip() in variables for text in secret.values())
            reference = tracked.tracker.variables(body)["MLFLOW_TRACKING_TOKEN"]["secretKeyRef"]
            assert reference == {"name": "mlflow-credentials", "key": "token", "optional": True}


# -- settings and variables ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "uri",
    ["ftp://x", "http://", "http://a:b@x", "http://x/?a=b", "http://x y", "x", "http://x:99999"],
)
def test_only_plain_addresses_are_taken(uri):
    with pytest.raises(ValidationError, match="an address such as"):
        TrackingConfig(uri=uri)


def test_two_sources_of_the_address_are_refused():
    with pytest.raises(ValidationError, match="remove it from job_env"):
        SchedulerConfig(tracking={"uri": "http://x"}, job_env={"MLFLOW_TRACKING_URI": "http://y"})


def test_another_server_of_a_namespace_never_gets_the_clusters_credentials():
    own = {"uri": "http://theirs"}
    config = TrackingConfig(uri="http://ours", secret=SECRET, namespaces={"team": own})
    server = target_of(config, "team", {}).server
    assert (server.uri, server.pods_uri, server.secret) == ("http://theirs", "http://theirs", None)
    assert target_of(config, "other", {}).server.secret == SECRET


@pytest.mark.parametrize(
    ("settings", "keys", "experiment"),
    [
        ({}, {}, "team"),
        ({}, {names.EXPERIMENT_ANNOTATION: "mnist"}, "team/mnist"),
        ({"experiment_prefix": ""}, {names.EXPERIMENT_ANNOTATION: "mnist"}, "mnist"),
        ({"namespaces": {"team": {"experiment": "theirs"}}}, {}, "theirs"),
        ({"namespaces": {"team": {"enabled": False}}}, {}, None),
        ({"jobs": "named"}, {}, None),
        ({"jobs": "named"}, {names.TRACKING_ANNOTATION: "on"}, "team"),
        ({}, {names.TRACKING_ANNOTATION: "off"}, None),
    ],
)
def test_settings_and_annotations_choose_the_experiment(settings, keys, experiment):
    target = target_of(TrackingConfig(uri="http://x", **settings), "team", keys)
    assert (target.experiment if target is not None else None) == experiment


@pytest.mark.parametrize("value", ["maybe", "On", ""])
def test_the_switch_has_two_values(value):
    with pytest.raises(TargetError, match="on and off are allowed"):
        target_of(TrackingConfig(uri="http://x"), "team", {names.TRACKING_ANNOTATION: value})


def test_a_container_with_a_run_of_its_own_is_left_alone():
    run = {"MLFLOW_RUN_ID": "r", "MLFLOW_TRACKING_URI": "http://x"}
    own = {"name": "a", "env": [{"name": "MLFLOW_TRACKING_URI", "value": "http://mine"}]}
    pod = {"kind": "Pod", "spec": {"containers": [own, {"name": "b"}]}}
    first, second = with_env(pod, run, RUN_VARIABLES)["spec"]["containers"]
    assert first == own
    assert [item["name"] for item in second["env"]] == list(run)


def test_gpu_time_is_that_of_placed_gangs():
    used = JobGpuTime()
    assert not used.put("g", gang_hold(group(phase="Pending"), 0), 0)
    assert used.put("g", gang_hold(group(), 10), 10)
    assert not used.put("g", gang_hold(group(), 15), 15)
    assert used.put("g", gang_hold(group(phase="Pending"), 20), 20)
    assert used.tags()["gangsched.gpu_s"] == "80.0"
    assert used.put("g", gang_hold(group(nodes=1), 30), 30)
    used.end(40)
    assert used.tags()["gangsched.gpu_s"] == "120.0"
    assert used.tags()["gangsched.nodes"] == "n0"


@pytest.mark.parametrize(
    "broken", [None, [], "x", 3, {"roles": {}}, {"roles": [{"count": "9" * 99}]}]
)
def test_no_group_is_malformed_enough_to_raise(broken):
    body = group() | {"spec": broken, "status": {"phase": "Placed", "assignments": broken}}
    assert gang_hold(body, 0).gpus == 0


def test_no_job_waits_for_half_a_minute_after_a_failure():
    now_s = 100.0
    patience = Patience(1.0, lambda: now_s)
    deadline_s = patience.deadline_s()
    assert patience.left_s(deadline_s) == 1.0
    patience.lost()
    assert patience.left_s(deadline_s) == 0
    now_s = 131.0
    assert patience.left_s(patience.deadline_s()) == 1.0


def test_the_tag_that_finds_a_run_is_known():
    assert UID == "gangsched.job_uid"
