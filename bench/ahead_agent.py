"""Time that an agent takes to simulate the futures of a decision, and whether they equal the compiled futures.

    .venv/bin/python -m bench.ahead_agent --data DIR --cluster NAME --from DATE --to DATE [--decisions 40]

Decisions are spread evenly over the recorded pairs of the window. It prints processor seconds a decision, the jobs
that pend and run, and how many futures start in the same second as the compiled ones, and within a minute. The
compiled clock also makes a pass when a withdrawn job would be submitted again, so some futures differ.

For each setting of `simulate-ahead` it prints how many futures an agent simulates that stops as soon as the rest cannot
change the decision, and on how many decisions the answer is that of all futures.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from agent.artifact import Artifact
from agent.chains.decide import decides_alike
from agent.futures import Numbers, look_ahead
from agent.kinds import REMAINING
from bench.ahead_scenes import scene_of
from bench.asked_window import opened, parser
from bench.results import Benchmark, BenchmarkRun
from features.futures.played import FutureInputs, starts_in_futures
from features.futures.summary import AHEAD, FUTURES, summary
from features.observe import FEATURES
from models.provisioning.futures.recorded import HypotheticalJobs, start_in_futures
from models.provisioning.futures.table import successors_of
from models.provisioning.policies.simulate_ahead import SimulateAhead
from models.study.pair_tables import predecessors_in
from simulator.recorded.future import STEP_S
from traces.units import HOUR_S

ABOUT = Benchmark(
    "ahead_agent",
    "Looking ahead, live",
    "agent",
    "What an agent pays for the 16 futures of a decision in plain Python on one core, and how early it can stop.",
)
SETTINGS = (0.4, 0.7, 1.0, 1.4, 5.0)


def stopping(
    rule: Artifact, setting: float, scene: FutureInputs, end_s: int, every: Numbers
) -> tuple[int, float, bool]:
    """Futures that an agent simulates at that setting, its processor seconds, and whether it decides as on `every`."""
    left = {**dict.fromkeys(FEATURES, 0.0), REMAINING: (end_s - scene.now_s) / HOUR_S}

    def settles(numbers: Sequence[Numbers]) -> bool:
        return decides_alike(rule, setting, [left | dict(each) for each in numbers])

    began = time.process_time()
    some = look_ahead(scene, end_s, clock=lambda: 0.0, settles=settles)
    took_s = time.process_time() - began
    submits = rule.decide([rule.row(left | dict(numbers)) for numbers in (some.numbers, every)], setting)
    return some.played, took_s, bool(submits[0] == submits[1])


def record_all(run: BenchmarkRun, took_s: NDArray[np.float64], apart_s: NDArray[np.int64]) -> None:
    """Record processor seconds a decision, (decisions,), and how far futures are from the compiled ones, (futures,)."""
    name = f"all {FUTURES}"
    for what, value in (("median", np.median(took_s)), ("90 %", np.quantile(took_s, 0.9)), ("longest", took_s.max())):
        run.add(name, f"processor time, {what}", value, "s", n=len(took_s))
    for what, within_s in (
        ("futures that start in the same second as the compiled ones", 0),
        ("futures that start within a minute of them", STEP_S),
    ):
        run.add(name, what, np.sum(apart_s <= within_s), n=apart_s.size)


def main() -> None:
    """Measure each decision; print and record times, agreement, and the effect of stopping early."""
    wanted = parser(__doc__)
    wanted.add_argument("--decisions", type=int, default=40)
    given = wanted.parse_args()
    study, window = opened(given)
    pairs, (record, predecessors) = study.pairs(window), predecessors_in(study.data, study.scenario, window)
    every = successors_of(pairs, record, predecessors)
    rows = np.unique(np.linspace(0, len(every) - 1, given.decisions).astype(np.int64))
    asked = HypotheticalJobs(**{name: getattr(every, name)[rows] for name in HypotheticalJobs.__dataclass_fields__})
    compiled = start_in_futures(record, asked)
    rule = SimulateAhead().fit(pairs, 0)[0]
    took_s, apart_s, there, stopped = [], [], [], []
    for d in range(len(asked)):
        scene = scene_of(record, asked, d)
        began = time.process_time()
        played = starts_in_futures(scene, FUTURES)
        took_s.append(time.process_time() - began)
        apart_s.append(np.abs(played - compiled[d]))
        there.append((len(scene.pending), len(scene.running)))
        end_s = int(asked.own_end_s[d])
        row = summary(played[None], asked.at_s[d : d + 1], asked.own_end_s[d : d + 1])[0]
        on_all = dict(zip(AHEAD, row.tolist(), strict=True))
        stopped.append([stopping(rule, setting, scene, end_s, on_all) for setting in SETTINGS])
    pending, running = np.array(there).max(axis=0)
    print(
        f"{len(asked)} decisions of {len(pairs)} pairs, at most {pending} jobs pending and {running} running: "
        f"median {np.median(took_s):.2f} s, 90 % {np.quantile(took_s, 0.9):.2f} s, longest {max(took_s):.2f} s"
    )
    apart, run, n = np.concatenate(apart_s), BenchmarkRun(ABOUT), len(asked)
    record_all(run, np.array(took_s), apart)
    print(
        f"of {apart.size} futures {np.sum(apart == 0)} start in the same second as the compiled ones, "
        f"{np.sum(apart <= STEP_S)} within a minute, all within {apart.max() / 60:.0f} min"
    )
    for setting, found in zip(SETTINGS, zip(*stopped, strict=True), strict=True):
        counts, seconds, same = (np.array(column) for column in zip(*found, strict=True))
        print(
            f"factor {setting}: {counts.mean():.1f} of {FUTURES} futures in the mean, {np.median(counts):.0f} in the "
            f"median, {seconds.sum() / sum(took_s):.2f} of the processor time, the same decision on {same.sum()}"
        )
        row = f"factor {setting}"
        run.add(row, f"futures simulated, mean of {FUTURES}", counts.mean(), n=n)
        run.add(row, f"futures simulated, median of {FUTURES}", np.median(counts), n=n)
        run.add(row, "processor time / that of all", seconds.sum() / sum(took_s), n=n)
        run.add(row, "same decision", same.sum(), n=n)
    run.write()


if __name__ == "__main__":
    main()
