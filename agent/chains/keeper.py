"""One cycle of a chain as pure functions: from observations to the next state and the actions.

`look.absorb` updates the state with what Slurm shows. `question` returns the link whose successor the policy should
decide on. `act` decides what to submit, signal and cancel. Nothing here reads a clock, a file or a cluster.
docs/agent.md explains the rules and their reasons.

A chain keeps one running link, and queues at most `ChainRules.ahead` more: one, or two for a chain that plans.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from agent.chains.links import ChainRules, chain_verdict, next_link, refusals
from agent.chains.state import GOING, NOT_LAUNCHED, OVER, ChainState, LinkAsk, LinkAttempt
from agent.slurm.queue import is_launch_held

MOST_WITHDRAWALS = 2  # attempts of one link that may be withdrawn for starting too early
BLIND_S = 1800  # after this long without a good look, the successor is submitted for the predecessor's end
SEEN_S = 30  # a link takes over once it has run this long: a node that cannot launch it shows sooner


@dataclass(frozen=True)
class Advice:
    """The decision at a decision instant. for_end: submit now, to start after the predecessor has ended."""

    submit: bool
    for_end: bool = False
    ask: LinkAsk | None = None  # as `SubmitDecision.ask`


@dataclass(frozen=True)
class Submit:
    """Submit the job of this attempt, which the state already contains."""

    name: str


@dataclass(frozen=True)
class Signal:
    """Send the job of this attempt the signal on which it saves and ends; repeated until it is known to be sent."""

    name: str


@dataclass(frozen=True)
class Cancel:
    """Cancel the job of this attempt; repeated each cycle until the job is gone."""

    name: str


Action = Submit | Signal | Cancel


def question(rules: ChainRules, state: ChainState, now_s: int) -> LinkAttempt | None:
    """Return the running link on whose successor the policy should decide now; None if there is no decision due."""
    if state.status != GOING or chain_verdict(rules, state):
        return None
    serving, queued = _serving(rules, state)
    if serving is None or next_link(rules, state) is None or (_is_last(rules, serving, now_s) and not rules.hands_over):
        return None
    return serving if _instant(rules, serving, queued, now_s) != state.decided else None


def begins(rules: ChainRules, state: ChainState, now_s: int) -> bool:
    """Whether a link is due although none runs or waits: the first one, or one after an interruption."""
    is_idle = state.status == GOING and not any(a.is_alive and not a.handed_to for a in state.attempts)
    is_due = is_idle and rules.room > 0 and _may_submit(state, now_s)
    return is_due and chain_verdict(rules, state) is None and next_link(rules, state) is not None


def act(
    rules: ChainRules, state: ChainState, now_s: int, advice: Advice | None = None
) -> tuple[ChainState, tuple[Action, ...]]:
    """Return the state after this cycle and the actions in order. Save the state before executing the actions."""
    before, asked = state, question(rules, state, now_s) if advice is not None else None
    decided = state.decided if asked is None else _instant(rules, asked, _serving(rules, state)[1], now_s)
    over = chain_verdict(rules, state) if state.status == GOING else None
    if over is not None:
        status, why, link = over
        state = replace(state, status=status, why=why)
        for attempt in [a for a in state.attempts if a.is_alive and not a.withdrawn]:
            if attempt.link > link or attempt.is_pending or attempt.handed_to:
                state = _withdrawn(state, attempt, f"{OVER}: {why}")
    if state.status == GOING:
        state = _corrected(rules, state, now_s)
        state = _with_next(rules, state, now_s, advice)
    state = replace(state, decided=decided)
    return state, _actions(rules, before, state, now_s)


def act_blind(
    rules: ChainRules, state: ChainState, now_s: int, blind_s: float
) -> tuple[ChainState, tuple[Action, ...]]:
    """Act when Slurm takes calls but its answers are unusable: queue the successor for the predecessor's end."""
    serving, queued = _serving(rules, state)
    if state.status == GOING and serving is not None and not queued:
        is_due = blind_s >= BLIND_S or _is_last(rules, serving, now_s)
        if is_due and _may_submit(state, now_s) and next_link(rules, state) is not None:
            after = _intended(rules, state, now_s, f"afterany:{serving.job_id}")
            return after, _submissions(state, after)
    return state, ()


def is_over(state: ChainState) -> bool:
    """Whether nothing is left to do: the chain has ended and every cancelled job is gone."""
    return state.status != GOING and not any(a.is_alive and a.withdrawn for a in state.attempts)


def _serving(rules: ChainRules, state: ChainState) -> tuple[LinkAttempt | None, list[LinkAttempt]]:
    """Return the one running link, if another may be queued, and the queued ones; None if not all is as it should be.

    Links that are being ended for a newer one do not count.
    """
    living = [a for a in state.attempts if a.is_alive and not a.handed_to]
    running, queued = [a for a in living if a.is_running], [a for a in living if a.is_queued]
    is_settled = len(running) == 1 and len(living) == 1 + len(queued) and not any(a.withdrawn for a in living)
    return (running[0] if is_settled and len(queued) < min(rules.ahead, rules.room) else None), queued


def _actions(rules: ChainRules, before: ChainState, after: ChainState, now_s: int) -> tuple[Action, ...]:
    """Return what follows from the state: links that are withdrawn or handed over end, those that are new begin."""
    ends: list[Action] = []
    takes_over = any(a.is_running and not a.handed_to and not a.withdrawn for a in after.attempts)
    for attempt in after.attempts:
        if not attempt.is_alive or not attempt.job_id:
            continue
        if attempt.withdrawn or (attempt.handed_to and attempt.is_pending):
            ends.append(Cancel(attempt.name))
        elif attempt.handed_to and (takes_over or attempt.signalled_s is not None):
            if rules.signals and attempt.signalled_s is None:
                ends.append(Signal(attempt.name))
            elif not rules.signals or now_s >= (attempt.signalled_s or now_s) + rules.save_s:
                ends.append(Cancel(attempt.name))
    return (*ends, *_submissions(before, after))


def _submissions(before: ChainState, after: ChainState) -> tuple[Action, ...]:
    return tuple(Submit(a.name) for a in after.attempts[len(before.attempts) :])


def _corrected(rules: ChainRules, state: ChainState, now_s: int) -> ChainState:
    """Withdraw jobs that conflict with the order of the chain, and hand over to a link that runs."""
    living = [a for a in state.attempts if a.is_alive and not a.withdrawn and not a.handed_to]
    for held in [a for a in living if a.is_queued and is_launch_held(a.reason)]:
        return _withdrawn(state, held, NOT_LAUNCHED)
    pending = [a for a in living if a.is_pending]
    corrected = _handed_over(rules, state, living, now_s) if rules.hands_over else _in_order(rules, state, living)
    if corrected is not state:
        return corrected
    if len(pending) > rules.ahead and not pending[-1].after:
        why = "too many links are queued" if rules.hands_over else "its predecessor was requeued and is pending again"
        return _withdrawn(state, pending[-1], why)
    if len(living) == 1 and _waits_in_vain(living[0]):
        return _withdrawn(state, living[0], "its predecessor has ended, but its dependency would keep it waiting")
    return state


def _in_order(rules: ChainRules, state: ChainState, living: list[LinkAttempt]) -> ChainState:
    """Let links run one after the other, with no more than the allowed overlap."""
    for late in living[1:]:
        first = living[0]
        if first.is_pending and first.job_id and late.is_running:
            return _withdrawn(state, first, f"it was requeued while link {late.link} runs and continues the work")
        if first.is_running and late.is_running and late.start_s is not None:
            early_s = (first.end_s or late.start_s) - late.start_s
            if early_s > rules.most_overlap_s and _withdrawals(state, late.link) < MOST_WITHDRAWALS:
                why = f"it started {early_s / 3600:.2f} h before the end of link {first.link}"
                return _withdrawn(state, late, f"{why}; allowed: {rules.most_overlap_s / 3600:g} h")
    return state


def _handed_over(rules: ChainRules, state: ChainState, living: list[LinkAttempt], now_s: int) -> ChainState:
    """Let the running link that can do most work, which ends last if all have the same nodes, go on alone.

    It must have run for SEEN_S.

    One that ends within two cycles, or has got its signal from Slurm, is left alone.
    """
    running = [a for a in living if a.is_running]
    kept = max(running, key=lambda a: rules.speed(a) * ((a.end_s or 0) - now_s), default=None)
    if kept is None or now_s < (kept.start_s or now_s) + SEEN_S:
        return state
    ending_s = now_s + max(rules.last_s, rules.save_s)
    for other in [a for a in running if a is not kept and (a.end_s or 0) > ending_s]:
        if (other.start_s or 0) <= (kept.start_s or 0):
            state = _changed(state, other, handed_to=kept.name)
        else:
            state = _withdrawn(state, other, f"it would do less than link {kept.link}")
    return state


def _waits_in_vain(attempt: LinkAttempt) -> bool:
    """Whether a job whose predecessor has ended still waits for its dependency."""
    never = attempt.reason == "DependencyNeverSatisfied"
    return attempt.is_pending and (never or (attempt.reason == "Dependency" and attempt.after.startswith("after:")))


def _with_next(rules: ChainRules, state: ChainState, now_s: int, advice: Advice | None) -> ChainState:
    """Return the state, with an intended submission of the next link if one is due."""
    ask = None if advice is None else advice.ask
    if begins(rules, state, now_s):
        return _intended(rules, state, now_s, "", ask)
    link, (serving, queued) = next_link(rules, state), _serving(rules, state)
    if link is None or serving is None or not _may_submit(state, now_s):
        return state
    is_last = _is_last(rules, serving, now_s) and not queued
    if is_last and advice and ask:  # a plan for now, whatever moment it would choose
        return _intended(rules, state, now_s, "", ask)
    if is_last or (advice and advice.submit and advice.for_end and not queued):
        return _intended(rules, state, now_s, f"afterany:{serving.job_id}", ask)
    if advice is None or not advice.submit or advice.for_end:
        return state
    if rules.hands_over or _withdrawals(state, link) == 0 or math.isinf(rules.most_overlap_s):
        return _intended(rules, state, now_s, "", ask)
    held_s = (serving.end_s or now_s) - (serving.start_s or now_s) - rules.most_overlap_s
    minutes = max(0, -int(-held_s // 60))  # Slurm itself then enforces the bound on overlap
    return _intended(rules, state, now_s, f"after:{serving.job_id}" + (f"+{minutes}" if minutes else ""), ask)


def _intended(rules: ChainRules, state: ChainState, now_s: int, after: str, ask: LinkAsk | None = None) -> ChainState:
    link = next_link(rules, state)
    assert link is not None
    number = 1 + sum(a.link == link for a in state.attempts)
    attempt = LinkAttempt(link, number, state.job_name(link, number), now_s, after, **vars(ask or LinkAsk()))
    return replace(state, attempts=(*state.attempts, attempt))


def _withdrawn(state: ChainState, attempt: LinkAttempt, why: str) -> ChainState:
    return _changed(state, attempt, withdrawn=why)


def _changed(state: ChainState, attempt: LinkAttempt, **values: str) -> ChainState:
    changed = replace(attempt, **values)  # type: ignore[arg-type]
    return replace(state, attempts=tuple(changed if a is attempt else a for a in state.attempts))


def _withdrawals(state: ChainState, link: int) -> int:
    return sum(bool(a.withdrawn) for a in state.attempts if a.link == link)


def _may_submit(state: ChainState, now_s: int) -> bool:
    """Whether the pause after failed submissions is over: 1, 2, 4 ... min, at most 10 min."""
    refused = refusals(state)
    return not refused or now_s >= state.attempts[-1].intended_s + min(60 * 2 ** min(refused - 1, 4), 600)


def _is_last(rules: ChainRules, running: LinkAttempt, now_s: int) -> bool:
    """Whether the next cycle may come after the end of a running link."""
    return (running.end_s or now_s) - now_s <= rules.last_s


def _instant(rules: ChainRules, running: LinkAttempt, queued: list[LinkAttempt], now_s: int) -> str:
    """Name the latest decision instant: the link, its start, the number of intervals since then, the links queued."""
    start_s = running.start_s or now_s
    ahead = f"+{len(queued)}" if queued else " last" if _is_last(rules, running, now_s) else ""
    return f"{running.name}:{start_s}:{(now_s - start_s) // rules.decide_every_s}{ahead}"
