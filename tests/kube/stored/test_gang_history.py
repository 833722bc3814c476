"""Stored gang histories: bounded, fair to namespaces, and deterministic."""

import pytest

from gangsched.core import facts as f
from gangsched.core.bounds import PAST_LETTERS
from gangsched.kube.stored.gang_history import read, written


def past(gang, **more):
    return f.HistoryRestored(gang, 12.5, **more)


FULL = past(
    "ns/g",
    declared=7,
    attempts=3,
    no_shows=1,
    unready_tries=2,
    attained_service_s=4.25,
    backoff_until_s=99.5,
    excluded_nodes=(("n1", 77.0),),
    pods_per_node_max=2,
    pods_per_node_until_s=78.0,
    failure_message="it ran for the 60 s it may",
    admitted=((("nvidia.com/gpu", ""), 8000),),
    vacated=("ns/g-w-1",),
    places=(("ns/g-w-2", "n2"),),
    waits_for_capacity=True,
    reserved_start_s=120.0,
    reserved_nodes=(("ns/g-w-0", "n0"),),
)


def test_what_is_read_is_what_was_written_in_its_order():
    facts = [
        past("ns/z", attempts=1),
        FULL,
        past("ns/a", reserved_start_s=0.5),
        past("m/b", attempts=2),
    ]
    stopped = [f.PreemptionRestored("ns/g", "ns/z", 3.0)]
    assert read(written([*facts, *stopped])) == [*facts, *stopped]
    assert read(written(())) == []


def test_what_an_earlier_release_stored_is_read():
    stored = (
        '{"format":1,"gangs":[{"gang":"ns/g","since_s":12.5,"attempts":1,"not_before_s":99.5,'
        '"avoid":[["n1",77.0]],"given_up":"late"}],"stopped":[]}'
    )
    (fact,) = read(stored)
    assert fact == past(
        "ns/g",
        attempts=1,
        backoff_until_s=99.5,
        excluded_nodes=(("n1", 77.0),),
        failure_message="late",
    )
    assert written([fact]) == stored


def test_one_namespace_leaves_space_for_the_others():
    many = [past(f"loud/g{index}", failure_message="x" * 300) for index in range(5_000)]
    facts = [*many, past("calm/g", attempts=1), f.PreemptionRestored("calm/h", "loud/g1", 1.0)]
    text = written(facts)
    found = read(text)
    assert len(text) < PAST_LETTERS.most + 100
    assert found[-2:] == facts[-2:]
    assert 1_000 < len(found) < 2_000
    assert found[:5] == many[:5]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"format":1,"gangs":[{"gang":1}]}', "[" * 5_000])
def test_what_is_no_past_is_said(text):
    with pytest.raises(ValueError, match=r".+"):
        read(text)


def test_another_format_tells_nothing():
    assert read('{"format":2,"gangs":[]}') == []
