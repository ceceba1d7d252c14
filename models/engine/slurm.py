"""Run tasks as jobs of a Slurm cluster, in arrays of chunks, through submitit.

Driver and jobs share a scratch folder (`models.engine.scratch`). A driver that starts anew finds the answers that are
there, and waits for the jobs that a killed driver left. If a job is lost, the task that it was running is submitted
once more, alone, and with twice the memory if it was killed; the tasks behind it are submitted as one other job. A task
that is lost twice is named. What was submitted is cancelled when the driver ends.
"""

from __future__ import annotations

import shlex
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agent.slurm.queue import ENDED, is_launch_held
from models.deployment import EngineOptions
from models.engine.chunk import Chunk, run_chunk
from models.engine.scratch import Answer, Scratch, StoredWork, chunks, estimate_s
from models.engine.work import CONTRARY, Work, python_path
from traces.counted import counted
from traces.errors import InputError, WorkError, of_system
from traces.progress import LINE_EVERY_S, Progress, say

LOOK_S = 0.5  # between looks at the answers
ASK_S = 10.0  # between questions to sacct, one for all jobs
LEAST_S, CHUNK_S = 10.0, 60.0  # length of a chunk; a job costs about 2 s to start
MOST_CHUNKS = 500  # of equal lengths; of unequal tasks there may be twice as many, and an array holds 1,000 by default
OUT_OF_MEMORY = "OUT_OF_MEMORY"
FORGOTTEN = "forgotten by slurmctld"  # killed before it saved the job; sacct calls such a job RUNNING for ever
NOT_LAUNCHED = "its node could not launch it"  # Slurm then holds the job until an administrator releases it
MOST_LAUNCHES = 4  # of a task, as jobs that no node launched
KILLED = "9"  # signal, as the kernel and Slurm without cgroups end what uses too much memory; srun exits with it


def each_on_slurm(work: Work, options: EngineOptions, scratch: Scratch) -> Iterator[tuple[int, Any]]:
    """Yield (position of the task, result), each as soon as it is ready.

    Raises what a task raised, InputError where Slurm refuses the jobs, and WorkError for a task that is lost twice.
    """
    scratch.sweep()
    stored = scratch.store(work)
    scratch.forget_errors(stored.keys)
    run = _Run(work, options, scratch, stored)
    try:
        waiting = set(range(len(work.tasks)))
        yield from run.answers(waiting)
        run.adopt(waiting)
        times = scratch.estimates_s(stored.function)
        estimates_s = {at: estimate_s(times, work.tasks[at].kind) for at in sorted(waiting)}
        run.submit(chunks(estimates_s, chunk_s(sum(estimates_s.values()), options.at_once)))
        while run.jobs:
            ended = run.ended()  # before the answers are listed: whatever they lack then is lost
            for job, tasks in list(run.jobs.items()):
                yield from run.answers(tasks)
                if not tasks:
                    run.forget(job)
                elif job in ended:
                    run.again(job, ended[job])
            if run.jobs:
                run.report()
                time.sleep(LOOK_S)
    finally:
        run.cancel()


def chunk_s(total_s: float, at_once: int) -> float:
    """Return the length of chunks: about a minute, less if that leaves jobs idle, and more for hours of work."""
    return max(LEAST_S, min(CHUNK_S, 1.001 * total_s / at_once), total_s / MOST_CHUNKS)


class _State(NamedTuple):
    """The state of a job, and whether it or a step of it was killed, as for memory."""

    state: str
    is_killed: bool


@dataclass
class _Run:
    """The jobs of one work: id -> positions of the tasks without an answer, in the order in which they are run."""

    work: Work
    options: EngineOptions
    scratch: Scratch
    stored: StoredWork
    jobs: dict[str, list[int]] = field(default_factory=dict)
    lost: Counter[int] = field(default_factory=Counter)  # by task
    unlaunched: Counter[int] = field(default_factory=Counter)  # jobs that were not launched, by their first task
    seconds: dict[str, float] = field(default_factory=dict)  # by kind of task
    asked_s: float = field(default_factory=time.monotonic)
    absent: set[str] = field(default_factory=set)  # jobs that squeue did not have the last time
    began_s: float = field(default_factory=time.monotonic)
    said_s: float = field(default_factory=time.monotonic)
    answered: int = 0  # tasks of its jobs

    def answers(self, tasks: list[int] | set[int]) -> Iterator[tuple[int, Any]]:
        """Yield the results of the tasks that have one, and remove these tasks. Raises what a task raised."""
        there = self.scratch.answered()
        for at in [at for at in tasks if self.stored.keys[at] in there]:
            answer: Answer = self.scratch.answer(self.stored.keys[at])
            if answer.error is not None:
                raise answer.error
            tasks.remove(at)
            self.seconds[self.work.tasks[at].kind] = answer.wall_s
            self.answered += bool(self.jobs)
            yield at, answer.result

    def adopt(self, waiting: set[int]) -> None:
        """Take over the jobs of a driver that was killed, with those of the waiting tasks that they run."""
        place = {key: at for at, key in enumerate(self.stored.keys)}
        for job, keys in self.scratch.claims():
            tasks = [place[key] for key in keys if place.get(key) in waiting]
            if tasks:
                self.jobs[job] = tasks
        states = _states(list(self.jobs))
        for job in list(self.jobs):
            if job not in states or states[job].state in ENDED:
                self.forget(job)
        waiting.difference_update(at for tasks in self.jobs.values() for at in tasks)
        if self.jobs:
            say(f"Slurm: waiting for {counted(len(self.jobs), 'job')} of an earlier run")

    def submit(self, groups: list[list[int]], memory: int = 1) -> None:
        """Submit an array with a job for each group, with `memory` times the memory. Raises InputError if refused."""
        if not groups:
            return
        from submitit import SlurmExecutor
        from submitit.core.utils import FailedJobError

        stored = self.stored
        arguments = [
            Chunk(
                str(self.scratch.root), stored.function, stored.prepare, tuple(self.work.modules), stored.code,
                stored.shared, tuple((stored.keys[at], stored.arguments[at]) for at in group),
            )
            for group in groups
        ]  # fmt: skip
        try:
            executor = SlurmExecutor(folder=self.scratch.root / "jobs")
            executor.update_parameters(
                job_name="baton",
                setup=self._setup(),
                array_parallelism=self.options.at_once,
                **self.options.slurm_parameters(memory),
            )
            jobs = executor.map_array(run_chunk, arguments)
        except OSError as error:  # such as a full disk
            raise of_system(error, self.scratch.root) from error
        except (FailedJobError, RuntimeError) as error:
            lines = str(error).strip().splitlines() or [type(error).__name__]
            raise InputError(f"Slurm refuses the jobs of the engine: {lines[-1]}") from error
        for job, group in zip(jobs, groups, strict=True):
            self.jobs[job.job_id] = list(group)
            self.scratch.claim(job.job_id, [stored.keys[at] for at in group])
        tasks = counted(sum(map(len, groups)), "task")
        say(f"Slurm: {tasks} in {counted(len(groups), 'job')} ({jobs[0].job_id.partition('_')[0]})")

    def _setup(self) -> list[str]:
        """Lines of the job's shell: the user's, then the variables of the worker."""
        own = {**self.work.settings, "PYTHONPATH": python_path(), "XDG_CACHE_HOME": str(self.scratch.root / "cache")}
        lines = [f"unset {CONTRARY}"] if self.work.is_exact else []
        return [*self.options.setup, *lines, *(f"export {name}={shlex.quote(value)}" for name, value in own.items())]

    def ended(self) -> dict[str, _State]:
        """Return the state of each job that ended, or that Slurm forgot; asks every ASK_S."""
        if time.monotonic() - self.asked_s < ASK_S:
            return {}
        self.asked_s = time.monotonic()
        found = {job: one for job, one in _states(list(self.jobs)).items() if one.state in ENDED}
        active = _active()
        if active is not None:  # a job may end between the two questions, but not be absent twice without a record
            absent = self.jobs.keys() - active.keys() - found.keys()
            found |= dict.fromkeys(absent & self.absent, _State(FORGOTTEN, False))
            self.absent = absent
            held = [job for job in self.jobs if is_launch_held(active.get(job, ""))]
            found |= dict.fromkeys(held, _State(NOT_LAUNCHED, False))
            _scancel(held)
        return found

    def report(self) -> None:
        """Say how many tasks are done if no step has reported its progress for LINE_EVERY_S."""
        now = time.monotonic()
        if now - max(self.said_s, Progress.heard_at) < LINE_EVERY_S:
            return
        self.said_s = now
        left = sum(map(len, self.jobs.values()))
        time_left = f", about {(now - self.began_s) / self.answered * left:,.0f} s left" if self.answered else ""
        say(f"  Slurm; {len(self.work.tasks) - left:,} of {counted(len(self.work.tasks), 'task')}{time_left}")

    def again(self, job: str, ended: _State) -> None:
        """Submit the tasks of a lost job again. Raises WorkError for a task that is lost the second time."""
        suspect, *rest = self.jobs[job]
        name = self.work.tasks[suspect].name
        self.forget(job)
        if ended.state == NOT_LAUNCHED:
            self.unlaunched[suspect] += 1
            if self.unlaunched[suspect] >= MOST_LAUNCHES:
                raise WorkError(f"{name}: no node could launch it, tried {MOST_LAUNCHES} times (last as job {job})")
            say(f"Slurm: job {job}: {NOT_LAUNCHED}; submitting it again")
            self.submit([[suspect, *rest]])
            return
        self.lost[suspect] += 1
        if self.lost[suspect] > 1:
            killed = ": out of memory?" if ended.is_killed else ""
            log = self.scratch.root / "jobs" / f"{job}_0_log.err"
            output = f"its output is in {log}" if log.exists() else f"no output: does its node see {self.scratch.root}?"
            raise WorkError(f"{name}: lost twice on Slurm (job {job}, {ended.state}{killed}); {output}")
        say(f"Slurm: job {job} is lost ({ended.state}) during {name}; trying again")
        try:
            self.submit([[suspect]], memory=2 if ended.is_killed else 1)
        except InputError as error:
            raise WorkError(f"{name}: lost on Slurm (job {job}, {ended.state}), and once more: {error}") from error
        self.submit([rest] if rest else [])

    def forget(self, job: str) -> None:
        """Stop waiting for a job."""
        del self.jobs[job]
        self.scratch.unclaim(job)

    def cancel(self) -> None:
        """Cancel the jobs that are left, and keep the times for the next estimate."""
        _scancel(list(self.jobs))
        for job in list(self.jobs):
            self.forget(job)
        if self.seconds:
            with suppress(WorkError):  # a full disk is another error already
                self.scratch.remember_times(self.stored.function, self.seconds)


def _states(jobs: list[str]) -> dict[str, _State]:
    """Ask sacct once for the jobs; those without a record are left out."""
    if not jobs:
        return {}
    numbers = ",".join(sorted({job.partition("_")[0] for job in jobs}))
    command = ["sacct", "--noheader", "--parsable2", "--format=JobID,State,ExitCode", "--jobs", numbers]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # what it lacks it has the next time
    found: dict[str, _State] = {}
    for line in done.stdout.splitlines():
        step, state, code = line.split("|")
        job = step.partition(".")[0]
        before = found.setdefault(job, _State(state.partition(" ")[0], False))  # "CANCELLED by 1000"; the job is first
        is_killed = before.is_killed or state == OUT_OF_MEMORY or KILLED in code.split(":")
        found[job] = before._replace(is_killed=is_killed)
    return {job: found[job] for job in jobs if job in found}


def _scancel(jobs: list[str]) -> None:
    if jobs:
        subprocess.run(["scancel", "--quiet", *jobs], check=False)  # noqa: S607 - found as sbatch is


def _active() -> dict[str, str] | None:
    """Ask squeue for our jobs that did not end, with the reason why each waits; None if it does not answer."""
    command = ["squeue", "--noheader", "--array", "--me", "--format=%i|%r"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return None if done.returncode else dict(line.strip().split("|", 1) for line in done.stdout.splitlines())
