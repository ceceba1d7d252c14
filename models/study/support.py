"""Check what a trace supports: count the pairs with a known outcome in each window, and compare with the minimum.

The check comes before training. Until the pairs are built, it counts the most that there can be; then it counts the
pairs.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from models.provisioning.scenario import CALIBRATED, INJECTED, PLAIN, RECORDED
from models.study import inputs
from models.study.cluster import Study, open_study
from models.study.pair_tables import DAMAGED, pair_path
from models.study.windows import Window
from models.tables import POLICY_RESULTS
from traces.arrays import Int64s
from traces.clusters import ClusterSettings
from traces.counted import counted
from traces.errors import InputError
from traces.store import derived
from traces.store.folder import DataFolder
from traces.units import HOUR_S

# Starts of each pair size, one every 4 h, at times when the log has jobs.
LEAST_FIT = 42  # a week: training has seen every hour of the week
LEAST_SELECT = 12  # two days: every hour of the day twice, so that no single odd night picks the settings
LEAST_REPORT = 6  # a day: fewer are anecdotes, not a comparison
AROUND_S = 12 * HOUR_S  # without a submission that near, a pair starts in a gap of the log and teaches nothing


@dataclass(frozen=True)
class Refusal:
    """Explain a cluster's trace supports no provisioning policies, in one sentence."""

    why: str


def headline_study(data: DataFolder, settings: ClusterSettings) -> Study | Refusal:
    """The study in which policies are trained, compared and released, or why the trace supports none.

    It world is the calibrated one where enough jobs were cut by their limit, else the plain one
    (`why_not_calibrated`). Nothing is trained or simulated to decide.
    """
    if why := inputs.why_not_replayed(data, settings):
        return Refusal(why)
    study = _supported(data, settings, CALIBRATED)
    return study if isinstance(study, Study) else _supported(data, settings, PLAIN)


def why_not_calibrated(data: DataFolder, settings: ClusterSettings) -> str | None:
    """Explain policies are not judged on jobs that were cut by their limit, in one sentence; None where they are."""
    study = _supported(data, settings, CALIBRATED)
    return study.why if isinstance(study, Refusal) else None


def _supported(data: DataFolder, settings: ClusterSettings, world: str) -> Study | Refusal:
    """The cluster's study in one world, or why the trace does not support it."""
    try:
        study = open_study(data, settings, world=world)
        why = too_few_pairs(study)
    except InputError as error:
        return Refusal(str(error))
    return study if why is None else Refusal(why)


def why_plain(data: DataFolder, settings: Iterable[ClusterSettings]) -> dict[str, str]:
    """`why_not_calibrated` of the clusters whose policies were compared in the plain world, by cluster."""
    why: dict[str, str] = {}
    for one in settings:
        with suppress(InputError):  # no comparison there
            results = derived.read(data, POLICY_RESULTS.name, one.name)
            if INJECTED in results["pairs"] and (reason := why_not_calibrated(data, one)):
                why[one.name] = reason
    return why


def too_few_pairs(study: Study) -> str | None:
    """Explain in one sentence why the windows have too few pairs to learn from; None if they have enough."""
    if study.scenario.pairs == RECORDED:
        return _too_few_recorded(study)
    windows = study.windows
    parts = (
        ("fit", windows.fit, LEAST_FIT, "learn from"),
        ("select", windows.select, LEAST_SELECT, "pick settings on"),
        ("report", windows.report, LEAST_REPORT, "compare on"),
    )
    for name, window, least, purpose in parts:
        # The outcomes of the report window may come later: nothing is fitted on them.
        until_s = window.until_s if name != "report" else None
        counts, is_counted = _known(study, window, until_s)
        size, count = min(counts.items(), key=lambda item: item[1])
        if count < least:
            noun = "pair" if count == 1 else "pairs"
            known = "is known when it ends" if until_s else "is in the trace"
            most = "" if is_counted else "at most "
            return (
                f"the trace is too short to {purpose}: the {name} window ({window}) holds {most}{count} {noun} of "
                f"{counted(size, 'node')} that start among the log's jobs and whose outcome {known}; "
                f"at least {least} are needed"
            )
    return None


def _too_few_recorded(study: Study) -> str | None:
    """As `too_few_pairs`, by the number of jobs that the log shows cut by their limit."""
    scenario, windows = study.scenario, study.windows
    cut = inputs.cut_by_limit(study.data, scenario.cluster, scenario.limit_s)
    for name, window, least in (
        ("fit", windows.fit, LEAST_FIT),
        ("select", windows.select, LEAST_SELECT),
        ("report", windows.report, LEAST_REPORT),
    ):
        inside = cut.filter((pl.col("submit_s") >= window.from_s) & (pl.col("submit_s") < window.until_s))
        count = inside.height if name == "report" else inside.filter(pl.col("end_s") < window.until_s).height
        if count < least:
            return (
                f"the log shows {counted(count, 'job')} cut by a limit of at least {scenario.limit_s / HOUR_S:g} h "
                f"in the {name} window ({window}); at least {least} are needed"
            )
    return None


def _known(study: Study, window: Window, until_s: int | None) -> tuple[dict[int, int], bool]:
    """(pairs of each size that start in the window and have an outcome before `until_s`, whether they were counted).

    If they are not built yet, the number is the most possible, because a pair lasts at least its limit.
    """
    scenario = study.scenario
    if window == study.windows.fit:
        scenario = study.known_before(window.until_s).scenario
    with suppress(*DAMAGED), np.load(pair_path(study.data, scenario, window)) as table:
        nodes = table["pair_nodes"]
        outcome_s = np.maximum.reduceat(table["successor_start_s"], table["offset"][:-1])  # the last of each pair's
        known = _among_jobs(study, table["submit_s"]) & (outcome_s < (until_s or np.inf))
        return {size: int(np.count_nonzero(known & (nodes == size))) for size in scenario.pair_nodes}, True
    starts = window.starts(scenario.every_s)
    known = _among_jobs(study, starts) & (starts + scenario.limit_s < (until_s or np.inf))
    return dict.fromkeys(scenario.pair_nodes, int(np.count_nonzero(known))), False


def _among_jobs(study: Study, starts: Int64s) -> NDArray[np.bool_]:
    """Which starts (epoch s) have a submission of the log near them; bool like `starts`."""
    submits = study.workload.submit_s
    return np.asarray(np.searchsorted(submits, starts + AROUND_S) > np.searchsorted(submits, starts - AROUND_S))
