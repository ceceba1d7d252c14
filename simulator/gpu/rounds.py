"""The clock of rounds, for schedulers that decide about the whole cluster at once and may stop and move jobs.

At every tick of its round, a policy returns the GPUs of every job until the next tick. The clock starts, stops, moves
and resizes jobs accordingly, and charges each change. It advances work at the speed of the allocation, and ends a job
at its exact second. GPUs that become free between two ticks wait for the next tick. The clock is deterministic.

**Progress.** A job needs `run_s` seconds on the GPUs it asked for, packed on the fewest nodes of the reference type. On
other allocations, a job with a model runs at the ratio of the two goodputs (`speed`). A job without one runs at the
share of its requested GPUs that it has. A job that declares its work, and whose profile has gradient statistics,
progresses by the goodput of its batch instead (`simulator.gpu.training`). Its `left_s` is `run_s` times the share of
the work that is left. **Charges.** A job that was stopped, moved or resized holds its GPUs without progress for a
restart when it runs again. The restart takes the `restart_s` of its model, or the policy's `pause_s` if the policy
suspends jobs at a lower cost. A first start costs nothing, except under a policy with `first_start`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from simulator.gpu.profiles.performance import TOLERANCE
from simulator.gpu.profiles.scaling import packed_share
from simulator.gpu.result import GpuResult
from simulator.gpu.round_policy import GpuJob, GpuMachine, Placed, RoundPolicy, View, shape, speed
from simulator.gpu.surroundings import Surroundings
from simulator.gpu.training import Training
from simulator.one_thread import one_thread
from traces.arrays import Float64s
from traces.counted import counted
from traces.errors import InputError, WorkError

STUCK_S = 14 * 86_400.0  # the run fails if jobs are present but none runs for so long


class _Clock:
    def __init__(self, jobs: Sequence[GpuJob], machine: GpuMachine, policy: RoundPolicy, around: Surroundings) -> None:
        self.jobs, self.around = {job.number: job for job in jobs}, around
        self.arriving = sorted(jobs, key=lambda job: (job.submit_s, job.number))[::-1]
        extended: Callable[[GpuMachine], GpuMachine] = getattr(policy, "extended", lambda own: own)
        self.machine, self.policy = extended(machine), policy
        self.own_gpus = machine.total  # without borrowed nodes
        if not getattr(policy, "shares_gpus", False):
            for job in jobs:
                job.gpu_milli = 1000
        self.active: dict[int, GpuJob] = {}
        self.ended: list[int] = []  # jobs that ended since the last tick
        self.kept: Mapping[int, float] = {}  # job -> share of its speed that its neighbours leave, if below 1
        self.partners: dict[int, int] = {}  # of each pair of jobs that share GPUs: job -> the other job, both ways
        self.decisions = 0
        self.stranded_gpu_s = 0.0
        self.loaned_gpu_s = 0.0
        self.loaned = 0  # borrowed GPUs since the last tick
        self.free = 0.0  # free GPUs since the last tick
        self.last_s = 0.0

    def advance(self, job: GpuJob, now_s: float) -> bool:
        """Update progress and GPU seconds to `now_s`, or to the job's end if it is sooner; return whether it ended."""
        has_ended, until_s = False, now_s
        if job.placed and now_s > job.since_s:
            begin_s = max(job.since_s, job.resume_s)
            if job.training is None:
                end_s = begin_s + job.left_s / job.speed
                has_ended = end_s <= now_s
                until_s = end_s if has_ended else now_s
                job.left_s = max(0.0, job.left_s - max(0.0, until_s - begin_s) * job.speed)
            else:
                after_s = job.training.run(now_s - begin_s, job.speed)
                has_ended = after_s is not None
                until_s = now_s if after_s is None else begin_s + after_s
                job.left_s = job.run_s * job.training.share_left
            passed_s, held = until_s - job.since_s, job.held
            job.gpu_s += passed_s * held
            each_s = passed_s * held / sum(job.placed.values())
            for node, gpus in job.placed.items():
                kind = self.machine.types[node]
                job.gpu_s_by_type[kind] = job.gpu_s_by_type.get(kind, 0.0) + each_s * gpus
            job.lost_gpu_s += (passed_s - max(0.0, until_s - begin_s)) * held
            job.ran_s += passed_s
        job.since_s = until_s
        return has_ended

    def finish_until(self, now_s: float) -> None:
        """Advance the jobs to `now_s`, and end jobs at their exact seconds."""
        waiting = any(not job.placed for job in self.active.values())
        stranded, last_end_s = self.free * (now_s - self.last_s), self.last_s
        for number, job in list(self.active.items()):
            if job.placed and self.advance(job, now_s):
                stranded += job.held * (now_s - job.since_s)
                last_end_s = max(last_end_s, job.since_s)
                job.left_s, job.end_s, job.placed = 0.0, job.since_s, {}
                del self.active[number]
                self.ended.append(number)
        self.stranded_gpu_s += stranded if waiting else 0.0
        self.loaned_gpu_s += self.loaned * ((now_s if self.active else last_end_s) - self.last_s)
        self.last_s = now_s

    def apply(self, wanted: dict[int, Placed], now_s: float) -> None:
        """Start, stop and change jobs so that exactly `wanted` runs."""
        self.check(wanted)
        partners = {a: b for pair in self.policy.guests.items() for a, b in (pair, pair[::-1])}
        kept: Mapping[int, float] = getattr(self.policy, "interfered", lambda _: {})(wanted)
        for number, job in self.active.items():
            placed = wanted.get(number)
            if not placed:
                job.preemptions, job.placed = job.preemptions + bool(job.placed), {}
                continue
            is_alike = placed == job.placed or self.is_free_move(job.placed, placed)
            if not is_alike:
                self.change(job, now_s)
            is_changed = partners.get(number) != self.partners.get(number) or kept.get(number) != self.kept.get(number)
            if is_changed or not is_alike:
                if job.training is not None:
                    job.training.place(*shape(placed, self.machine))
                job.speed = speed(job, placed, self.machine) if job.training is None else 1.0
                job.speed *= kept.get(number, 1.0)
                other = self.active[partners[number]].model if number in partners else None
                if job.model is not None and other is not None:
                    job.speed *= packed_share(job.model, other, self.machine.types[min(placed)], sum(placed.values()))
            job.placed, job.since_s = placed, now_s
        self.partners, self.kept = partners, kept

    def is_free_move(self, before: Placed, after: Placed) -> bool:
        """Whether the policy lets a job move at no cost, because the nodes differ and the `shape` does not."""
        is_free = getattr(self.policy, "free_moves", False) and before and after
        return bool(is_free) and shape(before, self.machine) == shape(after, self.machine)

    def change(self, job: GpuJob, now_s: float) -> None:
        """Make a first start, or a restart, with its charge."""
        if job.start_s < 0.0:
            job.start_s = now_s
            if not getattr(self.policy, "first_start", False):
                return
        else:
            job.restarts += 1
        job.resume_s = now_s + (job.restart_cost_s if self.policy.pause_s is None else self.policy.pause_s)

    def check(self, wanted: dict[int, Placed]) -> None:
        """Raise WorkError if a policy allocates missing GPUs, or GPUs to a job that must not have them."""
        used = [0] * len(self.machine.gpus)  # thousandths of GPUs
        guests = self.policy.guests
        for number, placed in wanted.items():
            if number not in self.active:
                raise WorkError(f"{type(self.policy).__name__} gives GPUs to job {number}, which is not there")
            if number in guests:
                if wanted.get(guests[number]) != placed or guests[number] in guests:
                    raise WorkError(f"{type(self.policy).__name__} packs job {number} with one that is not on its GPUs")
                continue
            for node, gpus in placed.items():
                used[node] += gpus * self.active[number].gpu_milli
        over = np.flatnonzero(np.array(used) > 1000 * self.machine.gpus)
        if len(over):
            raise WorkError(
                f"{type(self.policy).__name__} gives {used[over[0]] / 1000:g} GPUs of node {over[0]}, "
                f"which has only {self.machine.gpus[over[0]]}"
            )
        if len(set(guests.values())) < len(guests):
            raise WorkError(f"{type(self.policy).__name__} packs three jobs on the same GPUs: at most two are allowed")

    def enter(self, tick: float) -> None:
        """Let jobs into the queue that arrived or were held outside it; the latter count as submitted now."""
        come = []
        while self.arriving and self.arriving[-1].submit_s <= tick:
            come.append(self.arriving.pop().number)
        for number in self.around.entering(tick, come, self.ended):
            job = self.active[number] = self.jobs[number]
            job.left_s, job.since_s, job.training = job.run_s, tick, self.trained(job)
            job.submit_s = job.submit_s if number in come else tick
        self.ended = []

    def decide(self, tick: float) -> None:
        """Ask the policy and apply its answer; it does not see the jobs that are wider than the present machine."""
        machine = self.around.machine(self.machine, sum(job.held for job in self.active.values()))
        self.own_gpus += machine.total - self.machine.total
        self.machine = machine
        seen = [job for job in self.active.values() if job.gpus <= machine.total]
        if seen:
            self.decisions += 1
            self.apply(self.policy.decide(View(tick, machine, seen)), tick)
        guests = self.policy.guests
        held = sum(job.held for number, job in self.active.items() if job.placed and number not in guests)
        self.loaned = getattr(self.policy, "loaned_gpus", 0)
        self.free = self.own_gpus + self.loaned - held

    def run(self) -> None:
        tick, idle_s = 0.0, 0.0
        while self.arriving or self.active or self.around.outside:
            if not self.active:
                event_s = min(self.arriving[-1].submit_s if self.arriving else np.inf, self.around.change_s)
                if event_s == np.inf:
                    return
                tick = float(np.ceil(event_s / self.policy.round_s) * self.policy.round_s)
            self.finish_until(tick)
            self.enter(tick)
            if self.active:
                self.decide(tick)
            following = self.next_tick(tick)
            if self.active:
                is_running = any(job.placed for job in self.active.values())
                idle_s = 0.0 if is_running else idle_s + following - tick
                if idle_s > STUCK_S and not self.around.may_strand:
                    stuck = next(iter(self.active.values()))
                    raise WorkError(
                        f"job {stuck.number} of {counted(stuck.gpus, 'GPU')} is never started: it fits no allocation"
                    )
                if idle_s > STUCK_S and not self.arriving and self.around.change_s == np.inf:
                    return
            tick = following

    def trained(self, job: GpuJob) -> Training | None:
        """Return the training of a job that declares its work and has statistics."""
        if job.work is None or job.model is None or job.model.statistics is None:
            return None
        asked = getattr(self.policy, "whole_seconds", False), getattr(self.policy, "fit_tolerance", TOLERANCE)
        return Training(job.model, job.work, job.batch, job.counted_batch, *asked)

    def next_tick(self, tick: float) -> float:
        """Return the end of this round; if the policy has `settled`, that of the round of the next event."""
        following = tick + self.policy.round_s
        is_settled = getattr(self.policy, "settled", False)
        if not self.active or not is_settled or any(job.training is not None for job in self.active.values()):
            return following
        ends = (max(job.since_s, job.resume_s) + job.left_s / job.speed for job in self.active.values() if job.placed)
        event_s = min(ends, default=np.inf)
        event_s = min(event_s, getattr(self.policy, "wake_s", np.inf), self.around.change_s)
        if self.arriving:
            event_s = min(event_s, self.arriving[-1].submit_s)
        if event_s == np.inf:  # nothing will ever change
            return following + STUCK_S
        return max(following, float(np.ceil(event_s / self.policy.round_s) * self.policy.round_s))


@one_thread
def simulate_rounds(
    jobs: Sequence[GpuJob], machine: GpuMachine, policy: RoundPolicy, around: Surroundings | None = None
) -> GpuResult:
    """Run new `jobs` to the end of the last one, after the policy's `prepared` if it has one.

    The last decision of a `settled` policy remains valid until a job arrives or ends, or until its `wake_s` if it has
    one; until then it is not called. A policy that `shares_gpus` gives a job the part of a GPU that it asks for; under
    the others a job takes its GPUs whole. With `first_start` a first start is charged like a restart; with `free_moves`
    a move to other nodes with the same `shape` is free. With `whole_seconds` the epochs of jobs that declare their work
    take whole seconds; `fit_tolerance` is that of the fits of their step times. A policy may borrow nodes: `extended`
    returns the machine with all of them, and `loaned_gpus` the number of GPUs borrowed by the last decision. Jobs may
    slow their neighbours: `interfered` returns, given all places, the share of its speed that each such job keeps.
    `around` is what a record adds to the machine; with it, a job that is never started ends at infinity.

    Raises InputError for a job that is wider than the machine. Raises WorkError if the policy breaks a rule, or starts
    no job for STUCK_S.
    """
    total = machine.total
    for job in jobs:
        if job.gpus > total:
            raise InputError(
                f"job {job.number} asks for {counted(job.gpus, 'GPU')}, but the cluster has {total}: leave the job out"
            )
    prepared = getattr(policy, "prepared", None)
    jobs = jobs if prepared is None else prepared(jobs)
    clock = _Clock(jobs, machine, policy, around or Surroundings())
    clock.run()

    def of_jobs(name: str) -> Float64s:
        return np.array([getattr(job, name) for job in jobs], dtype=np.float64)

    return GpuResult(
        start_s=of_jobs("start_s"),
        end_s=np.where(of_jobs("end_s") < 0.0, np.inf, of_jobs("end_s")),
        ran_s=of_jobs("ran_s"),
        gpu_s=of_jobs("gpu_s"),
        gpu_s_by_type={
            kind: np.array([job.gpu_s_by_type.get(kind, 0.0) for job in jobs]) for kind in sorted(set(machine.types))
        },
        lost_gpu_s=of_jobs("lost_gpu_s"),
        restarts=of_jobs("restarts").astype(np.int64),
        preemptions=of_jobs("preemptions").astype(np.int64),
        decisions=clock.decisions,
        stranded_gpu_s=clock.stranded_gpu_s,
        loaned_gpu_s=clock.loaned_gpu_s,
    )
