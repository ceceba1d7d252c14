"""One cycle of a chain as pure functions: from observations to the next state and the actions.

`absorb` updates the state with what Slurm shows. `question` returns the link whose successor the policy should decide
on. `act` decides what to submit and cancel. Nothing here reads a clock, a file or a cluster. docs/agent.md explains the
rules and their reasons.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from agent.chains.state import COMPLETING, GOING, MISSING, ChainState, LinkAttempt
from agent.slurm.queue import SqueueJob
from traces.counted import counted
from traces.slurm.text import parse_state

LOOKS = 3  # a job counts as absent after no source has known it this often in a row ...
SETTLE_S = 180  # ... and this long after its submission: Slurm may still process a submission whose sbatch was killed
STUCK_LOOKS = 15  # as LOOKS, if accounting alone says that the job has not ended
KNOWN_S = 5400  # a job that exists and may still run is looked for this long: an outage may give empty answers for 1 h
MOST_WITHDRAWALS = 2  # attempts of one link that may be withdrawn for starting too early
MOST_AGAIN = 10  # attempts in a row that may end by no fault of their own
MOST_REFUSALS = 100  # submissions in a row that may be refused
BLIND_S = 1800  # after this long without a good look, the successor is submitted for the predecessor's end
LOST_SLACK_S = 120
UNKNOWN = "UNKNOWN"  # from `parse_state`: a state of a newer Slurm; the job may be alive
NOT_ENDED = ("PENDING", "RUNNING", "SUSPENDED", "REQUEUED", "RESIZING", UNKNOWN)
NO_FAULT = ("NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "REVOKED")


@dataclass(frozen=True)
class ChainRules:
    """The settings of a chain that the keeper needs. Durations in seconds."""

    links: int
    limit_s: int
    most_overlap_s: float  # infinite: no start is too early
    retries: int
    more_status: int
    cycle_s: float
    decide_every_s: int  # between decisions, as the policy was trained

    @property
    def last_s(self) -> float:
        """Remaining time of a predecessor below which the next cycle may come too late."""
        return 2 * self.cycle_s


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


@dataclass(frozen=True)
class Advice:
    """The decision at a decision instant. for_end: submit now, to start after the predecessor has ended."""

    submit: bool
    for_end: bool = False


@dataclass(frozen=True)
class Submit:
    """Submit the job of this attempt, which the state already contains."""

    name: str


@dataclass(frozen=True)
class Cancel:
    """Cancel the job of this attempt; repeated each cycle until the job is gone."""

    name: str


Action = Submit | Cancel


# -- observing --------------------------------------------------------------------------------------------------------


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


# -- outcomes ---------------------------------------------------------------------------------------------------------


def outcome(rules: ChainRules, attempt: LinkAttempt) -> str:
    """Classify an attempt: alive, void, on (the next link follows), done, failed, again or cancelled."""
    if attempt.is_alive:
        return "alive"
    if attempt.never_was:
        return "void"
    if attempt.how == "COMPLETED":
        return "on" if attempt.has_more else "done"
    if attempt.how == "TIMEOUT" or (attempt.how == "FAILED" and attempt.exit_status == rules.more_status):
        return "on"
    if attempt.how == "LOST":
        ran_s = attempt.end_s - attempt.start_s if attempt.start_s and attempt.end_s else 0
        return "on" if ran_s >= rules.limit_s - LOST_SLACK_S else "failed"
    if attempt.how == "CANCELLED":
        return "cancelled"
    return "again" if attempt.how in NO_FAULT else "failed"


def real(state: ChainState) -> list[LinkAttempt]:
    """Return the attempts that count, ordered by link and number."""
    return sorted((a for a in state.attempts if not a.never_was), key=lambda a: (a.link, a.number))


def next_link(rules: ChainRules, state: ChainState) -> int | None:
    """Return the link to submit next; None after the last one."""
    attempts = real(state)
    if not attempts:
        return 1
    is_followed = outcome(rules, attempts[-1]) in ("alive", "on")
    link = attempts[-1].link + (1 if is_followed else 0)
    return link if link <= rules.links else None


def _in_a_row(rules: ChainRules, state: ChainState, kind: str) -> int:
    """Count the attempts with this outcome since the last link with outcome `on`."""
    count = 0
    for attempt in reversed(real(state)):
        result = outcome(rules, attempt)
        if result == "on":
            break
        count += result == kind
    return count


def _refusals(state: ChainState) -> int:
    """Count the last submissions in a row that were refused or never became a job."""
    count = 0
    for attempt in reversed(state.attempts):
        if attempt.how not in ("REFUSED", "ABSENT"):
            break
        count += 1
    return count


def verdict(rules: ChainRules, state: ChainState) -> tuple[str, str, int] | None:
    """Return (status, why, link) if ended jobs end the chain, else None. Later links are then cancelled."""
    for attempt in real(state):
        result = outcome(rules, attempt)
        if result == "cancelled":
            return "cancelled", f"job {attempt.job_id} (link {attempt.link}) was cancelled", attempt.link
        if result == "done":
            return "done", f"job {attempt.job_id} (link {attempt.link}) ended with exit status 0", attempt.link
    attempts = real(state)
    last = attempts[-1] if attempts else None
    if last and _in_a_row(rules, state, "failed") > rules.retries:
        failed = max((a for a in attempts if outcome(rules, a) == "failed"), key=lambda a: a.end_s or 0)
        status = "" if failed.exit_status is None else f", exit status {failed.exit_status}"
        why = f"job {failed.job_id} (link {failed.link}) ended as {failed.how}{status}, and no retry is left"
        return "failed", why, failed.link
    if last and _in_a_row(rules, state, "again") > MOST_AGAIN:
        return "failed", f"more than {MOST_AGAIN} attempts in a row ended by {', '.join(NO_FAULT)}", last.link
    if _refusals(state) >= MOST_REFUSALS:
        return "failed", f"none of {MOST_REFUSALS} submissions in a row became a job", last.link if last else 0
    if last and next_link(rules, state) is None and not any(a.is_alive for a in attempts):
        return "done", f"all {counted(rules.links, 'link', 'is')} used", last.link
    return None


# -- acting -----------------------------------------------------------------------------------------------------------


def question(rules: ChainRules, state: ChainState, now_s: int) -> LinkAttempt | None:
    """Return the running link on whose successor the policy should decide now; None if there is no decision due."""
    living = [a for a in state.attempts if a.is_alive]
    if state.status != GOING or verdict(rules, state) or len(living) != 1 or not living[0].is_running:
        return None
    running = living[0]
    if running.withdrawn or next_link(rules, state) is None or _left_s(running, now_s) <= rules.last_s:
        return None
    return running if _instant(rules, running, now_s) != state.decided else None


def act(
    rules: ChainRules, state: ChainState, now_s: int, advice: Advice | None = None
) -> tuple[ChainState, tuple[Action, ...]]:
    """Return the state after this cycle and the actions in order. Save the state before executing the actions."""
    before, asked = state, question(rules, state, now_s) if advice is not None else None
    over = verdict(rules, state) if state.status == GOING else None
    if over is not None:
        status, why, link = over
        state = replace(state, status=status, why=why)
        for attempt in [a for a in state.attempts if a.is_alive and not a.withdrawn and a.link > link]:
            state = _withdrawn(state, attempt, f"the chain is over: {why}")
    if state.status == GOING:
        state = _corrected(rules, state)
        state = _with_next(rules, state, now_s, advice)
    if asked is not None:
        state = replace(state, decided=_instant(rules, asked, now_s))
    return state, _actions(before, state)


def act_blind(
    rules: ChainRules, state: ChainState, now_s: int, blind_s: float
) -> tuple[ChainState, tuple[Action, ...]]:
    """Act when Slurm takes calls but its answers are unusable: queue the successor for the predecessor's end."""
    running = [a for a in state.attempts if a.is_alive]
    if state.status == GOING and len(running) == 1 and running[0].is_running and not running[0].withdrawn:
        is_due = blind_s >= BLIND_S or _left_s(running[0], now_s) <= rules.last_s
        if is_due and _may_submit(state, now_s) and next_link(rules, state) is not None:
            after = _intended(rules, state, now_s, f"afterany:{running[0].job_id}")
            return after, _actions(state, after)
    return state, ()


def is_over(state: ChainState) -> bool:
    """Whether nothing is left to do: the chain has ended and every cancelled job is gone."""
    return state.status != GOING and not any(a.is_alive and a.withdrawn for a in state.attempts)


def _actions(before: ChainState, after: ChainState) -> tuple[Action, ...]:
    cancels = [Cancel(a.name) for a in after.attempts if a.is_alive and a.withdrawn and a.job_id]
    return (*cancels, *(Submit(a.name) for a in after.attempts[len(before.attempts) :]))


def _corrected(rules: ChainRules, state: ChainState) -> ChainState:
    """Withdraw a job that conflicts with the order of the chain."""
    living = [a for a in state.attempts if a.is_alive and not a.withdrawn]
    for late in living[1:]:
        first = living[0]
        if first.is_pending and first.job_id and late.is_running:
            return _withdrawn(state, first, f"it was requeued while link {late.link} runs and continues the work")
        if first.is_pending and late.is_pending and not late.after:
            return _withdrawn(state, late, f"its predecessor, link {first.link}, was requeued and is pending again")
        if first.is_running and late.is_running and late.start_s is not None:
            early_s = (first.end_s or late.start_s) - late.start_s
            if early_s > rules.most_overlap_s and _withdrawals(state, late.link) < MOST_WITHDRAWALS:
                why = f"it started {early_s / 3600:.2f} h before the end of link {first.link}"
                return _withdrawn(state, late, f"{why}; allowed: {rules.most_overlap_s / 3600:g} h")
    if len(living) == 1 and _waits_in_vain(living[0]):
        return _withdrawn(state, living[0], "its predecessor has ended, but its dependency would keep it waiting")
    return state


def _waits_in_vain(attempt: LinkAttempt) -> bool:
    """Whether a job whose predecessor has ended still waits for its dependency."""
    never = attempt.reason == "DependencyNeverSatisfied"
    return attempt.is_pending and (never or (attempt.reason == "Dependency" and attempt.after.startswith("after:")))


def _with_next(rules: ChainRules, state: ChainState, now_s: int, advice: Advice | None) -> ChainState:
    """Return the state, with an intended submission of the next link if one is due."""
    living = [a for a in state.attempts if a.is_alive]
    link = next_link(rules, state)
    if link is None or not _may_submit(state, now_s) or any(a.withdrawn for a in living):
        return state
    if not living:
        return _intended(rules, state, now_s, "")
    running = living[0]
    if len(living) > 1 or not running.is_running:
        return state
    if _left_s(running, now_s) <= rules.last_s or (advice and advice.submit and advice.for_end):
        return _intended(rules, state, now_s, f"afterany:{running.job_id}")
    if advice is None or not advice.submit:
        return state
    if _withdrawals(state, link) == 0 or math.isinf(rules.most_overlap_s):
        return _intended(rules, state, now_s, "")
    held_s = (running.end_s or now_s) - (running.start_s or now_s) - rules.most_overlap_s
    minutes = max(0, -int(-held_s // 60))  # Slurm itself then enforces the bound on overlap
    return _intended(rules, state, now_s, f"after:{running.job_id}" + (f"+{minutes}" if minutes else ""))


def _intended(rules: ChainRules, state: ChainState, now_s: int, after: str) -> ChainState:
    link = next_link(rules, state)
    assert link is not None
    number = 1 + sum(a.link == link for a in state.attempts)
    attempt = LinkAttempt(link, number, state.job_name(link, number), now_s, after)
    return replace(state, attempts=(*state.attempts, attempt))


def _withdrawn(state: ChainState, attempt: LinkAttempt, why: str) -> ChainState:
    return replace(state, attempts=tuple(replace(a, withdrawn=why) if a is attempt else a for a in state.attempts))


def _withdrawals(state: ChainState, link: int) -> int:
    return sum(bool(a.withdrawn) for a in state.attempts if a.link == link)


def _may_submit(state: ChainState, now_s: int) -> bool:
    """Whether the pause after failed submissions is over: 1, 2, 4 ... min, at most 10 min."""
    refusals = _refusals(state)
    return not refusals or now_s >= state.attempts[-1].intended_s + min(60 * 2 ** min(refusals - 1, 4), 600)


def _left_s(running: LinkAttempt, now_s: int) -> float:
    return (running.end_s or now_s) - now_s


def _instant(rules: ChainRules, running: LinkAttempt, now_s: int) -> str:
    """Name the latest decision instant: the link, its start, and the number of intervals since then."""
    start_s = running.start_s or now_s
    return f"{running.name}:{start_s}:{(now_s - start_s) // rules.decide_every_s}"
