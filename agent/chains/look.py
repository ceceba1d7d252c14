"""What a look at Slurm shows of a chain's jobs, and the state that follows from it, without any decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from agent.chains.state import COMPLETING, MISSING, ChainState, LinkAttempt
from agent.slurm.queue import SqueueJob
from traces.slurm.text import parse_state

LOOKS = 3  # a job counts as absent after no source has known it this often in a row ...
SETTLE_S = 180  # ... and this long after its submission: Slurm may still process a submission whose sbatch was killed
STUCK_LOOKS = 15  # as LOOKS, if accounting alone says that the job has not ended
KNOWN_S = 5400  # a job that exists and may still run is looked for this long: an outage may give empty answers for 1 h
UNKNOWN = "UNKNOWN"  # from `parse_state`: a state of a newer Slurm; the job may be alive
NOT_ENDED = ("PENDING", "RUNNING", "SUSPENDED", "REQUEUED", "RESIZING", UNKNOWN)


@dataclass(frozen=True)
class LookedUpJob:
    """A job that the queue does not show, as another source of Slurm describes it."""

    job_id: str
    state: str
    exit_status: int | None
    submit_s: int | None
    start_s: int | None
    end_s: int | None


@dataclass(frozen=True)
class ChainView:
    """What one successful look shows of the chain.

    jobs: the user's jobs in the queue. found: by attempt name, the result of looking up a job that is not in the queue;
    None: no source knows the job; no entry: the look-up failed. more: the links that left the file requesting another
    link. cycle_s: between looks.
    """

    now_s: int
    jobs: tuple[SqueueJob, ...] = ()
    found: Mapping[str, LookedUpJob | None] = field(default_factory=dict)
    more: frozenset[int] = frozenset()
    cycle_s: float = 60.0


def in_queue(attempt: LinkAttempt, jobs: tuple[SqueueJob, ...]) -> SqueueJob | None:
    """Find the queued job of a living attempt by id or, if that is unknown, by name."""
    for job in jobs:
        if (job.id == attempt.job_id if attempt.job_id else job.name == attempt.name) and _phase(job.state) != "over":
            return job
    return None


def missing(state: ChainState, jobs: tuple[SqueueJob, ...]) -> tuple[LinkAttempt, ...]:
    """Return the living attempts that the queue does not show; look them up in other sources."""
    return tuple(a for a in state.attempts if a.is_alive and in_queue(a, jobs) is None)


def absorb(state: ChainState, sight: ChainView) -> ChainState:
    """Update the state with what is observed, without deciding anything."""
    return replace(state, attempts=tuple(_seen(a, sight) for a in state.attempts))


def _phase(state: str) -> str:
    """Return the phase of a job in squeue: pending, running, completing, over, or unknown for a new kind of state."""
    if state == COMPLETING:
        return "completing"
    base = parse_state(state)
    if base in ("PENDING", "REQUEUED"):
        return "pending"
    if base == UNKNOWN:
        return "unknown"
    return "running" if base in ("RUNNING", "SUSPENDED", "RESIZING") else "over"


def _seen(attempt: LinkAttempt, sight: ChainView) -> LinkAttempt:
    if not attempt.is_alive:
        return attempt
    job = in_queue(attempt, sight.jobs)
    if job is None:
        return _looked_up(attempt, sight)
    phase = _phase(job.state)
    if phase == "unknown":  # it is alive, and we decide nothing about it
        return replace(attempt, job_id=job.id, submit_s=job.submit_s, looks=0, reason=f"state {job.state}")
    known = replace(attempt, job_id=job.id, submit_s=job.submit_s, is_pending=phase == "pending", looks=0)
    if attempt.least_s is not None:
        known = replace(known, limit_s=job.limit_s)  # Slurm may shorten it at the start
    if phase == "pending":  # `start_s` is only an estimate; after a requeue the earlier start no longer counts
        return replace(known, start_s=None, end_s=None, reason=job.reason)
    if phase == "completing":
        return replace(known, start_s=job.start_s or attempt.start_s, reason=COMPLETING)
    start_s = job.start_s if job.start_s is not None else sight.now_s
    return replace(known, start_s=start_s, end_s=start_s + job.limit_s, reason="")


def _looked_up(attempt: LinkAttempt, sight: ChainView) -> LinkAttempt:
    if attempt.name not in sight.found:
        return replace(attempt, reason=MISSING)
    found = sight.found[attempt.name]
    if found is None or parse_state(found.state) in NOT_ENDED:
        job_id = found.job_id if found else attempt.job_id
        looked = replace(attempt, looks=attempt.looks + 1, job_id=job_id, reason=MISSING)
        is_settled = sight.now_s - attempt.intended_s >= SETTLE_S
        may_run = bool(job_id) and (attempt.end_s is None or sight.now_s < attempt.end_s)
        enough = STUCK_LOOKS if found else LOOKS
        if looked.looks < (max(enough, KNOWN_S / sight.cycle_s) if may_run else enough) or not is_settled:
            return looked
        if not looked.job_id:
            return replace(looked, how="ABSENT")
        return replace(looked, how="LOST", end_s=min(attempt.end_s or sight.now_s, sight.now_s))
    return replace(
        attempt,
        job_id=found.job_id,
        submit_s=found.submit_s or attempt.submit_s,
        start_s=found.start_s,
        end_s=found.end_s or sight.now_s,
        is_pending=False,
        reason="",
        how=parse_state(found.state),
        exit_status=found.exit_status,
        has_more=attempt.link in sight.more,
    )
