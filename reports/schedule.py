"""The page of `baton simulate --plots`: the schedules of one replayed trace, and the record for comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reports import figures, palette
from reports import format as fmt
from reports.build import render
from reports.layout import Figure, Section, TableView, columns
from simulator.metrics import mean_level
from simulator.workload import Replay, Workload
from traces.arrays import Int64s
from traces.counted import counted
from traces.errors import InputError
from traces.files.whole import write_text
from traces.units import DAY_S, HOUR_S

BINS = 240
_TINTS = ("simulated", "class0", "class2", "class3", "fifo")  # of replays whose names the palette lacks
MOST_DRAWN = 2000  # jobs in a Gantt chart
_EASY_TO_READ = 300  # jobs in a window chosen automatically
_CLASSES_S = (60, HOUR_S, 12 * HOUR_S)
_CLASSES = ("waited under 1 min", "under 1 h", "under 12 h", "longer")
RECORDED = "recorded"


@dataclass(frozen=True)
class DrawnTrace:
    """A trace on a cluster, as the page names it."""

    cluster: str  # name of the trace; untrusted text
    workload: Workload
    capacity: int
    unit: str  # processors or nodes
    slug: str = "trace"
    is_generated: bool = False

    @property
    def first_s(self) -> int:
        """The time of the first submission, s."""
        return int(self.workload.submit_s.min())


def write_page(
    path: Path, trace: DrawnTrace, replays: Sequence[Replay], rows: list[dict[str, Any]], sentences: Sequence[str],
    window: tuple[int | None, int | None] = (None, None),
) -> None:  # fmt: skip
    """Write one self-contained HTML file.

    `rows` are the figures of each schedule by name (`scheduler`, mean_wait_s, ...), and `sentences` stand at the top.
    `window` is the begin of the Gantt chart, s since the first submission, and its length, s. None selects a readable
    window around the start of the job that waited longest. Raises InputError for a window with more than MOST_DRAWN
    jobs.
    """
    section = Section("schedule", "Schedule", sentences=list(sentences))
    schedules = [*replays, *_recorded(trace)]
    section.figures += _over_time(trace, schedules)
    section.figures.append(_waits(trace, schedules))
    begin, end = _window(trace, replays, *window)
    section.figures += [_gantt(trace, replay, begin, end) for replay in schedules]
    section.tables.append(
        TableView(
            "figures", "Schedules side by side",
            "Error of a wait: mean absolute difference from the recorded wait. Spearman: rank correlation of the two, "
            f"ties averaged. {_caption(trace)}",
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
    write_text(path, render([{"source": trace, "sections": [section]}]))


def _tint(schedules: Sequence[Replay], replay: Replay) -> str:
    """The colour of a schedule: of its name, else by its place."""
    if replay.scheduler in palette.COLOURS:
        return replay.scheduler
    return _TINTS[[one.scheduler for one in schedules].index(replay.scheduler) % len(_TINTS)]


def _recorded(trace: DrawnTrace) -> list[Replay]:
    """Return the record as one more schedule, if it holds any start."""
    jobs = trace.workload
    return [Replay(RECORDED, jobs.start_s, jobs.run_s, float("nan"))] if (jobs.start_s >= 0).any() else []


def _caption(trace: DrawnTrace) -> str:
    return (
        f"Trace {fmt.text(trace.cluster)}, {counted(len(trace.workload), 'job')} on {trace.capacity:,} {trace.unit}, "
        "no seeds."
    )


def _over_time(trace: DrawnTrace, schedules: Sequence[Replay]) -> list[Figure]:
    jobs = trace.workload
    last = max(
        int((replay.starts + replay.run_s)[replay.starts >= 0].max(initial=trace.first_s)) for replay in schedules
    )
    edges = np.linspace(trace.first_s, max(last, trace.first_s + 1), BINS + 1)
    queue, used = {}, {}
    for replay in schedules:
        ran = replay.starts >= 0
        starts, size = replay.starts[ran], jobs.size[ran]
        waiting = jobs.submit_s[ran] if replay.scheduler == RECORDED else jobs.submit_s
        up, down = np.ones(len(waiting), np.int64), -np.ones(len(starts), np.int64)
        levels = mean_level(np.concatenate([waiting, starts]), np.concatenate([up, down]), edges)
        queue[replay.scheduler] = (levels, _tint(schedules, replay))
        levels = mean_level(np.concatenate([starts, starts + replay.run_s[ran]]), np.concatenate([size, -size]), edges)
        used[replay.scheduler] = (levels, _tint(schedules, replay))
    days = (edges - trace.first_s) / DAY_S
    each = f"Means over periods of {fmt.duration(float(edges[1] - edges[0]))}. {_caption(trace)}"
    return [
        Figure(
            "queue", "Jobs in the queue", each, figures.over_days("queue", days, queue, "pending jobs"),
            "Number of pending jobs over time, one line per schedule.",
        ),
        Figure(
            "in_use", f"{trace.unit.capitalize()} in use", each,
            figures.over_days("used", days, used, f"{trace.unit} in use"),
            f"Number of {trace.unit} in use over time, one line per schedule.",
        ),
    ]  # fmt: skip


def _waits(trace: DrawnTrace, schedules: Sequence[Replay]) -> Figure:
    curves = {
        replay.scheduler: (
            (replay.starts - trace.workload.submit_s)[replay.starts >= 0].astype(np.float64), _tint(schedules, replay)
        )
        for replay in schedules
    }  # fmt: skip
    return Figure(
        "waits",
        "Waits",
        f"Share of jobs with at most this wait (log axis; 0 counts as 1 s). {_caption(trace)}",
        figures.ecdf("waits", curves, "wait from submission", dashed=(RECORDED,)),
        "Cumulative distributions of the waits, one curve per schedule.",
    )


def _window(trace: DrawnTrace, replays: Sequence[Replay], begin_s: int | None, length_s: int | None) -> tuple[int, int]:
    """Return begin and end of the Gantt charts, in the trace's own s."""
    first = replays[0]
    wait = np.where(first.starts >= 0, first.starts - trace.workload.submit_s, 0)
    length = length_s or DAY_S
    if begin_s is None:  # around the start of the job that waited longest
        begin = max(int(first.starts[np.argmax(wait)]) - length // 2, trace.first_s)
    else:
        begin = trace.first_s + begin_s

    def most(length: int) -> int:
        return max(int(_overlapping(replay, begin, begin + length).sum()) for replay in replays)

    while length_s is None and length > HOUR_S and most(length) > _EASY_TO_READ:
        length //= 2
    if most(length) > MOST_DRAWN:
        raise InputError(
            f"a Gantt chart of {fmt.duration(length)} would hold {counted(most(length), 'job')}, but at most "
            f"{MOST_DRAWN:,} can be drawn: give a shorter --gantt"
        )
    return begin, begin + length


def _overlapping(replay: Replay, begin: int, end: int) -> NDArray[np.bool_]:
    return (replay.starts >= 0) & (replay.starts < end) & (replay.starts + replay.run_s > begin) & (replay.run_s > 0)


def _gantt(trace: DrawnTrace, replay: Replay, begin: int, end: int) -> Figure:
    rows = np.flatnonzero(_overlapping(replay, begin, end))
    rows = rows[np.lexsort((rows, replay.starts[rows]))]
    starts, sizes = replay.starts[rows], trace.workload.size[rows]
    pieces = places(starts, starts + replay.run_s[rows], sizes, trace.capacity)
    waits = starts - trace.workload.submit_s[rows]
    bars = np.array(
        [
            (max(starts[job], begin), min(starts[job] + replay.run_s[rows[job]], end), first, units)
            for job, first, units in pieces
        ],
        np.float64,
    ).reshape(-1, 4)
    bars[:, 1] -= bars[:, 0]
    bars[:, 0] -= trace.first_s
    bars[:, :2] /= HOUR_S
    class_of_piece = np.searchsorted(_CLASSES_S, waits, side="right")[[job for job, _first, _units in pieces]]
    limits = ((begin - trace.first_s) / HOUR_S, (end - trace.first_s) / HOUR_S, trace.capacity)
    return Figure(
        f"gantt_{replay.scheduler}", f"Gantt chart, {replay.scheduler}",
        f"Each bar is a job; its height is its size in {trace.unit}. The scheduler only counts {trace.unit}, so the "
        f"drawing places each job on the lowest free ones. {_caption(trace)}",
        figures.gantt(f"gantt-{replay.scheduler}", bars, class_of_piece, _CLASSES, limits, trace.unit),
        f"Jobs as bars over time and {trace.unit}, coloured by how long they waited.",
    )  # fmt: skip


def places(starts: Int64s, ends: Int64s, sizes: Int64s, capacity: int) -> list[tuple[int, int, int]]:
    """Choose where to draw each job: (job, first unit, units), several if the job's units are not adjacent.

    Jobs come by start, and each takes the lowest free units. A job that finds too few (a record may hold more than the
    capacity at once) is drawn on those.
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
