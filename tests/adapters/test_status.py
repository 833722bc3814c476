"""Statuses of groups: what could not be written is written later, unless the object is refused."""

import asyncio

import pytest

from gangsched.core.model import GangId
from gangsched.core.orders import Report
from gangsched.kube import status
from gangsched.kube.errors import Forbidden, Invalid, NotFound, Unavailable
from gangsched.kube.status import Status, Subject

G = GangId("ns/g")


class Api:
    """An API server that fails at the first write."""

    def __init__(self, error: Exception) -> None:
        self.error, self.phases = error, []

    async def patch(self, _, body) -> bytes:
        self.phases.append(body["status"]["phase"])
        if len(self.phases) == 1:
            raise self.error
        return b"{}"

    async def create(self, *_) -> bytes:
        return b"{}"


@pytest.mark.parametrize(
    ("error", "writes"),
    [
        (Unavailable(503, "etcd is away"), 2),
        (Forbidden(403, "not yet"), 2),
        (Invalid(422, "no such phase"), 1),
        (NotFound(404, "gone"), 1),
    ],
)
async def test_a_status_that_could_not_be_written(monkeypatch, error, writes):
    monkeypatch.setattr(status, "_AGAIN_S", 0.01)
    api = Api(error)
    made = Status(api)
    made.subject(G, Subject("gangsched.io/v1beta1", "PodGroup", "ns", "g", "u", has_status=True))
    made.take(Report(G, "Placed", "Placed", "all 2 pods of the gang are bound."))
    running = asyncio.create_task(made.run())
    await asyncio.sleep(0.2)
    running.cancel()
    assert api.phases == ["Placed"] * writes
