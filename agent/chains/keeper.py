"""One cycle of a chain as pure functions: from observations to the next state and the actions.

`look.absorb` updates the state with what Slurm shows. `question` returns the link whose successor the policy should
decide on. `act` decides what to submit and cancel. Nothing here reads a clock, a file or a cluster. docs/agent.md
explains the rules and their reasons.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from agent.chains.links import ChainRules, next_link, refusals, verdict
from agent.chains.state import GOING, ChainState, LinkAttempt

MOST_WITHDRAWALS = 2  # attempts of one link that may be withdrawn for starting too early
BLIND_S = 1800  # after this long without a good look, the successor is submitted for the predecessor's end


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
    refused = refusals(state)
    return not refused or now_s >= state.attempts[-1].intended_s + min(60 * 2 ** min(refused - 1, 4), 600)


def _left_s(running: LinkAttempt, now_s: int) -> float:
    return (running.end_s or now_s) - now_s


def _instant(rules: ChainRules, running: LinkAttempt, now_s: int) -> str:
    """Name the latest decision instant: the link, its start, and the number of intervals since then."""
    start_s = running.start_s or now_s
    return f"{running.name}:{start_s}:{(now_s - start_s) // rules.decide_every_s}"
