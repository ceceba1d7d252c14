"""What the ends of a chain's links mean: which link comes next, and when the chain is over."""

from __future__ import annotations

from dataclasses import dataclass

from agent.chains.state import ChainState, LinkAttempt
from traces.counted import counted

MOST_AGAIN = 10  # attempts in a row that may end by no fault of their own
MOST_REFUSALS = 100  # submissions in a row that may be refused
LOST_SLACK_S = 120
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


def refusals(state: ChainState) -> int:
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
    if refusals(state) >= MOST_REFUSALS:
        return "failed", f"none of {MOST_REFUSALS} submissions in a row became a job", last.link if last else 0
    if last and next_link(rules, state) is None and not any(a.is_alive for a in attempts):
        return "done", f"all {counted(rules.links, 'link', 'is')} used", last.link
    return None
