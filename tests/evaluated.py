"""Evaluation in the process of the test, so that what it raises is seen."""

from typing import Any

import msgspec

from gangsched.core.jobs.tree import Owned
from gangsched.operators.evaluate import Answer, Request, answer
from gangsched.operators.evaluators import Evaluators, UnusableError


class Here(Evaluators):
    """Evaluates without any process."""

    async def _ask(self, owned: Owned, task: str, arguments: list[Any]) -> Any:
        raw = answer(msgspec.msgpack.encode(Request(task, arguments)))
        found = msgspec.msgpack.decode(raw, type=Answer)
        assert not found.failed, found.failed
        if found.wrong:
            raise UnusableError(found.wrong)
        return found.value
