"""Compare the waits of a study's world with the recorded ones in a window; printed with every comparison."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from models.provisioning.protocol import NONE
from models.provisioning.scenario import PLAIN, RECORDED_WAIT
from models.study import inputs
from models.study.cluster import Study
from models.study.slurm import pairs as slurm_pairs
from models.study.windows import Window
from simulator.marks import NEVER
from simulator.metrics import wait_distance
from simulator.names import SLURM
from traces.arrays import Int64s
from traces.cache.closure import code_digest
from traces.cache.digests import digest
from traces.store import warehouse
from traces.store.stamps import read_stamp, write_stamp
from traces.units import HOUR_S

MOST_JOBS = 2000  # of a window, each simulated by itself in the calibrated world; of more, every so many-th


def world_error(study: Study, window: Window) -> dict[str, Any]:
    """Compare simulated with recorded waits of the jobs submitted in the window that ran; the result is stored.

    Figures: jobs; spearman, over all, and spearman_waited, over those that waited for more than ten minutes;
    error_over_mean, mean absolute error over mean recorded wait; mean_wait_h and p90_wait_h of the world,
    recorded_mean_wait_h and recorded_p90_wait_h. A figure without a meaning is None. In the calibrated world each job
    is started by the forked form, from its submission on. In the plain one the scheduler starts all of them. In the
    recorded-wait one each job draws the wait of another; jobs with too few neighbours are left out.
    """
    data, cluster = study.data, study.scenario.cluster
    bounds = (window.from_s, window.until_s)
    described = slurm_pairs.made_from(data, study.scenario)
    tables = warehouse.made_from(data, cluster)
    made_from = digest(tables, described, asdict(study.scenario), bounds, code_digest(__name__))
    step = f"world-error-{digest(asdict(study.scenario), bounds)[:12]}"
    if (kept := read_stamp(data, step, cluster, made_from)) is not None:
        return kept
    waits = {PLAIN: _replayed, RECORDED_WAIT: _drawn}.get(study.scenario.world, _forked)
    simulated_s, recorded_s = waits(study, window)
    figures = _figures(simulated_s, recorded_s)
    write_stamp(data, step, cluster, made_from, figures)
    return figures


def _figures(simulated_s: Int64s, recorded_s: Int64s) -> dict[str, Any]:
    measured = wait_distance(simulated_s, recorded_s)
    mean_s = measured["recorded_mean_wait_s"]
    figures = {
        "spearman": measured["spearman"],
        "spearman_waited": measured["spearman_waited"],
        "error_over_mean": measured["mean_absolute_error_s"] / mean_s if mean_s else float("nan"),
        "mean_wait_h": measured["simulated_mean_wait_s"] / HOUR_S,
        "recorded_mean_wait_h": mean_s / HOUR_S,
        "p90_wait_h": measured["simulated_p90_wait_s"] / HOUR_S,
        "recorded_p90_wait_h": measured["recorded_p90_wait_s"] / HOUR_S,
    }
    numbers = {name: value if np.isfinite(value) else None for name, value in figures.items()}
    return {"jobs": int(measured["jobs"]), **numbers}


def _forked(study: Study, window: Window) -> tuple[Int64s, Int64s]:
    """(simulated, recorded) waits of the window's jobs, s, each simulated by itself from its submission on."""
    from simulator.recorded.calibration.judge import FORKED, Month, fits, judged_starts
    from simulator.recorded.record import events

    record = inputs.read_record(study.data, study.scenario.cluster, study.scenario.from_s)
    near = study.scenario.from_s is not None
    inside = int(np.count_nonzero(Month(window.from_s, window.until_s).of(record)))
    month = Month(window.from_s, window.until_s, max(1, -(-inside // MOST_JOBS)), near)
    judged = month.of(record)
    if not judged.any():
        return record.submit_s[:0], record.submit_s[:0]
    begun = judged_starts(FORKED, record, events(record), month, fits(record, month))
    return (begun - record.submit_s)[judged], (record.start_s - record.submit_s)[judged]


def _drawn(study: Study, window: Window) -> tuple[Int64s, Int64s]:
    """(drawn, recorded) waits of the window's jobs, s, each drawn among the others."""
    from models.provisioning.pairs.recorded_waits import leave_one_out

    record = inputs.read_record(study.data, study.scenario.cluster, study.scenario.from_s)
    inside = record.ran & (record.submit_s >= window.from_s) & (record.submit_s < window.until_s)
    rows = np.flatnonzero(inside)
    rows = rows[:: max(1, -(-len(rows) // MOST_JOBS))]
    drawn_s = leave_one_out(record, rows)
    enough = drawn_s != NONE
    return drawn_s[enough], (record.start_s - record.submit_s)[rows[enough]]


def _replayed(study: Study, window: Window) -> tuple[Int64s, Int64s]:
    """(simulated, recorded) waits of the window's jobs, s, in a replay of the whole trace."""
    from simulator.flat.replay import simulate

    scenario, workload = study.scenario, study.workload
    if scenario.scheduler == SLURM:
        return _replayed_by_slurm(study, window)
    begun = simulate(workload, scheduler=scenario.scheduler, capacity=scenario.capacity)
    judged = (workload.submit_s >= window.from_s) & (workload.submit_s < window.until_s) & (begun >= 0)
    return (begun - workload.submit_s)[judged], (workload.start_s - workload.submit_s)[judged]


def _replayed_by_slurm(study: Study, window: Window) -> tuple[Int64s, Int64s]:
    """As `_replayed`, in the world of injected pairs, without them; a requeued job counts with its first run."""
    from simulator.slurm.run import run

    scenario = study.scenario
    loaded = slurm_pairs.world(study.data, scenario, window.from_s, min(scenario.pair_nodes))
    jobs, begun = loaded.world.jobs, run(loaded.world).start_s
    inside = (jobs.submit_s >= window.from_s) & (jobs.submit_s < window.until_s)
    judged = inside & (loaded.attempts == 0) & (jobs.pinned_s != NEVER) & (begun != NONE)
    return (begun - jobs.submit_s)[judged], (jobs.pinned_s - jobs.submit_s)[judged]
