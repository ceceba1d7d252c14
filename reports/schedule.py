"""The page of `baton simulate --plots`: one replayed trace, its schedules side by side and beside the record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reports import figures
from reports import format as fmt
from reports.build import render
from reports.layout import Figure, Section, TableView, columns
from simulator.metrics import mean_level
from simulator.workload import Int64s, Replay, Workload
from traces.counted import counted
from traces.errors import InputError
from traces.files.whole import write_text

HOUR_S, DAY_S = 3600, 86400
BINS = 240
MOST_DRAWN = 2000  # jobs in a Gantt chart
_EASY_TO_READ = 300  # jobs in the window that is chosen where none is asked for
_CLASSES_S = (60, HOUR_S, 12 * HOUR_S)
_CLASSES = ("waited under 1 min", "under 1 h", "under 12 h", "longer")
RECORDED = "recorded"


@dataclass(frozen=True)
class Shown:
    """A trace on a cluster, as the page names it."""

    cluster: str  # name of the trace; untrusted text
    workload: Workload
    capacity: int
    unit: str  # processors or nodes
    slug: str = "trace"
    is_generated: bool = False

    @property
    def first_s(self) -> int:
        """The first submission, s."""
        return int(self.workload.submit_s.min())


def write_page(
    path: Path, shown: Shown, replays: Sequence[Replay], rows: list[dict[str, Any]], sentences: Sequence[str],
    window: tuple[int | None, int | None] = (None, None),
) -> None:  # fmt: skip
    """Write one self-contained HTML file.

    `rows` are the figures of each schedule by name (`scheduler`, mean_wait_s, ...), `said` the sentences at the top.
    `window` is the Gantt chart's begin, s since the first submission, and length, s; None leaves the choice to what is
    readable around the deepest queue. Raises InputError for a window with more than MOST_DRAWN jobs.
    """
    section = Section("schedule", "Schedule", sentences=list(sentences))
    drawn = [*replays, *_recorded(shown)]
    section.figures += _over_time(shown, drawn)
    section.figures.append(_waits(shown, drawn))
    begin, end = _window(shown, replays, *window)
    section.figures += [_gantt(shown, replay, begin, end) for replay in drawn]
    section.tables.append(
        TableView(
            "figures", "Schedules side by side",
            "The error of a wait is its mean absolute difference from the recorded one; Spearman is the rank "
            f"correlation of the two, ties averaged. {_caption(shown)}",
            columns(
                "scheduler|scheduler|name", "jobs|jobs|count", "mean_wait_s|mean wait|duration",
                "p50_wait_s|median wait|duration", "p95_wait_s|p95 wait|duration",
                "mean_bounded_slowdown|bounded slowdown|number", "mean_queue_jobs|mean queue, jobs|number",
                "utilization|utilization|percent", "makespan_s|makespan|duration",
                "mean_absolute_error_s|error of a wait|duration", "spearman|Spearman|number",
            ),
            rows,
        )
    )  # fmt: skip
    write_text(path, render([{"source": shown, "sections": [section]}]))


def _recorded(shown: Shown) -> list[Replay]:
    """The record as one more schedule, where it holds any start."""
    jobs = shown.workload
    return [Replay(RECORDED, jobs.start_s, jobs.run_s, float("nan"))] if (jobs.start_s >= 0).any() else []


def _caption(shown: Shown) -> str:
    return (
        f"Trace {fmt.text(shown.cluster)}, {counted(len(shown.workload), 'job')} on {shown.capacity:,} {shown.unit}, "
        "no seeds."
    )


def _over_time(shown: Shown, drawn: Sequence[Replay]) -> list[Figure]:
    jobs = shown.workload
    last = max(int((replay.starts + replay.run_s)[replay.starts >= 0].max(initial=shown.first_s)) for replay in drawn)
    edges = np.linspace(shown.first_s, max(last, shown.first_s + 1), BINS + 1)
    queue, used = {}, {}
    for replay in drawn:
        ran = replay.starts >= 0
        starts, size = replay.starts[ran], jobs.size[ran]
        waiting = jobs.submit_s[ran] if replay.scheduler == RECORDED else jobs.submit_s
        up, down = np.ones(len(waiting), np.int64), -np.ones(len(starts), np.int64)
        levels = mean_level(np.concatenate([waiting, starts]), np.concatenate([up, down]), edges)
        queue[replay.scheduler] = (levels, replay.scheduler)
        levels = mean_level(np.concatenate([starts, starts + replay.run_s[ran]]), np.concatenate([size, -size]), edges)
        used[replay.scheduler] = (levels, replay.scheduler)
    days = (edges - shown.first_s) / DAY_S
    each = f"Means over {fmt.duration(float(edges[1] - edges[0]))} each. {_caption(shown)}"
    return [
        Figure(
            "queue", "Jobs in the queue", each, figures.over_days("queue", days, queue, "jobs that pend"),
            "How many jobs pend over time, one line a schedule.",
        ),
        Figure(
            "in_use", f"{shown.unit.capitalize()} in use", each,
            figures.over_days("used", days, used, f"{shown.unit} in use"),
            f"How many {shown.unit} are in use over time, one line a schedule.",
        ),
    ]  # fmt: skip


def _waits(shown: Shown, drawn: Sequence[Replay]) -> Figure:
    curves = {
        replay.scheduler: (
            (replay.starts - shown.workload.submit_s)[replay.starts >= 0].astype(np.float64), replay.scheduler
        )
        for replay in drawn
    }  # fmt: skip
    return Figure(
        "waits",
        "Waits",
        f"Share of jobs that waited at most so long (log axis; 0 counts as 1 s). {_caption(shown)}",
        figures.ecdf("waits", curves, "wait from submission", dashed=(RECORDED,)),
        "Cumulative distributions of the waits, one curve a schedule.",
    )


def _window(shown: Shown, replays: Sequence[Replay], begin_s: int | None, length_s: int | None) -> tuple[int, int]:
    """Begin and end of the Gantt charts, in the trace's own s."""
    first = replays[0]
    wait = np.where(first.starts >= 0, first.starts - shown.workload.submit_s, 0)
    length = length_s or DAY_S
    if begin_s is None:  # around the start of the job that waited longest
        begin = max(int(first.starts[np.argmax(wait)]) - length // 2, shown.first_s)
    else:
        begin = shown.first_s + begin_s

    def most(length: int) -> int:
        return max(int(_overlapping(replay, begin, begin + length).sum()) for replay in replays)

    while length_s is None and length > HOUR_S and most(length) > _EASY_TO_READ:
        length //= 2
    if most(length) > MOST_DRAWN:
        raise InputError(
            f"a Gantt chart of {fmt.duration(length)} holds {counted(most(length), 'job')}, at most {MOST_DRAWN:,} "
            "are drawn: give a shorter --gantt"
        )
    return begin, begin + length


def _overlapping(replay: Replay, begin: int, end: int) -> NDArray[np.bool_]:
    return (replay.starts >= 0) & (replay.starts < end) & (replay.starts + replay.run_s > begin) & (replay.run_s > 0)


def _gantt(shown: Shown, replay: Replay, begin: int, end: int) -> Figure:
    rows = np.flatnonzero(_overlapping(replay, begin, end))
    rows = rows[np.lexsort((rows, replay.starts[rows]))]
    starts, sizes = replay.starts[rows], shown.workload.size[rows]
    pieces = places(starts, starts + replay.run_s[rows], sizes, shown.capacity)
    waits = starts - shown.workload.submit_s[rows]
    bars = np.array(
        [
            (max(starts[job], begin), min(starts[job] + replay.run_s[rows[job]], end), first, units)
            for job, first, units in pieces
        ],
        np.float64,
    ).reshape(-1, 4)
    bars[:, 1] -= bars[:, 0]
    bars[:, 0] -= shown.first_s
    bars[:, :2] /= HOUR_S
    class_of_piece = np.searchsorted(_CLASSES_S, waits, side="right")[[job for job, _first, _units in pieces]]
    limits = ((begin - shown.first_s) / HOUR_S, (end - shown.first_s) / HOUR_S, shown.capacity)
    return Figure(
        f"gantt_{replay.scheduler}", f"Gantt chart, {replay.scheduler}",
        f"Each bar a job, as tall as it is wide in {shown.unit}. The pool is flat: which {shown.unit} a job takes is "
        f"only drawn, lowest first. {_caption(shown)}",
        figures.gantt(f"gantt-{replay.scheduler}", bars, class_of_piece, _CLASSES, limits, shown.unit),
        f"Jobs as bars over time and {shown.unit}, coloured by how long they waited.",
    )  # fmt: skip


def places(starts: Int64s, ends: Int64s, sizes: Int64s, capacity: int) -> list[tuple[int, int, int]]:
    """Where to draw each job: (job, first unit, units), several for a job that lies apart.

    Jobs come by start; each takes the lowest units that are free. One that finds too few (a record may hold more than
    the capacity at once) is drawn on those.
    """
    until = np.full(capacity, np.iinfo(np.int64).min)
    pieces = []
    for job, (start, end, size) in enumerate(zip(starts.tolist(), ends.tolist(), sizes.tolist(), strict=True)):
        units = np.flatnonzero(until <= start)[:size]
        until[units] = end
        for run in np.split(units, np.flatnonzero(np.diff(units) > 1) + 1):
            if len(run):
                pieces.append((job, int(run[0]), len(run)))
    return pieces
