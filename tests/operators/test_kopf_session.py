"""The lines that kopf reads from a watch: whole, and not nested too deep."""

import asyncio
import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gangsched.operators.kopf_session import _Lines

LINES = [
    b'{"type":"ADDED","object":{"metadata":{"name":"a"}}}\n',
    b'{"type":"BOOKMARK","object":{}}\n',
    b'{"type":"MODIFIED","object":{"metadata":{"name":"\\u00e9\\n"}}}\n',
]
DEEP = b'{"type":"ADDED","object":{"spec":' + b"[" * 50_000 + b"]" * 50_000 + b"}}\n"


class Content:
    """What a connection brings, in pieces; more can be asked of it than is asked here."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces

    def at_eof(self) -> bool:
        return not self._pieces

    async def iter_chunked(self, size: int):
        for piece in self._pieces:
            yield piece


def heard(*pieces: bytes) -> list[bytes]:
    """Return what kopf is given."""

    async def listen() -> list[bytes]:
        return [piece async for piece in _Lines(Content(list(pieces))).iter_chunked(1024)]

    return asyncio.run(listen())


@settings(suppress_health_check=[HealthCheck.too_slow])  # what is slow is the machine
@given(st.lists(st.sampled_from(LINES)), st.lists(st.integers(1, 60)), st.binary(max_size=5))
def test_lines_arrive_whole_however_they_were_cut(lines, lengths, end):
    end = end.replace(b"\n", b"")
    text, pieces = b"".join(lines) + end, []
    for length in lengths:
        pieces.append(text[:length])
        text = text[length:]
    given_ = heard(*pieces, text)
    assert b"".join(given_) == b"".join(lines) + end
    assert all(piece.endswith(b"\n") for piece in given_[:-1])


def test_an_object_that_is_too_deep_is_readable_and_the_others_are_as_they_were():
    before, deep, after = b"".join(heard(LINES[0] + DEEP[:70_000], DEEP[70_000:] + LINES[1])).split(
        b"\n"
    )[:3]
    assert [before + b"\n", after + b"\n"] == LINES[:2]
    assert json.loads(deep)["type"] == "ADDED"


def test_the_rest_of_a_connection_is_as_it_was():
    assert _Lines(Content([])).at_eof()
