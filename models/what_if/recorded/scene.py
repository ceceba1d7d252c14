"""The recorded cluster of a what-if: the jobs of a window, the inferred rules of each week, and the state every day.

`follow_window` reads everything that a replay takes from the record, once. `models.what_if.recorded.changes` changes
the scene, and `models.what_if.recorded.replays` simulates it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import polars as pl

from simulator.recorded.branch import new_cluster
from simulator.recorded.calibration.judge import ALL, Month, fits
from simulator.recorded.follow import HORIZON_S, TICK_S
from simulator.recorded.free import Anchor, Followed, LimitsOfUsers, anchored_starts, follow_to, given_by
from simulator.recorded.parameters import LEAST_FIT_S, Parameters, infer_parameters, jobs_of, rules_of
from simulator.recorded.record import NEVER, RecordedTrace, events
from simulator.recorded.single import is_around
from simulator.recorded.state import ORDERS, RecordedRules
from traces import instants
from traces.arrays import Bools, Float64s, Int64s
from traces.errors import InputError
from traces.slurm.conf import SlurmConf
from traces.units import DAY_S, HOUR_S, WEEK_S

LEAST_WINDOW_S = WEEK_S
LEAST_GAIN = 0.05  # by which another order than first come, first served has to explain the waits better
MECHANISMS_PLAYED = ALL - {"siblings"}  # a job that waits behind a held one was overtaken and is held itself


class FittedRules(NamedTuple):
    """Rules that hold from an instant on."""

    from_s: int  # epoch s
    points_per_hour: float | None  # growth of the priority; None: `RecordedRules.order`
    rules: RecordedRules


class Stretch(NamedTuple):
    """A part of the window with the same anchors, and what following the record through it shows."""

    from_s: int  # epoch s
    until_s: int
    rows: Int64s  # rows of the scene's record that are simulated, rising
    points_per_hour: float | None  # as the rules, of the beginning
    rules: RecordedRules
    shown: Followed  # its rows are positions in `rows`
    later: tuple[FittedRules, ...] = ()  # of the following weeks, in a replay in one piece

    @property
    def fits(self) -> tuple[FittedRules, ...]:
        """All rules in their order."""
        return FittedRules(self.from_s, self.points_per_hour, self.rules), *self.later


class NodesChange(NamedTuple):
    """Nodes that are added (below 0: removed) from an instant on, up to another, epoch s."""

    nodes: int
    from_s: int
    until_s: int


@dataclass(frozen=True)
class RecordedScene:
    """A window of the recorded cluster, as it was or changed. Arrays have the shape (jobs,)."""

    record: RecordedTrace
    about: pl.DataFrame  # a row per job: user, account, partition, qos (null where unknown), gpus
    from_s: int  # the window, epoch s
    until_s: int
    daily: tuple[Stretch, ...]  # replayed anew every day
    whole: Stretch | None  # replayed from the beginning of the window in one piece; None: not asked for
    limit_s: Int64s  # time limits
    run_s: Int64s  # of jobs that ran; of others without meaning
    points: Float64s  # added to the priority
    waited_s: Float64s  # added to the time that the priority counts as waited
    present: Bools
    copied: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))  # (copies,) rows submitted once more
    copied_later_s: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))  # (copies,) so much later
    age: float = 1.0  # factor on `Stretch.points_per_hour`
    rules: dict[str, int] = field(default_factory=dict)  # fields of RecordedRules
    own: LimitsOfUsers | None = None
    nodes: tuple[NodesChange, ...] = ()
    assumptions: tuple[str, ...] = ()
    seed: int = 0
    conf: SlurmConf | None = None  # as declared

    @property
    def judged(self) -> Bools:
        """The jobs whose waits count: submitted in the window, and ran."""
        inside: Bools = self.record.ran & (self.record.submit_s >= self.from_s) & (self.record.submit_s < self.until_s)
        return inside

    @property
    def held(self) -> Bools:
        """Whether the record shows that something unknown kept the job from starting; it starts when it did."""
        held = np.zeros(len(self.record), np.bool_)
        for stretch in self.daily:
            submit_s = self.record.submit_s[stretch.rows]
            inside = (submit_s >= stretch.from_s) & (submit_s < stretch.until_s)
            held[stretch.rows[inside & (stretch.shown.held == 1)]] = True
        return held

    @property
    def most_nodes(self) -> int:
        """The most nodes that are usable at once."""
        lasting = sum(change.nodes for change in self.nodes if change.until_s == NEVER)
        return max(int(stretch.shown.usable.max()) for stretch in self.daily) + lasting

    def stretches(self, *, is_whole: bool) -> tuple[Stretch, ...]:
        """The parts that are replayed anew every day, or the one that is the whole window."""
        return (self.whole,) if is_whole and self.whole is not None else self.daily


def follow_window(
    record: RecordedTrace,
    about: pl.DataFrame,
    from_s: int,
    until_s: int,
    span_s: int = DAY_S,
    *,
    also_whole: bool = True,
    is_frozen: bool = False,
) -> RecordedScene:
    """Infer the rules of each week from the record before it, follow the record, and keep its state every `span_s`.

    Without priorities, the order of the queue is inferred from the four weeks before the window. `is_frozen` keeps the
    rules of the window's beginning. With less than LEAST_FIT_S of record before the window, the
    rules are inferred from the whole record once, and an assumption says so. Raises InputError if no job that ran was
    submitted in the window.
    """
    if not (record.ran & (record.submit_s >= from_s) & (record.submit_s < until_s)).any():
        raise InputError(f"no job that ran was submitted from {instants.text(from_s)} to {instants.text(until_s)}")
    fitted, is_hindsight = _fits(record, from_s, from_s + 1 if is_frozen else until_s)
    begins = [from_s] if is_hindsight else [parameters.until_s for parameters in fitted]
    said = ["the rules are inferred from the weeks that are replayed: less than four weeks of log precede them"]
    said, order = said if is_hindsight else [], 0
    if any(parameters.points_per_hour is None for parameters in fitted):
        judged_s = (from_s, until_s) if is_hindsight else (from_s - LEAST_FIT_S, from_s)
        order, lines = _inferred_order(record, fitted[0], *judged_s)
        said += lines
    daily, first = [], 0
    for after in range(1, len(fitted) + 1):  # weeks with the same rules are one stretch
        if after == len(fitted) or _rules(fitted[after]) != _rules(fitted[first]):
            end_s = until_s if after == len(fitted) else begins[after]
            if is_around(record, begins[first], end_s).any():  # a gap of weeks in the log holds nothing to follow
                daily.append(_stretch(record, fitted[first], range(begins[first], end_s, span_s), end_s, order))
            first = after
    whole = _in_one_piece(record, daily) if also_whole else None
    run_s = np.where(record.end_s < NEVER, record.end_s - record.start_s, record.limit_s)
    return RecordedScene(
        record,
        about,
        from_s,
        until_s,
        tuple(daily),
        whole,
        record.limit_s,
        run_s,
        np.zeros(len(record)),
        np.zeros(len(record)),
        np.ones(len(record), np.bool_),
        assumptions=tuple(said),
    )


def _has_no_past(record: RecordedTrace, from_s: int) -> bool:
    return from_s - int(record.submit_s[0]) < LEAST_FIT_S


def _fits(record: RecordedTrace, from_s: int, until_s: int) -> tuple[list[Parameters], bool]:
    if _has_no_past(record, from_s):
        return [infer_parameters(record, int(record.submit_s[-1]) + 1)], True
    return fits(record, Month(from_s, until_s, is_near=True)), False


def _rules(parameters: Parameters) -> tuple[float | None, RecordedRules]:
    """What decides about starts; the usable nodes are those that the record shows."""
    return parameters.points_per_hour, rules_of(parameters, MECHANISMS_PLAYED)._replace(nodes=0)


def _inferred_order(
    record: RecordedTrace, parameters: Parameters, from_s: int, until_s: int
) -> tuple[int, tuple[str, ...]]:
    """Return the order of the queue that explains the waits of [from_s, until_s) best, and what to say of it.

    The order is a position in ORDERS. Each is replayed anew every day, and the best has the least mean absolute error.
    """
    if not (record.ran & (record.submit_s >= from_s) & (record.submit_s < until_s)).any():
        return 0, ()
    parameters, errors_h = replace(parameters, points_per_hour=None), []
    for order in range(len(ORDERS)):
        stretch = _stretch(record, parameters, range(from_s, until_s, DAY_S), until_s, order)
        near, shown = record.take(stretch.rows), stretch.shown
        given = given_by(near, shown.held, shown.usable)
        starts = anchored_starts(given, shown.anchors, jobs_of(near, None), stretch.rules, until_s)
        judged = near.ran & (near.submit_s >= from_s) & (near.submit_s < until_s)
        late_s = np.minimum(starts - near.start_s, HORIZON_S)[judged]
        errors_h.append(float(np.abs(late_s).mean()) / HOUR_S)
    best = int(np.argmin(errors_h))
    if errors_h[best] >= (1.0 - LEAST_GAIN) * errors_h[0]:
        return 0, ()
    line = (
        f"the log holds no priorities; the queue is ordered by {ORDERS[best]}: its waits from {instants.text(from_s)} "
        f"on are off by {errors_h[best]:,.1f} h in the mean, those of {ORDERS[0]} by {errors_h[0]:,.1f} h"
    )
    return best, (line,)


def _stretch(
    record: RecordedTrace, parameters: Parameters, anchors_s: Sequence[int], until_s: int, order: int = 0
) -> Stretch:
    """Follow the record around [anchors_s[0], until_s) under the fitted rules; `order` counts without priorities."""
    inside = is_around(record, anchors_s[0], until_s)
    near, rules = record.take(inside), rules_of(parameters, MECHANISMS_PLAYED)
    if parameters.points_per_hour is None:
        rules = rules._replace(order=order)
    cluster = new_cluster(near, events(near), jobs_of(near, parameters.points_per_hour), rules)
    shown = follow_to(cluster, anchors_s, until_s + HORIZON_S)
    return Stretch(anchors_s[0], until_s, np.flatnonzero(inside), parameters.points_per_hour, rules, shown)


def _in_one_piece(record: RecordedTrace, daily: Sequence[Stretch]) -> Stretch:
    """The stretches as one, which begins with the state at the first anchor and takes over the rules of each."""
    first, last = daily[0], daily[-1]
    rows = np.flatnonzero(is_around(record, first.from_s, last.until_s))
    at_s, running, pending = first.shown.anchors[0]
    anchor = Anchor(at_s, *(np.searchsorted(rows, first.rows[jobs]) for jobs in (running, pending)))
    begins_s = [stretch.from_s for stretch in daily]
    tick_s = np.arange(record.submit_s[rows[0]], last.until_s + HORIZON_S + TICK_S, TICK_S)
    usable, held = np.zeros(len(tick_s), np.int64), np.zeros(len(rows), np.int64)
    of_tick, of_job = (
        np.maximum(np.searchsorted(begins_s, at, side="right") - 1, 0) for at in (tick_s, record.submit_s[rows])
    )
    for number, stretch in enumerate(daily):
        ticks, ours = of_tick == number, (of_job == number) & np.isin(rows, stretch.rows)
        place = (tick_s[ticks] - record.submit_s[stretch.rows[0]]) // TICK_S
        usable[ticks] = stretch.shown.usable[np.clip(place, 0, len(stretch.shown.usable) - 1)]
        held[ours] = stretch.shown.held[np.searchsorted(stretch.rows, rows[ours])]
    later = tuple(FittedRules(stretch.from_s, stretch.points_per_hour, stretch.rules) for stretch in daily[1:])
    shown = Followed((anchor,), usable, held)
    return Stretch(first.from_s, last.until_s, rows, first.points_per_hour, first.rules, shown, later)


def with_assumption(scene: RecordedScene, line: str) -> RecordedScene:
    """The scene with one more line for the reader."""
    return replace(scene, assumptions=(*scene.assumptions, line))
