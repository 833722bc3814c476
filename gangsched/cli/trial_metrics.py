"""`gangsched trial-metrics`: answers `get_trial_metrics` of Katib's client.

The client asks Katib's DB manager (gRPC, `api.v1.beta1.DBManager`), which answers everyone with the
metrics of all tenants. This server runs on the machine of the user, listens on loopback, and reads
Trials with the rights of the user.
Source: kubeflow/katib, pkg/apis/manager/v1beta1/api.proto.
"""

from collections.abc import Callable, Iterator
from typing import Any

import grpc
import msgspec
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc import aio

from gangsched.core.model.text import shown
from gangsched.jobs.common.model import Json
from gangsched.jobs.katib.metrics import UNAVAILABLE
from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import Forbidden, KubeError, NotFound
from gangsched.kube.client.paths import is_dns_name, object_path

_PACKAGE = "api.v1.beta1"
_REQUEST_BYTES = 64 * 1024
_CALLS = 8
_NO_TIME = "0001-01-01T00:00:00Z"
"""Katib's time of a value that is printed without one."""

_FIELD = descriptor_pb2.FieldDescriptorProto
_MESSAGES = {
    "Metric": ("name", "value"),
    "MetricLog": ("time_stamp", ("metric", "Metric", _FIELD.LABEL_OPTIONAL)),
    "ObservationLog": (("metric_logs", "MetricLog", _FIELD.LABEL_REPEATED),),
    "GetObservationLogRequest": ("trial_name", "metric_name", "start_time", "end_time"),
    "GetObservationLogReply": (("observation_log", "ObservationLog", _FIELD.LABEL_OPTIONAL),),
}
"""The fields of each message, in the order of their numbers: a text, or another message."""


class RefusedError(Exception):
    """A request that is answered with an error: its code and a sentence."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code


def message_classes() -> dict[str, type[Any]]:
    """Return the classes of Katib's messages, by name."""
    file = descriptor_pb2.FileDescriptorProto(
        name="gangsched/katib.proto", package=_PACKAGE, syntax="proto3"
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, given in enumerate(fields, 1):
            if isinstance(given, str):
                message.field.add(
                    name=given, number=number, type=_FIELD.TYPE_STRING, label=_FIELD.LABEL_OPTIONAL
                )
            else:
                field, kind, label = given
                message.field.add(
                    name=field,
                    number=number,
                    type=_FIELD.TYPE_MESSAGE,
                    label=label,
                    type_name=f".{_PACKAGE}.{kind}",
                )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in _MESSAGES
    }


def values_of(trial: Json, metric_name: str) -> Iterator[tuple[str, str]]:
    """Yield the metrics of a trial and their values in order; of one metric, if it is named.

    A trial that runs may have only the latest value of each.
    """
    status = trial.get("status") or {}
    logs = status.get("observationLog") or [
        {"name": metric["name"], "values": [metric["latest"]]}
        for metric in (status.get("observation") or {}).get("metrics") or []
    ]
    for log in logs:
        if metric_name in ("", log["name"]):
            yield from ((log["name"], value) for value in log["values"] if value != UNAVAILABLE)


class TrialMetricsServer:
    """Serves the metrics of the Trials of one namespace."""

    def __init__(self, client: KubeClient, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._messages = message_classes()

    async def serve(self, port: int, ready: Callable[[int], None]) -> None:
        """Serve on a port of loopback until cancelled; port 0 stands for any free port.

        Raises:
            OSError: the port cannot be used.

        """
        server = aio.server(
            maximum_concurrent_rpcs=_CALLS,
            options=[("grpc.max_receive_message_length", _REQUEST_BYTES), ("grpc.so_reuseport", 0)],
        )
        handler = grpc.unary_unary_rpc_method_handler(
            self._answer,
            request_deserializer=self._messages["GetObservationLogRequest"].FromString,
            response_serializer=self._messages["GetObservationLogReply"].SerializeToString,
        )
        methods = {"GetObservationLog": handler}
        server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler(f"{_PACKAGE}.DBManager", methods)]
        )
        try:
            bound = server.add_insecure_port(f"127.0.0.1:{port}")
        except RuntimeError as error:
            raise OSError(f"port {port} of 127.0.0.1 cannot be used") from error
        await server.start()
        try:
            ready(bound)
            await server.wait_for_termination()
        finally:
            await server.stop(grace=None)

    async def _answer(self, request: Any, context: Any) -> Any:
        try:
            found = [*values_of(await self._trial(request), request.metric_name)]
        except RefusedError as error:
            await context.abort(error.code, str(error))  # it raises
            raise
        reply = self._messages["GetObservationLogReply"]()
        for name, value in found:
            entry = reply.observation_log.metric_logs.add(time_stamp=_NO_TIME)
            entry.metric.name, entry.metric.value = name, value
        return reply

    async def _trial(self, request: Any) -> Json:
        if request.start_time or request.end_time:
            raise RefusedError(
                grpc.StatusCode.INVALID_ARGUMENT,
                "start_time and end_time are not allowed: the values of trials have no times",
            )
        name = request.trial_name
        if not is_dns_name(name):
            raise RefusedError(
                grpc.StatusCode.INVALID_ARGUMENT, f"trial_name {shown(name)} is no valid name"
            )
        path = f"/apis/kubeflow.org/v1beta1/namespaces/{self._namespace}/trials"
        try:
            trial: Json = msgspec.json.decode(await self._client.get(object_path(path, name)))
        except NotFound:
            raise RefusedError(
                grpc.StatusCode.NOT_FOUND, f"there is no Trial {self._namespace}/{name}"
            ) from None
        except Forbidden as error:
            raise RefusedError(grpc.StatusCode.PERMISSION_DENIED, str(error)) from error
        except KubeError as error:
            raise RefusedError(grpc.StatusCode.UNAVAILABLE, str(error)) from error
        return trial
