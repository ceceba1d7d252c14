"""Simulate a recorded scene: the start of every job, replayed anew every day or in one piece."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from models.what_if.recorded.scene import RecordedScene, Stretch
from simulator.recorded.follow import TICK_S
from simulator.recorded.free import Anchor, Given, Phase, anchored_starts, given_by
from simulator.recorded.record import NEVER
from simulator.recorded.state import RecordedJobs
from traces.arrays import Bools, Int64s
from traces.units import HOUR_S


class RecordedStarts(NamedTuple):
    """Simulated starts, epoch s; NEVER for a job outside the window, absent, not run, or not started in ten days."""

    jobs: Int64s  # (jobs of the record,)
    copies: Int64s  # (copies,) of RecordedScene.copied


class _Simulated(NamedTuple):
    """The jobs of a stretch in order of submission, copies included, under the names of the scene's columns."""

    row: Int64s  # row of the scene's record
    position: Int64s  # position in Stretch.rows; ~k for row k of RecordedScene.copied
    submit_s: Int64s

    @property
    def is_own(self) -> Bools:
        """Whether it is a job of the record, not a copy."""
        own: Bools = self.position >= 0
        return own


def starts_of(scene: RecordedScene, *, is_whole: bool = False) -> RecordedStarts:
    """Simulate the scene and return the start of each job."""
    starts = RecordedStarts(*(np.full(count, NEVER, np.int64) for count in (len(scene.record), len(scene.copied))))
    for stretch in scene.stretches(is_whole=is_whole):
        simulated = _simulated(scene, stretch)
        given, anchors = _given(scene, stretch, simulated)
        first, *later = (
            Phase(from_s, _key(scene, simulated, points_per_hour), rules._replace(**scene.rules))
            for from_s, points_per_hour, rules in stretch.fits
        )
        jobs = _jobs(scene, simulated, first.key)
        found = anchored_starts(given, anchors, jobs, first.rules, stretch.until_s, scene.own, later)
        inside = (simulated.submit_s >= stretch.from_s) & (simulated.submit_s < stretch.until_s)
        own, copied = inside & simulated.is_own, inside & ~simulated.is_own
        starts.jobs[simulated.row[own]] = found[own]
        starts.copies[~simulated.position[copied]] = found[copied]
    return starts


def _simulated(scene: RecordedScene, stretch: Stretch) -> _Simulated:
    copies = np.flatnonzero(np.isin(scene.copied, stretch.rows))
    row = np.concatenate([stretch.rows, scene.copied[copies]])
    submit_s = scene.record.submit_s[row]
    submit_s[len(stretch.rows) :] += scene.copied_later_s[copies]
    position = np.concatenate([np.arange(len(stretch.rows)), ~copies])
    order = np.argsort(submit_s, kind="stable")
    return _Simulated(row[order], position[order], submit_s[order])


def _key(scene: RecordedScene, simulated: _Simulated, points_per_hour: float | None) -> Int64s:
    """The order of the queue: points of priority, or seconds of waiting without priorities; with the changes."""
    record, row = scene.record, simulated.row
    waited_s = scene.waited_s[row] - (simulated.submit_s - simulated.submit_s[0])
    if points_per_hour is not None:
        waited_s = HOUR_S * (record.priority[row] + scene.points[row]) + points_per_hour * scene.age * waited_s
    key: Int64s = np.rint(waited_s).astype(np.int64)
    return key


def _jobs(scene: RecordedScene, simulated: _Simulated, key: Int64s) -> RecordedJobs:
    """The requests in order of submission."""
    record, row = scene.record, simulated.row
    columns = (simulated.submit_s, record.size[row], scene.limit_s[row], record.user[row], key)
    return RecordedJobs(*(np.ascontiguousarray(column, np.int64) for column in columns))


def _given(scene: RecordedScene, stretch: Stretch, simulated: _Simulated) -> tuple[Given, list[Anchor]]:
    """What the replay takes from the record, and the anchors, by the rows of the simulated jobs."""
    row, shown, is_own = simulated.row, stretch.shown, simulated.is_own
    held = np.zeros(len(row), np.int64)
    held[is_own] = shown.held[simulated.position[is_own]]
    place = np.zeros(len(stretch.rows), np.int64)  # position in Stretch.rows -> row of the simulated jobs
    place[simulated.position[is_own]] = np.flatnonzero(is_own)
    anchors = [Anchor(at_s, place[running], place[pending]) for at_s, running, pending in shown.anchors]
    recorded = given_by(scene.record.take(row), held, usable_nodes_of(scene, stretch)[1])
    given = recorded._replace(
        run_s=np.where(recorded.run_s < NEVER, scene.run_s[row], NEVER),
        present=np.where(is_own, scene.present[row], True).astype(np.int64),
    )
    return given, anchors


def usable_nodes_of(scene: RecordedScene, stretch: Stretch) -> tuple[Int64s, Int64s]:
    """Return the ticks of a stretch, epoch s, and the usable nodes from each on, with the changes of nodes."""
    usable = stretch.shown.usable.copy()
    tick_s = scene.record.submit_s[stretch.rows[0]] + TICK_S * np.arange(len(usable))
    for change in scene.nodes:
        usable[(tick_s >= change.from_s) & (tick_s < change.until_s)] += change.nodes
    return tick_s, np.maximum(usable, 0)
