"""`gangsched trial-metrics`: Katib's call, answered from the status of a Trial."""

import asyncio

import grpc
import msgspec
import pytest

from gangsched.cli.trial_metrics import TrialMetricsServer, message_classes, values_of
from gangsched.core.bounds import KEPT_VALUES
from gangsched.jobs.katib.metrics import observation, observation_log
from gangsched.kube.client.errors import Forbidden, NotFound, Unavailable

CALL = "/api.v1.beta1.DBManager/GetObservationLog"


class Api:
    """An API server with one Trial, or with an error."""

    def __init__(self, status: dict, error: Exception | None = None) -> None:
        self.status, self.error, self.paths = status, error, []

    async def get(self, path: str) -> bytes:
        self.paths.append(path)
        if self.error is not None:
            raise self.error
        return msgspec.json.encode({"status": self.status})


async def asked(api: Api, **request: str) -> list[tuple[str, str]]:
    """Return the answer of a server to one call."""
    bound = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(TrialMetricsServer(api, "team-a").serve(0, bound.set_result))
    messages = message_classes()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{await bound}") as channel:
            call = channel.unary_unary(
                CALL,
                request_serializer=messages["GetObservationLogRequest"].SerializeToString,
                response_deserializer=messages["GetObservationLogReply"].FromString,
            )
            reply = await call(messages["GetObservationLogRequest"](**request))
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return [(one.metric.name, one.metric.value) for one in reply.observation_log.metric_logs]


SERIES = {"accuracy": [0.1, 0.5, 0.4], "loss": [3.0], "never": []}


async def test_all_values_of_a_trial_are_answered_in_order():
    api = Api({"observationLog": observation_log(SERIES), "observation": observation(SERIES)})
    assert await asked(api, trial_name="a") == [
        ("accuracy", "0.1"),
        ("accuracy", "0.5"),
        ("accuracy", "0.4"),
        ("loss", "3.0"),
    ]
    assert await asked(api, trial_name="a", metric_name="loss") == [("loss", "3.0")]
    assert api.paths[0] == "/apis/kubeflow.org/v1beta1/namespaces/team-a/trials/a"


async def test_a_trial_that_runs_has_its_latest_values():
    api = Api({"observation": observation(SERIES)})
    assert await asked(api, trial_name="a") == [("accuracy", "0.4"), ("loss", "3.0")]
    assert await asked(Api({}), trial_name="a") == []


@pytest.mark.parametrize(
    ("request_", "error", "code", "said"),
    [
        ({"trial_name": "a"}, NotFound(404, "no"), "NOT_FOUND", "there is no Trial team-a/a"),
        ({"trial_name": "a"}, Forbidden(403, "may not"), "PERMISSION_DENIED", "may not"),
        ({"trial_name": "a"}, Unavailable(503, "down"), "UNAVAILABLE", "down"),
        ({"trial_name": "../pods/x"}, None, "INVALID_ARGUMENT", "'../pods/x' is no valid name"),
        ({"trial_name": ""}, None, "INVALID_ARGUMENT", "'' is no valid name"),
        ({"trial_name": "a", "start_time": "2026"}, None, "INVALID_ARGUMENT", "start_time"),
    ],
)
async def test_a_request_that_cannot_be_answered_gets_a_sentence(request_, error, code, said):
    api = Api({}, error)
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await asked(api, **request_)
    assert raised.value.code().name == code
    assert said in raised.value.details()
    assert bool(api.paths) == (error is not None), "a wrong request asks nothing"


async def test_a_port_in_use_is_an_error():
    bound = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(TrialMetricsServer(Api({}), "a").serve(0, bound.set_result))
    port = await bound
    with pytest.raises(OSError, match=f"port {port} of 127.0.0.1 cannot be used"):
        await TrialMetricsServer(Api({}), "a").serve(port, print)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_of_many_values_the_first_and_the_last_are_kept():
    count = 10 * KEPT_VALUES.most
    (log,) = observation_log({"loss": [float(i) for i in range(count)]})
    kept = [float(value) for value in log["values"]]
    assert len(kept) == KEPT_VALUES.most
    assert (kept[0], kept[-1]) == (0.0, count - 1)
    assert kept == sorted(set(kept))
    trial = {"status": {"observationLog": [log]}}
    assert [value for _, value in values_of(trial, "")] == log["values"]
