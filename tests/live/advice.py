"""What advice predicts, and what a real Slurm does with it: one stream of jobs before and after a diff.

The prediction sees the run before the diff only: its submissions, run times, slurm.conf and accounts. The run after it
has the slurm.conf that `applied` wrote and the commands that `slurm_diff` gave. As root, about three minutes a run:

    python -m tests.live.advice [FOLDER]  # every diff, a table, the record `bench/results/advice_live.json`

`make live` ends with it and writes the record elsewhere.
"""

from __future__ import annotations

import gzip
import re
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import stats

from bench.results import Benchmark, BenchmarkRun
from models.what_if.advice.conf_text import applied, edited_conf
from models.what_if.advice.declared import PairedWaits, answer_declared, edited_description, paired_waits, with_max_time
from models.what_if.advice.draft import SlurmDiff
from models.what_if.advice.slurm_diff import slurm_diff
from models.what_if.changes import AS_IT_IS
from models.what_if.trust import CANNOT_TELL, LESS, MORE, mean_interval
from simulator.slurm.world import NEVER, SlurmWorld
from tests.live import recording
from tests.live.clock import FastClock
from tests.live.fidelity import PATIENCE, SETTINGS, Stage, record
from tests.live.fidelity_workload import Submission
from tests.live.scenes import NODE, NODES, PARTITION, Group, submissions
from tests.live.slurm import OWN, Cluster, Slurm, missing
from traces.arrays import Float64s

ABOUT = Benchmark(
    "advice_live",
    "Advice on a real Slurm",
    "replay",
    "Change of the mean wait by a diff of slurm.conf: predicted from the run before it, and measured. The last interval"
    " is that of simulated repetitions: ends up to two seconds later, backfill passes at other seconds. `as it"
    " is` repeats the run without a diff.",
)
PASS_S = 180  # between two backfill passes
SHALLOW = {"SchedulerParameters": f"bf_interval={PASS_S},bf_continue,bf_max_job_test=3,{PATIENCE}"}
CLUSTER = Cluster(NODES, NODE, SETTINGS | SHALLOW, (f"PartitionName=gpu Nodes=n[1-{NODES}] Default=YES {PARTITION}",))
QOS = {"normal": "Priority=100"}
DIFFS = {  # change: the verdict that the prediction must reach; None: any, the difference is small
    "backfill.depth=100": LESS,
    "backfill=off": None,
    "max_jobs=2": MORE,
    "backfill.depth=100 and max_nodes=4": LESS,
}
BLOCKS = 7  # of the stream, which are drawn for an interval


class Plan(NamedTuple):
    """A stream of jobs: how many, over so many simulated hours, and their median run time, minutes."""

    jobs: int
    hours: float
    median_min: float
    seed: int

    def generate(self) -> list[Submission]:
        """The same jobs for the same plan."""
        return submissions((Group(1.0, "normal", self.median_min),), self.seed, self.jobs, self.hours)

    @property
    def block_s(self) -> int:
        """Length of a block, s."""
        return int(self.hours * 3600) // BLOCKS


WHOLE = (0, NEVER)  # a stream begins on an empty cluster, and all its jobs count
REPETITIONS = 100  # simulated pairs of runs behind a prediction
PHASE_S = 16  # most seconds by which the passes of a run are earlier or later than those of another
FULL = Plan(jobs=200, hours=2.0, median_min=5, seed=21)
SHORT = Plan(jobs=24, hours=0.08, median_min=2.5, seed=24)
SHORT_CHANGE = "backfill.depth=100 and max_jobs=1"  # an edit of slurm.conf and a command; the limit is too tight


@dataclass
class AdvisedSlurm(Slurm):
    """A Slurm whose slurm.conf is the usual one after a diff."""

    diff: SlurmDiff = field(default_factory=SlurmDiff)

    def conf(self, host: str) -> str:
        """The text of slurm.conf."""
        return applied(super().conf(host), self.diff.conf)


class Compared(NamedTuple):
    """One diff: predicted and measured change of the mean wait, s, with 95 % intervals over blocks of the stream.

    A second more in the run times, or other seconds of the backfill passes, move the mean wait by minutes, in
    the simulator as in Slurm. `spread_s` is the standard deviation of the predicted change over REPETITIONS pairs of
    runs that differ by such seconds, and `predicted_s` is its mean. A measured change is one more draw of it.
    """

    jobs: int
    verdict: str  # of the prediction
    predicted_s: float
    measured_s: float
    spread_s: float
    predicted_ci95: list[float] | None
    measured_ci95: list[float] | None

    @property
    def same_sign(self) -> bool:
        """Whether both say longer, or both say shorter. True where the prediction cannot tell."""
        return self.verdict == CANNOT_TELL or self.predicted_s * self.measured_s > 0

    def is_within(self, level: float = 0.95) -> bool:
        """Whether the measured change lies in the joint interval of that level: the spread of both (Student's t)."""
        return abs(self.measured_s - self.predicted_s) <= self.reach_s(level)

    def reach_s(self, level: float = 0.95) -> float:
        """Half the width of the joint interval, s: at least that of starts a backfill pass earlier or later each."""
        quantile = float(stats.t.ppf(0.5 + level / 2, REPETITIONS - 1))
        spread_s = quantile * self.spread_s * float(np.sqrt(1 + 1 / REPETITIONS))
        return max(spread_s, PASS_S / float(np.sqrt(self.jobs)))


def run_before(folder: Path, plan: Plan, version: str = OWN) -> None:
    """Record the stream under the settings as they are."""
    record(folder, plan.generate(), Stage(CLUSTER, QOS, version=version), keep_log=True)


def run_after(folder: Path, plan: Plan, diff: SlurmDiff, version: str = OWN) -> None:
    """Record the stream under the settings after the diff."""

    def advised(place: Path, cluster: Cluster, clock: FastClock, of: str) -> Slurm:
        return AdvisedSlurm(place, cluster, clock, of, diff=diff)

    commands = tuple(edit.command for edit in diff.accounts)
    record(folder, plan.generate(), Stage(CLUSTER, QOS, slurm=advised, version=version, commands=commands),
           keep_log=True)  # fmt: skip


def diff_of(before: Path, change: str) -> SlurmDiff:
    """The diff of a change for the cluster of a recording."""
    described = recording.described(before)
    return slurm_diff([change], described.conf, described.qos)


def predicted(before: Path, diff: SlurmDiff) -> tuple[PairedWaits, Float64s]:
    """The simulated waits before and after the diff, and the change of each wait in each repetition.

    Jobs are in the order of `recording.read`; changes have the shape (repetitions, jobs).
    """
    jobs = recording.read(before)
    described = edited_description(recording.described(before), diff)
    base = recording.world(before, jobs)
    changed = with_max_time(recording.world(before, jobs, declared=described), described.conf, diff.conf)
    changes = []
    for seed in range(REPETITIONS):
        # The two runs on a real Slurm differ by more than the diff, so each world is another run of its own.
        paired = paired_waits(another_run(base, seed), another_run(changed, REPETITIONS + seed), WHOLE)
        changes.append(paired.after_s - paired.before_s)
    return paired_waits(base, changed, WHOLE), np.array(changes)


def another_run(world: SlurmWorld, seed: int) -> SlurmWorld:
    """The world as another run could have it, from the `seed`: other seconds of ends and of periodic passes.

    On this clock a start follows the end that makes room for it by 1 s (median of the recorded runs, up to 3 s); the
    simulator starts the job in the same second. slurmctld counts its passes from its own start, and from there to the
    first submission it took 514 to 546 s in 18 recorded runs.
    """
    rng = np.random.default_rng(seed)
    later_s = rng.integers(0, 3, len(world.jobs))
    origin_s = world.settings.origin_s + int(rng.integers(-PHASE_S, PHASE_S + 1))
    return replace(
        world,
        jobs=replace(world.jobs, run_s=world.jobs.run_s + later_s),
        settings=replace(world.settings, origin_s=origin_s),
    )


def compare(before: Path, after: Path, diff: SlurmDiff, plan: Plan) -> Compared:
    """Put the measured change of each job's wait beside the predicted one."""
    simulated, changes = predicted(before, diff)
    later = {job.key: job.wait_s for job in recording.read(after)}
    seen_s = np.array([_difference(later.get(job.key), job.wait_s) for job in recording.read(before)], np.float64)
    kept = ~np.isnan(changes.sum(axis=0) + seen_s)
    submit_s, changes, seen_s = simulated.submit_s[kept], changes[:, kept], seen_s[kept]
    answer = answer_declared(simulated, plan.block_s)
    return Compared(
        int(kept.sum()),
        answer["results"][0]["verdict"],
        float(changes.mean()),
        float(seen_s.mean()),
        float(changes.mean(axis=1).std(ddof=1)),
        *(mean_interval(values, submit_s, plan.block_s) for values in (changes.mean(axis=0), seen_s)),
    )


def _difference(later_s: int | None, wait_s: int | None) -> float:
    return float("nan") if later_s is None or wait_s is None else later_s - wait_s


def check_accepted(diff: SlurmDiff, after: Path) -> None:
    """Raise AssertionError if slurmctld's log of the run names an edited value as wrong, or it reads another value."""
    log = gzip.decompress((after / "slurmctld.log.gz").read_bytes()).decode(errors="replace").lower()
    wrong = [line for line in log.splitlines() if re.search("error|invalid|ignor|unrecogni", line)]
    refused = [line for line in wrong if any(edit.key.lower() in line for edit in diff.conf)]
    assert not refused, refused[0]
    assert edited_conf(recording.described(after).conf, diff.conf) == recording.described(after).conf


COLUMNS = ("predicted", "95 % interval", "measured", "95 % interval", "verdict", "sign", "joint interval", "jobs")
WIDTHS = (12, 20, 12, 20, 13, 7, 20, 6)  # of COLUMNS, characters


def table(found: Mapping[str, Compared]) -> str:
    """The changes of the mean wait as text, a line a diff: predicted beside measured, and whether they agree."""
    lines = [(f"{'diff':<38}", COLUMNS)]
    for change, one in found.items():
        within = f"{'within' if one.is_within() else 'outside'} +-{one.reach_s():,.0f} s"
        sign = ("right" if one.same_sign else "wrong") if one.verdict in (LESS, MORE) else "no say"
        figures = (f"{one.predicted_s:+,.0f} s", _ends(one.predicted_ci95), f"{one.measured_s:+,.0f} s",
                   _ends(one.measured_ci95), one.verdict, sign, within, str(one.jobs))  # fmt: skip
        lines.append((f"{change:<38}", figures))
    return "".join(
        first + "".join(f"{cell:>{width}}" for cell, width in zip(cells, WIDTHS, strict=True)) + "\n"
        for first, cells in lines
    )


def _ends(ci95: list[float] | None) -> str:
    return "unknown" if ci95 is None else f"{ci95[0]:+,.0f} to {ci95[1]:+,.0f} s"


def add_rows(results: BenchmarkRun, change: str, found: Compared) -> None:
    """Add the figures of one diff to the results."""
    results.add(change, "mean wait, predicted change", found.predicted_s, "s", n=found.jobs,
                interval=found.predicted_ci95)  # fmt: skip
    results.add(change, "mean wait, measured change", found.measured_s, "s", n=found.jobs, interval=found.measured_ci95)
    apart_s, reach_s = found.measured_s - found.predicted_s, found.reach_s()
    results.add(change, "measured less predicted", apart_s, "s", n=found.jobs,
                interval=(apart_s - reach_s, apart_s + reach_s))  # fmt: skip


def prove(folder: Path, plan: Plan, version: str = OWN) -> dict[str, Compared]:
    """Run the stream before every diff, once more, and after each; the figures by change, AS_IT_IS for the repeat.

    Recordings that the folder holds already are not made again.
    """
    before, again = folder / "before", folder / "again"
    for place in (before, again):
        if not (place / "sacct.psv.gz").exists():
            run_before(place, plan, version)
    found = {AS_IT_IS: compare(before, again, SlurmDiff(), plan)}
    for number, change in enumerate(DIFFS):
        diff, after = diff_of(before, change), folder / f"after-{number}"
        if not (after / "sacct.psv.gz").exists():
            run_after(after, plan, diff, version)
        check_accepted(diff, after)
        found[change] = compare(before, after, diff, plan)
        print(f"{change}: measured", flush=True)
    return found


def is_as_predicted(found: Mapping[str, Compared]) -> bool:
    """Whether every diff has the verdict that DIFFS names, the right sign, and a size within the joint interval."""
    return all(
        expected in (None, found[change].verdict) and found[change].same_sign and found[change].is_within()
        for change, expected in DIFFS.items()
    )


def main(folder: Path) -> int:
    """Prove every diff, record and print the figures; return 1 if a diff does something else than predicted."""
    results = BenchmarkRun(ABOUT)
    found = prove(folder, FULL)
    for change, compared in found.items():
        add_rows(results, change, compared)
    results.write()
    print(f"\nchange of the mean wait by a diff of slurm.conf, on a real Slurm\n{table(found)}", end="")
    return 0 if is_as_predicted(found) else 1


if __name__ == "__main__":
    if missing_slurm := missing(clock=True):
        sys.exit(missing_slurm)
    with tempfile.TemporaryDirectory(prefix="baton-advice-") as place:
        sys.exit(main(Path(sys.argv[1] if sys.argv[1:] else place)))
