"""Generate a Philly log with Microsoft's schema and defects and its published shares, for a scaled-down cluster.

Schema and value formats follow the README and the analysis notebook of msr-fiddle/philly-traces. Rounded constants
calibrate it to:

- (a) Jeon et al., USENIX ATC 2019: status shares 69.3 / 13.5 / 17.2 %; killed and unsuccessful jobs use about 55 % of
  GPU time; mean utilization 0.52.
- (b) The derived file philly.csv: run-time quantiles by GPU count, shares of GPU counts and virtual clusters, and the
  hour of submission.
- (c) AcmeTrace's figures for Philly: the GPU-utilization quantiles and the median queueing delay.

Both files are CC BY 4.0. A gang scheduler with locality determines starts and placements on the generated machines; no
row records a real job.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from traces.arrays import Int64s
from traces.generate.text import open_text
from traces.units import DAY_S, WEEK_S

CLOCK_CHANGE_S = 1_509_872_400  # 2017-11-05 09:00 UTC: 02:00 PDT became 01:00 PST
STATUSES = ("Pass", "Killed", "Failed")

# philly.csv (82,247 jobs): share of jobs and quantiles of run time (s) at QUANTILES, by GPU count.
QUANTILES = np.array([0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1])
BUCKETS = np.array([[1, 1], [2, 4], [8, 8], [16, 24]])
BUCKET_SHARES = np.array([0.9316, 0.0449, 0.0200, 0.0035])
RUN_QUANTILES_S = np.array(
    [
        [5, 30, 52, 62, 122, 1117, 2716, 8512, 19137, 135399, 865709, 1500000],
        [2, 6, 11, 15, 21, 367, 45388, 166120, 233082, 747317, 1500000, 2000000],
        [10, 33, 125, 216, 1876, 23683, 173248, 351982, 525618, 1060498, 1800000, 2400000],
        [2, 4, 35, 72, 566, 21137, 104218, 247972, 443240, 922629, 1200000, 1710643],
    ],
    dtype=np.float64,
)
VC_SHARES = np.array([0.501, 0.196, 0.121, 0.090, 0.024, 0.018, 0.017, 0.014, 0.009, 0.010])
HOUR_WEIGHTS = np.array(
    [
        [4.4, 3.4, 3.8, 3.8, 2.4, 4.0, 5.7, 7.2, 3.8, 3.4, 3.5, 3.0],
        [2.6, 2.4, 2.2, 2.2, 3.0, 2.3, 2.7, 2.5, 3.5, 3.1, 3.9, 3.5],
    ]
).ravel()  # from midnight
DAY_WEIGHTS = np.array([1.01, 1.25, 1.34, 1.51, 1.70, 0.72, 0.70])  # Monday first

# The README's counts over 117,325 jobs: without any attempt, without a start, without an end.
NO_ATTEMPT_SHARE, NO_START_SHARE, NO_END_SHARE = 5236 / 117_325, 136 / 117_325, 6695 / 117_325
RELAX_LOCALITY_AFTER_S = 600  # waiting time after which a gang may spread over more machines
LOOK_AHEAD = 60
OFFERED_LOAD = 0.90  # drawn GPU time over the cluster's; the longest jobs outlast the log
NEVER = -1


@dataclass(frozen=True)
class Machines:
    """The generated cluster: names, GPUs of each machine (2 or 8), and the partly wrong GPU counts of the list."""

    names: tuple[str, ...]
    gpus: tuple[int, ...]
    listed_gpus: tuple[int, ...]


@dataclass
class GeneratedAttempt:
    """One run of a generated job: epoch seconds, and (machine index, GPU numbers) held.

    `end_s` may be after the snapshot.
    """

    start_s: int
    end_s: int
    held: list[tuple[int, list[int]]]


@dataclass
class PhillyJob:
    """One generated job; `runs_s` are the lengths of its attempts, `attempts` those that the scheduler started."""

    number: int
    submit_s: int
    vc: int
    user: int
    gpus: int
    status: int
    runs_s: list[int]
    attempts: list[GeneratedAttempt] = field(default_factory=list)


def machines(count: int) -> Machines:
    """Make `count` machines, a third of them with 8 GPUs; the list gives some 8-GPU machines only 2 GPUs."""
    gpus = tuple(8 if index % 3 == 0 else 2 for index in range(count))
    names = tuple(f"m{index * 13 + 1}" for index in range(count))
    listed = tuple(2 if g == 8 and index % 6 == 3 else g for index, g in enumerate(gpus))
    return Machines(names, gpus, listed)


def first_submit_s(weeks: int) -> int:
    """Return a Monday 00:00 PDT such that the log covers the clock change, in its fifth week if it has eight."""
    monday_s = CLOCK_CHANGE_S - 2 * 3600 - 6 * DAY_S  # Monday 2017-10-30 00:00 PDT
    return monday_s - (weeks // 2) * WEEK_S


def draw_jobs(rng: np.random.Generator, *, jobs: int | None, weeks: int, cluster: Machines) -> list[PhillyJob]:
    """Draw jobs in order of submission over `weeks` weeks; if `jobs` is None, enough for `OFFERED_LOAD`."""
    capacity = sum(cluster.gpus)
    widest = max(g for g in BUCKETS.ravel().tolist() if g <= max(1, capacity // 2))
    pool = jobs if jobs is not None else int(capacity * weeks * 25)
    bucket = rng.choice(4, pool, p=BUCKET_SHARES)
    gpus = np.minimum(BUCKETS[bucket, rng.integers(0, 2, pool)], widest)
    rank = rng.random(pool)
    run_s = np.array(
        [np.exp(np.interp(u, QUANTILES, np.log(RUN_QUANTILES_S[b]))) for u, b in zip(rank, bucket, strict=True)]
    )
    if jobs is None:
        budget = OFFERED_LOAD * capacity * weeks * WEEK_S
        pool = int(np.searchsorted(np.cumsum(np.minimum(run_s, weeks * WEEK_S / 3) * gpus), budget)) + 1
    else:
        # Shorten the jobs if the cluster could not run them in that time, so that the queue does not diverge.
        run_s *= min(1.0, OFFERED_LOAD * capacity * weeks * WEEK_S / float((run_s * gpus).sum()))
    bucket, gpus, rank, run_s = bucket[:pool], gpus[:pool], rank[:pool], np.maximum(run_s[:pool], 1)
    # Killed jobs are the long ones (37.7 % of GPU time for 13.5 % of jobs).
    killed = 0.135 - 0.45 / 21 + 0.45 * rank**20
    draw = rng.random(len(bucket))
    status = np.where(draw < killed, 1, np.where(draw < killed + 0.172, 2, 0))
    submit = np.sort(_submissions(rng, len(bucket), first_submit_s(weeks), weeks))
    vc = rng.choice(len(VC_SHARES), len(bucket), p=VC_SHARES / VC_SHARES.sum())
    user = np.minimum(rng.zipf(1.6, len(bucket)), 40) * 7 + vc
    tries = _tries(rng, bucket, status)
    no_attempt = rng.random(len(bucket)) < NO_ATTEMPT_SHARE
    return [
        PhillyJob(
            number=i,
            submit_s=int(submit[i]),
            vc=int(vc[i]),
            user=int(user[i]),
            gpus=int(gpus[i]),
            status=int(status[i]),
            runs_s=[] if no_attempt[i] else _split(rng, float(run_s[i]), int(tries[i])),
        )
        for i in range(len(bucket))
    ]


def _submissions(rng: np.random.Generator, count: int, first_s: int, weeks: int) -> Int64s:
    """Draw submission times by the hour and weekday weights of philly.csv."""
    hours = np.tile(np.repeat(DAY_WEIGHTS, 24) * np.tile(HOUR_WEIGHTS, 7), weeks)
    hours = hours * np.repeat(rng.lognormal(0, 0.3, weeks * 7), 24)
    picked = rng.choice(len(hours), count, p=hours / hours.sum())
    return first_s + picked * 3600 + rng.integers(0, 3600, count)


def _tries(rng: np.random.Generator, bucket: Int64s, status: Int64s) -> Int64s:
    """Draw the number of attempts of each job: more with more GPUs, and more for unsuccessful jobs."""
    mean = np.array([0.10, 0.35, 0.8, 1.3])[bucket] * np.where(status == 2, 2.5, 1.0)
    return 1 + np.minimum(rng.poisson(mean), 4)


def _split(rng: np.random.Generator, run_s: float, tries: int) -> list[int]:
    """Split `run_s` into the lengths of the attempts: short failures first, the remaining time in the last."""
    total = max(int(run_s), tries)
    lengths: list[int] = []
    for _ in range(tries - 1):
        unspent = total - sum(lengths) - (tries - len(lengths) - 1)
        lengths.append(int(min(max(1.0, rng.lognormal(np.log(120), 1.3)), max(1, unspent))))
    return [*lengths, max(1, total - sum(lengths))]


class GangScheduler:
    """A first-come, first-served scheduler that may skip a bounded number of jobs; a gang starts as a whole.

    Locality follows Jeon et al. (section 2.3): the fewest machines first, relaxed after some waiting.
    """

    def __init__(self, cluster: Machines, rng: np.random.Generator) -> None:
        self.free = [list(range(count)) for count in cluster.gpus]
        self.size = cluster.gpus
        self.rng = rng

    def run(self, jobs: list[PhillyJob], until_s: int) -> None:
        """Add to the jobs the attempts that start before `until_s`."""
        events: list[tuple[int, int, int]] = []  # (time, 0 end or 1 ready, job)
        waiting: list[tuple[int, int]] = []  # (since, job)
        position = 0
        latency = self.rng.lognormal(np.log(110), 0.8, len(jobs))
        ready = sorted((job.submit_s + int(latency[i]), i) for i, job in enumerate(jobs) if job.runs_s)
        while position < len(ready) or events:
            now = min(ready[position][0] if position < len(ready) else until_s, events[0][0] if events else until_s)
            if now >= until_s:
                return
            while events and events[0][0] == now:
                _, kind, index = heapq.heappop(events)
                if kind == 1:
                    waiting.append((now, index))
                    continue
                job = jobs[index]
                for machine, held in job.attempts[-1].held:
                    self.free[machine].extend(held)
                if len(job.attempts) < len(job.runs_s):
                    heapq.heappush(events, (now + int(self.rng.integers(6, 130)), 1, index))
            while position < len(ready) and ready[position][0] == now:
                waiting.append(ready[position])
                position += 1
            self._start_what_fits(now, waiting, jobs, events)

    def _start_what_fits(
        self, now: int, waiting: list[tuple[int, int]], jobs: list[PhillyJob], events: list[tuple[int, int, int]]
    ) -> None:
        started: set[int] = set()
        blocked: set[int] = set()  # sizes that did not fit just now
        for since, index in waiting[:LOOK_AHEAD]:
            job = jobs[index]
            relaxed = now - since >= RELAX_LOCALITY_AFTER_S
            if job.gpus in blocked and not relaxed:
                continue
            held = self._place(job.gpus, relaxed=relaxed)
            if held is None:
                blocked.add(job.gpus)
                continue
            run_s = job.runs_s[len(job.attempts)]
            job.attempts.append(GeneratedAttempt(now, now + run_s, held))
            heapq.heappush(events, (now + run_s, 0, index))
            started.add(index)
        if started:
            waiting[:] = [entry for entry in waiting if entry[1] not in started]

    def _place(self, need: int, *, relaxed: bool) -> list[tuple[int, list[int]]] | None:
        """Choose GPUs for a gang: the fullest machine with room, else whole machines, else (relaxed) any machines."""
        free = self.free
        if need <= 8:
            room = [(len(free[m]), m) for m in range(len(free)) if len(free[m]) >= need]
            if room:
                return [self._take(min(room)[1], need)]
            if not relaxed or need == 1:
                return None
        chosen: list[tuple[int, int]] = []
        for count, machine in sorted(((len(free[m]), m) for m in range(len(free)) if free[m]), reverse=True):
            if not relaxed and count < 8:
                break
            chosen.append((machine, min(count, need)))
            need -= chosen[-1][1]
            if need == 0:
                return [self._take(machine, part) for machine, part in chosen]
        return None

    def _take(self, machine: int, count: int) -> tuple[int, list[int]]:
        self.free[machine].sort()
        taken, self.free[machine] = self.free[machine][:count], self.free[machine][count:]
        return machine, taken


def local_text(epoch_s: Int64s) -> list[str]:
    """Return the America/Los_Angeles local time, as text, of epoch seconds around the clock change of 2017-11-05."""
    shifted = epoch_s - np.where(epoch_s < CLOCK_CHANGE_S, 7, 8) * 3600
    texts: list[str] = np.char.replace(np.datetime_as_string(shifted.astype("datetime64[s]")), "T", " ").tolist()
    return texts


def write_job_log(out: Path, jobs: list[PhillyJob], cluster: Machines, seed: int, at_s: int, *, compress: bool) -> Path:
    """Write the job log as a JSON list, one job a line, with the defects that the README counts."""
    rng = np.random.default_rng([seed, 1])
    path = out / ("cluster_job_log" + (".gz" if compress else ""))
    with open_text(path, compress=compress) as stream:
        for row, record in enumerate(_records(rng, jobs, cluster, at_s)):
            stream.write(("[" if row == 0 else ",") + "\n" + json.dumps(record))
        stream.write("\n]\n")
    return path


def _records(
    rng: np.random.Generator, jobs: list[PhillyJob], cluster: Machines, at_s: int
) -> Iterator[dict[str, object]]:
    """Yield log records in order of submission; a missing time is null or the string 'None', as in the original."""
    for job in jobs:
        if job.runs_s and not job.attempts:
            continue  # still queued at the snapshot: the original holds only jobs that were tried or given up
        times = local_text(np.array([job.submit_s] + [t for a in job.attempts for t in (a.start_s, a.end_s)]))
        no_start, no_end = rng.random() < NO_START_SHARE, rng.random() < NO_END_SHARE
        attempts = []
        for index, attempt in enumerate(job.attempts):
            last = index == len(job.attempts) - 1
            lost = attempt.end_s >= at_s or (no_end and last)
            absent: str | None = None if rng.random() < 0.5 else "None"
            attempts.append(
                {
                    "start_time": absent if no_start and index == 0 else times[1 + 2 * index],
                    "end_time": absent if lost else times[2 + 2 * index],
                    "detail": [
                        {"ip": cluster.names[machine], "gpus": [f"gpu{gpu}" for gpu in held]}
                        for machine, held in attempt.held
                    ],
                }
            )
        yield {
            "status": STATUSES[job.status],
            "vc": f"{(job.vc + 1) * 1_654_321 % 0xFFFFFF:06x}",
            "jobid": f"application_1506638472019_{job.number + 10_001}",
            "attempts": attempts,
            "submitted_time": times[0],
            "user": f"{(job.user + 3) * 2_345_679 % 0xFFFFFF:06x}",
        }


def write_machine_list(out: Path, cluster: Machines) -> Path:
    """Write the machine list, with the original's spaces after the commas and its wrong GPU counts."""
    path = out / "cluster_machine_list"
    with open_text(path, compress=False) as stream:
        stream.write("machineId, number of GPUs, single GPU mem\n")
        for name, count in sorted(zip(cluster.names, cluster.listed_gpus, strict=True)):
            stream.write(f"{name},{count}, {'24GB' if count == 8 else '12GB'}\n")
    return path
