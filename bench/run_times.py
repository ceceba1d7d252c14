"""CRPS of the time that running jobs have left, by four methods.

    .venv/bin/python -m bench.run_times --data DIR --cluster NAME --from DATE --to DATE [--instants 150]

Each method predicts the hours left of every job that runs at evenly spread instants of the window:

- by its limit;
- by the mean use of their limits by those of the last 100 ended jobs that used more than it has
  (`features.start_estimate`);
- by like jobs (`features.futures.run_times`), which futures draw from;
- by boosting (LightGBM, a model for each quantile), fitted on jobs that ended before the window. Its inputs are
  quantiles of the like jobs, the share of the limit used, the limit, the nodes, the hour, and the last runs of the
  user and name.

The score is twice the mean pinball loss at 19 levels, which is the CRPS up to the spacing of the levels. Intervals are
95 % over 7-day blocks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bench.asked_window import opened, parser
from bench.results import Benchmark, BenchmarkRun
from features.bootstrap import interval, resampled_means, seed_weights, start_weights
from features.futures.run_times import LEVELS, ROOM, RunTimeHistory, group_of, like_runs
from features.start_estimate import expected_left
from models.provisioning.futures.recorded import history_of
from models.study.inputs import read_record
from simulator.recorded.record import NEVER, RecordedTrace
from traces.arrays import Float64s, Int64s

QUANTILES = np.arange(1, 20) / 20
SEEN = np.array([1, 5, 9, 13, 17])  # the quantiles that boosting gets as inputs
RECENT = 100
CUTS = 3  # instants of a job's run that boosting is fitted on
SEED = 0
ABOUT = Benchmark(
    "run_times",
    "Time left of running jobs",
    "policies",
    "CRPS of the hours that running jobs have left at evenly spread instants; n counts running jobs.",
)


class RunningJobs(NamedTuple):
    """Running jobs, (n,): rows of the record, and the instants of the predictions, epoch s."""

    row: Int64s
    at_s: Int64s


def running(record: RecordedTrace, at_s: Int64s) -> RunningJobs:
    """Find the jobs that run at each instant."""
    rows = [np.flatnonzero((record.start_s <= at) & (record.end_s > at) & (record.end_s < NEVER)) for at in at_s]
    return RunningJobs(np.concatenate(rows), np.repeat(at_s, [len(row) for row in rows]))


def by_habit(record: RecordedTrace, known: RunTimeHistory, asked: RunningJobs) -> tuple[Float64s, Float64s]:
    """(n, 19) quantiles of the share of the limit at which the jobs end, and (n, 2 LEVELS) the last runs of each level.

    Of a level: the mean share of up to 20 last runs, and how many there are.
    """
    share, weight = np.empty(ROOM), np.empty(ROOM)
    found, last = np.empty((len(asked.row), len(QUANTILES))), np.zeros((len(asked.row), 2 * LEVELS))
    for i, (row, now) in enumerate(zip(asked.row.tolist(), asked.at_s.tolist(), strict=True)):
        user, limit_s = int(record.user[row]), int(record.limit_s[row])
        name = int(record.name[row]) if len(record.name) else 0
        elapsed_s = now - int(record.start_s[row])
        count = like_runs(known, user, name, limit_s, elapsed_s, now, share, weight)
        used = min(elapsed_s / limit_s, 1.0)
        if count:
            found[i] = share[:count][np.minimum(np.searchsorted(np.cumsum(weight[:count]), QUANTILES), count - 1)]
        else:
            found[i] = used + QUANTILES * (1.0 - used)
        for level in range(LEVELS):
            group = group_of(known, level, user, name, limit_s)
            if group >= 0:
                first, after = known.first[group], known.first[group + 1]
                after = first + int(np.searchsorted(known.end_s[first:after], now))
                runs = known.share[max(first, after - 20) : after]
                last[i, 2 * level : 2 * level + 2] = (runs.mean() if len(runs) else -1.0), len(runs)
    return found, last


def inputs(record: RecordedTrace, asked: RunningJobs, habit: Float64s, last: Float64s) -> Float64s:
    """The inputs of boosting, (n, i)."""
    row = asked.row
    used = (asked.at_s - record.start_s[row]) / record.limit_s[row]
    hour = asked.at_s % 86400 / 3600.0
    columns = (used, np.log(record.limit_s[row]), record.size[row], hour)
    return np.column_stack([*columns, habit[:, SEEN], last])


def left_share(record: RecordedTrace, asked: RunningJobs) -> Float64s:
    """(n,) the time left as a share of what the limit leaves, 0 to 1."""
    limit_end_s = record.start_s[asked.row] + record.limit_s[asked.row]
    share: Float64s = np.clip(
        (record.end_s[asked.row] - asked.at_s) / np.maximum(limit_end_s - asked.at_s, 60), 0.0, 1.0
    )
    return share


def boosted(record: RecordedTrace, known: RunTimeHistory, until_s: int, asked: RunningJobs, seen: Float64s) -> Float64s:
    """(n, 19) quantiles of `left_share`, of models fitted on jobs that had ended before `until_s`, rising."""
    import lightgbm

    rng = np.random.default_rng(SEED)
    ended = np.repeat(np.flatnonzero(record.ran & (record.end_s < until_s)), CUTS)
    ran_s = record.end_s[ended] - record.start_s[ended]
    fit = RunningJobs(ended, record.start_s[ended] + (rng.random(len(ended)) * ran_s).astype(np.int64))
    given, target = inputs(record, fit, *by_habit(record, known, fit)), left_share(record, fit)
    left_h = (record.limit_s[ended] * (1.0 - given[:, 0])).clip(60) / 3600.0
    weight = left_h * ran_s / 3600.0  # a share counts by its hours, and a job by how long it is there to be asked about
    options = {"num_leaves": 15, "learning_rate": 0.06, "min_data_in_leaf": 60, "verbosity": -1, "num_threads": 1}
    found = []
    for quantile in QUANTILES:
        wanted = {**options, "objective": "quantile", "alpha": float(quantile), "seed": SEED}
        model = lightgbm.train(wanted, lightgbm.Dataset(given, target, weight=weight), 150)
        found.append(np.clip(model.predict(seen), 0.0, 1.0))
    return np.sort(np.column_stack(found), axis=1)


def crps_h(record: RecordedTrace, asked: RunningJobs, left_h: Float64s) -> Float64s:
    """(n,) of quantiles (n, 19), or of one number (n, 1), of the hours left."""
    true_h = (record.end_s[asked.row] - asked.at_s)[:, None] / 3600.0
    over = true_h - left_h
    return np.asarray(2.0 * np.maximum(QUANTILES * over, (QUANTILES - 1.0) * over).mean(axis=1))


def words(run: BenchmarkRun, name: str, crps: Float64s, base: Float64s, at_s: Int64s) -> str:
    """A line, with the difference to the habit's; the figures go into `run`."""
    weights, less = start_weights(at_s), crps - base
    ends = None
    if weights is not None and less.any():
        ends = interval(resampled_means(less[None, None], weights, seed_weights(1))[:, 0])
    run.add(name, "CRPS", crps.mean(), "h", n=len(crps))
    if less.any():
        run.add(name, "less that of like jobs", less.mean(), "h", n=len(crps), interval=ends)
    shown = "" if ends is None else f"{less.mean():+.2f} [{ends[0]:+.2f}, {ends[1]:+.2f}]"
    return f"| {name} | {crps.mean():.2f} | {shown} |"


def main() -> None:
    """Predict by each method, score, print and record."""
    wanted = parser(__doc__)
    wanted.add_argument("--instants", type=int, default=150)
    given = wanted.parse_args()
    study, window = opened(given)
    record = read_record(study.data, given.cluster, study.scenario.from_s, None)
    asked, known = (
        running(record, np.linspace(window.from_s, window.until_s - 1, given.instants).astype(np.int64)),
        history_of(record),
    )
    habit, last = by_habit(record, known, asked)
    row = asked.row
    limit_h, elapsed_h = record.limit_s[row] / 3600.0, (asked.at_s - record.start_s[row]) / 3600.0
    order = np.argsort(record.end_s[record.ran], kind="stable")
    ends_s = record.end_s[record.ran][order]
    share = np.minimum((record.end_s - record.start_s) / record.limit_s, 1.0)[record.ran][order]
    before = np.searchsorted(ends_s, asked.at_s)
    expected_s = [
        expected_left(ran_s, limit_s, np.sort(share[max(0, k - RECENT) : k]))
        for ran_s, limit_s, k in zip(3600.0 * elapsed_h, 3600.0 * limit_h, before, strict=True)
    ]
    least_h = 1.0 / 60
    methods = {
        "the limit": (limit_h - elapsed_h)[:, None],
        "mean use of the last 100 beyond its own": np.array(expected_s)[:, None] / 3600.0,
        "like jobs (what the futures draw from)": habit * limit_h[:, None] - elapsed_h[:, None],
        "boosting on them": boosted(record, known, window.from_s, asked, inputs(record, asked, habit, last))
        * (limit_h - elapsed_h).clip(0.0)[:, None],
    }
    crps = {name: crps_h(record, asked, np.maximum(left_h, least_h)) for name, left_h in methods.items()}
    print(f"{len(row)} running jobs at {given.instants} instants")
    print("| time left by | CRPS, h | less that of like jobs, 95 % |\n|---|---|---|")
    run = BenchmarkRun(ABOUT)
    for name in methods:
        print(words(run, name, crps[name], crps["like jobs (what the futures draw from)"], asked.at_s))
    run.write()


if __name__ == "__main__":
    main()
