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
from simulator.recorded.follow import HORIZON_S
from simulator.recorded.free import Followed, LimitsOfUsers, follow_to
from simulator.recorded.parameters import LEAST_FIT_S, Parameters, infer_parameters, jobs_of, rules_of
from simulator.recorded.record import NEVER, RecordedTrace, events
from simulator.recorded.single import is_around
from simulator.recorded.state import RecordedRules
from traces import instants
from traces.arrays import Bools, Float64s, Int64s
from traces.errors import InputError
from traces.units import DAY_S, WEEK_S

LEAST_WINDOW_S = WEEK_S
MECHANISMS_PLAYED = ALL - {"siblings"}  # a job that waits behind a held one was overtaken and is held itself


class Stretch(NamedTuple):
    """A part of the window under one fit of the rules, and what following the record through it shows."""

    from_s: int  # epoch s
    until_s: int
    rows: Int64s  # rows of the scene's record that are simulated, rising
    points_per_hour: float | None  # growth of the priority; None: first come, first served
    rules: RecordedRules
    shown: Followed  # its rows are positions in `rows`


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

    `is_frozen` keeps the rules of the window's beginning. With less than LEAST_FIT_S of record before the window, the
    rules are inferred from the whole record once, and an assumption says so. Raises InputError if no job that ran was
    submitted in the window.
    """
    if not (record.ran & (record.submit_s >= from_s) & (record.submit_s < until_s)).any():
        raise InputError(f"no job that ran was submitted from {instants.text(from_s)} to {instants.text(until_s)}")
    fitted, is_hindsight = _fits(record, from_s, from_s + 1 if is_frozen else until_s)
    begins = [from_s] if is_hindsight else [parameters.until_s for parameters in fitted]
    daily, first = [], 0
    for after in range(1, len(fitted) + 1):  # weeks with the same rules are one stretch
        if after == len(fitted) or _rules(fitted[after]) != _rules(fitted[first]):
            end_s = until_s if after == len(fitted) else begins[after]
            if is_around(record, begins[first], end_s).any():  # a gap of weeks in the log holds nothing to follow
                daily.append(_stretch(record, fitted[first], range(begins[first], end_s, span_s), end_s))
            first = after
    whole = _stretch(record, fitted[0], [from_s], until_s) if also_whole else None
    said = ["the rules are inferred from the weeks that are replayed: less than four weeks of log precede them"]
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
        assumptions=tuple(said) if is_hindsight else (),
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


def _stretch(record: RecordedTrace, parameters: Parameters, anchors_s: Sequence[int], until_s: int) -> Stretch:
    """Follow the record around [anchors_s[0], until_s) under the fitted rules."""
    inside = is_around(record, anchors_s[0], until_s)
    near, rules = record.take(inside), rules_of(parameters, MECHANISMS_PLAYED)
    cluster = new_cluster(near, events(near), jobs_of(near, parameters.points_per_hour), rules)
    shown = follow_to(cluster, anchors_s, until_s + HORIZON_S)
    return Stretch(anchors_s[0], until_s, np.flatnonzero(inside), parameters.points_per_hour, rules, shown)


def with_assumption(scene: RecordedScene, line: str) -> RecordedScene:
    """The scene with one more line for the reader."""
    return replace(scene, assumptions=(*scene.assumptions, line))
