"""The timeline's rows and pictures."""

import re

import pytest

from gangsched.web.model import (
    GangRow,
    NodeTile,
    PageModel,
    RunSpan,
    Span,
    StartRow,
    WindowRow,
)
from gangsched.web.views import timeline

NOW_S = 1_000_000_000.0
HOSTILE = '"><script>alert(1)</script>'


def model(**more):
    gangs = {
        row.id: row
        for row in (
            GangRow("ns/runs", "q", "", "Placed", 0, 1, 1, 1, 6.0, started_s=NOW_S - 600,
                    end=Span(NOW_S + 300, NOW_S + 600, NOW_S + 1200)),
            GangRow("ns/soon", "q", "", "Pending", 0, 1, 0, 1, 8.0, queued_since_s=NOW_S - 60,
                    start=StartRow(1, "declared", Span(NOW_S + 100, NOW_S + 600, NOW_S + 900),
                                   reserved_s=NOW_S + 700, runtime_s=1000.0)),
            GangRow("ns/later", "other", "", "Pending", 0, 1, 0, 1, 8.0,
                    start=StartRow(2, "declared"), reason="NotEnoughFree"),
            GangRow("ns/over", "q", "", "Finished", 0, 1, 1, 1, 2.0),
        )
    }  # fmt: skip
    runs = (
        RunSpan("ns/over", "q", 2.0, NOW_S - 3000, NOW_S - 2000, "ended"),
        RunSpan("", "", 4.0, NOW_S - 3000, NOW_S - 2500, "ended"),
        RunSpan("ns/runs", "q", 6.0, NOW_S - 2000, NOW_S - 1500, "stopped"),
    )
    node = NodeTile("a", 1, (), 8, "", cordoned=False, failing=False, stop_by_s=None, segments=())
    windows = (WindowRow("works", "maintenance", NOW_S + 3000, NOW_S + 3300, 4),)
    values = {"nodes": (node,), "queues": (), "gangs": gangs, "runs": runs, "windows": windows}
    return PageModel(1, NOW_S, "s", live=False, levels=(), **(values | more))


def test_rows_are_windows_then_running_pending_and_ended_gangs():
    rows = timeline.rows_of(model(), "")
    assert [row.name for row in rows] == ["works", "ns/runs", "ns/soon", "ns/later", "ns/over"]
    assert [row.text for row in rows][1:4] == [
        "ends in 10 min (5 min to 20 min)",
        "starts in 10 min (1 min 40 s to 15 min)",
        "NotEnoughFree",
    ]
    assert rows[4].text.startswith("ended 2001-09-09")
    assert [row.name for row in timeline.rows_of(model(), "other")] == ["ns/later"]


def test_a_gang_that_ran_before_has_all_its_bars_in_one_row():
    row = timeline.rows_of(model(), "")[1]
    assert [(name.split()[0], start_s - NOW_S, end_s - NOW_S) for name, start_s, end_s in row.bars][
        :2
    ] == [("ran", -2000, -1500), (timeline.colour_of_name("q"), -600, 0)]


def test_the_period_fits_most_of_the_bars():
    rows = timeline.rows_of(model(), "")
    assert timeline.fitting_period(rows, NOW_S) == "1h"
    assert timeline.fitting_period([], NOW_S) == "1h"
    far = timeline.TimelineRow("x", "", "", bars=[("c0", NOW_S, NOW_S + 40 * 86_400)])
    assert timeline.fitting_period([far], NOW_S) == "30d"


def lefts(picture):
    return [float(x) for x in re.findall(r'd="M(-?[0-9.]+) ', str(picture))]


def test_bars_are_where_their_times_are():
    row = timeline.TimelineRow("x", "", "", HOSTILE)
    row.bars = [
        ("c0", NOW_S - 1800, NOW_S),
        ("c1", NOW_S + 1800, NOW_S + 9e9),
        ("c2", NOW_S + 9e9, NOW_S + 9e9),
        ("window", NOW_S + 900, float("inf")),
    ]
    picture = timeline.bars(row, NOW_S, 3600.0)
    assert lefts(picture) == [250.0, 750.0, 625.0, 500.0], "the third is beyond the timeline"
    assert "h375.0v14" in str(picture), "a window without an end goes to the edge"
    assert "<script" not in str(picture)


def test_gpus_in_use_follow_runs_and_medians_and_never_exceed_the_cluster_later():
    chart = timeline.usage_chart(model(), "", 3600.0)
    assert chart.text.startswith("6 of 8 GPUs are used by gangs now")
    heights = [float(y) for y in re.findall(r"V([0-9.]+)h", str(chart.picture))]
    step_s = 7200 / len(heights)

    def used(at_s):
        return round((60 - heights[int((at_s + 3600) / step_s)]) / 60 * 8, 2)

    assert [used(at_s) for at_s in (-2700, -2200, -1750, -1200, -300, 300, 700, 2000)] == [
        6.0, 2.0, 6.0, 0.0, 6.0, 6.0, 8.0, 0.0
    ]  # fmt: skip
    assert timeline.usage_chart(model(), "none", 3600.0) is None
    assert timeline.usage_chart(model(nodes=()), "", 3600.0) is None


@pytest.mark.parametrize("period", timeline.PERIODS)
def test_ticks_say_how_far_and_when(period):
    ticks = timeline.ticks(NOW_S, timeline.PERIODS[period])
    assert [text for text, _ in ticks][2] == "now"
    assert len(ticks) == 5
    assert all(at.startswith("2001-") for _, at in ticks)
