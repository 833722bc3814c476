"""Runs evaluations in the process of the test, so that the test sees exceptions."""

from typing import Any

import msgspec

from gangsched.jobs.common.owned_objects import Owned
from gangsched.operators.evaluation.pool import Evaluators, UnusableError
from gangsched.operators.evaluation.program import Answer, Request, answer


class Here(Evaluators):
    """Evaluates without any process."""

    async def _ask(self, owned: Owned, task: str, arguments: list[Any]) -> Any:
        raw = answer(msgspec.msgpack.encode(Request(task, arguments)))
        found = msgspec.msgpack.decode(raw, type=Answer)
        assert not found.failed, found.failed
        if found.wrong:
            raise UnusableError(found.wrong)
        return found.value
