"""The observer of `make bench NAME=operators`: gangs that do not start whole."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "bench"))
from witness import Judgement, belongs_to, judge


def pod(uid: str, at: float, *, bound=False, alone=False, gone=False, gang="ns/g") -> dict:
    """Return a line about a pod."""
    started = (1 if alone else 3) if bound else None
    seen = {"at": at, "uid": uid, "gang": gang, "bound": bound, "gone": gone}
    return seen | {"started_with": started}


def ended(*, passed: bool = True, test="a.py::t") -> dict:
    return {"test": test, "passed": passed}


COME = [{"installed": "jobset"}, *(pod(uid, 1.0) for uid in "abc")]
WHOLE = [*COME, *(pod(uid, 2.0, bound=True) for uid in "abc"), ended()]


def test_a_gang_that_starts_whole():
    assert judge(WHOLE) == Judgement(frozenset({"jobset"}), 1, 1, 0, 0)


def test_a_gang_that_starts_in_part():
    lines = [*COME, pod("a", 2.0, bound=True), pod("b", 20.0, bound=True), ended()]
    assert judge(lines) == Judgement(frozenset({"jobset"}), 1, 0, 0, 0)


def test_pods_that_come_once_others_run_are_not_of_its_start():
    lines = [*WHOLE[:-1], pod("d", 3.0), pod("d", 60.0, bound=True), ended()]
    assert judge(lines).whole == 1


def test_pods_that_are_gangs_of_one_by_themselves():
    lines = [*COME, *(pod(uid, 2.0, bound=True, alone=True) for uid in "abc"), ended()]
    assert judge(lines) == Judgement(frozenset({"jobset"}), 1, 1, 1, 0)


def test_a_gang_that_waits_for_room_is_in_no_deadlock():
    other = pod("o", 0.5, bound=True, gang="ns/other")
    gone = [pod(uid, 60.0, gone=True) for uid in "abc"]
    free = pod("o", 59.0, bound=True, gone=True, gang="ns/other")
    assert judge([*COME, other, free, *gone, ended()]).deadlocks == 0
    early = pod("o", 2.0, bound=True, gone=True, gang="ns/other")
    assert judge([*COME, other, early, *gone, ended()]).deadlocks == 1
    late = [pod("p", 30.0, bound=True, gang="ns/p")]
    assert judge([*COME, other, early, *late, *gone, ended()]).deadlocks == 1
    assert judge([*COME, ended()]) == Judgement(frozenset({"jobset"}), 0, 0, 0, 1)


def test_an_operator_of_which_a_test_failed_does_not_run():
    assert judge([*WHOLE[:-1], ended(passed=False)]).operators == frozenset()
    later = [*WHOLE, *COME, ended(passed=False)]
    assert judge(later).operators == frozenset()
    another = [*WHOLE, ended(passed=False, test="b.py::t")]
    assert judge(another).operators == {"jobset"}


def test_names_come_again_in_the_next_test():
    again = [line | {"uid": f"{line['uid']}2"} if "uid" in line else line for line in WHOLE]
    assert judge([*WHOLE, *again]).gangs == 2


def test_what_a_pod_belongs_to():
    owned = {"name": "p", "ownerReferences": [{"name": "o"}]}
    assert belongs_to(owned) == "o"
    assert belongs_to(owned | {"labels": {"ray.io/cluster": "r"}}) == "r"
    lws = {"leaderworkerset.sigs.k8s.io/name": "l"}
    group = {"leaderworkerset.sigs.k8s.io/group-index": "1"}
    assert belongs_to({"labels": lws | group}) == "l-1"
