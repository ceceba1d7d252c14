"""What the ends of a chain's links mean: which link comes next, and when the chain is over."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from agent.chains.state import NOT_LAUNCHED, ChainState, LinkAttempt
from traces.counted import counted

MOST_AGAIN = 10  # attempts in a row that may end by no fault of their own
MOST_REFUSALS = 100  # submissions in a row that may be refused
LOST_SLACK_S = 120
MEASURED = 5  # last links that a measured restart cost is of
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
    ahead: int = 1  # most links queued at once
    room: int = 1 << 31  # links that may be queued now: what Slurm's and the administrator's limits leave
    hands_over: bool = False  # ends the older link when the newer one runs, however early it starts
    signals: bool = False  # the script asks for a signal (#SBATCH --signal) to save; else it gets SIGTERM
    save_s: int = 0  # from that signal to the cancellation
    wanted_s: int | None = None  # work after which no further link is submitted
    restart_s: int = 0  # of a link after the first, lost in saving and loading
    nodes: int = 1  # of the script
    scaling: float = 1.0  # as `Chain.scaling`

    @property
    def last_s(self) -> float:
        """Remaining time of a predecessor below which the next cycle may come too late."""
        return 2 * self.cycle_s

    def speed(self, attempt: LinkAttempt) -> float:
        """The work that a link does in an hour."""
        return 1.0 if attempt.nodes is None else min(attempt.nodes / self.nodes, 1.0) ** self.scaling


def outcome(rules: ChainRules, attempt: LinkAttempt) -> str:
    """Classify an attempt: alive, void, on (the next link follows), done, failed, again or cancelled."""
    if attempt.is_alive:
        return "alive"
    if attempt.never_was:
        return "void"
    if attempt.handed_to:
        return "on"
    if attempt.withdrawn == NOT_LAUNCHED:
        return "again"
    if attempt.how == "COMPLETED":
        return "on" if attempt.has_more else "done"
    if attempt.how == "TIMEOUT" or (attempt.how == "FAILED" and attempt.exit_status == rules.more_status):
        return "on"
    if attempt.how == "LOST":
        ran_s = attempt.end_s - attempt.start_s if attempt.start_s and attempt.end_s else 0
        return "on" if ran_s >= (attempt.limit_s or rules.limit_s) - LOST_SLACK_S else "failed"
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
    is_needed = rules.wanted_s is None or promised_s(rules, attempts) < rules.wanted_s
    return link if link <= rules.links and is_needed else None


def promised_s(rules: ChainRules, attempts: list[LinkAttempt]) -> int:
    """Return the work that these attempts have done and will do until their limits, s. Overlap counts once."""
    until_s = work_s = 0
    starts_s = {a.name: a.start_s for a in attempts}
    for attempt in sorted((a for a in attempts if a.ran), key=lambda a: a.start_s or 0):
        begin_s, end_s = max(attempt.start_s or 0, until_s), attempt.end_s or 0
        if attempt.is_alive and attempt.handed_to:
            end_s = attempt.signalled_s or starts_s.get(attempt.handed_to) or end_s
        if end_s > begin_s:
            work_s += round(rules.speed(attempt) * max(end_s - begin_s - (rules.restart_s if until_s else 0), 0))
            until_s = end_s
    queued = [a for a in attempts if a.is_alive and a.start_s is None]
    queued_s = [rules.speed(a) * ((a.least_s or a.limit_s or rules.limit_s) - rules.restart_s) for a in queued]
    return work_s + round(sum(queued_s))


def measured_restart_s(state: ChainState) -> int | None:
    """Return the restart cost by the last links: medians of the times until they had resumed, and of saving, s.

    None if no link after the first has printed when it had resumed.
    """
    ran = [attempt for attempt in real(state) if attempt.ran]
    resumed_s = [attempt.resumed_s for attempt in ran[1:] if attempt.resumed_s is not None]
    saved_s = [attempt.saved_s for attempt in ran if attempt.saved_s is not None] or [0]
    return round(median(resumed_s[-MEASURED:]) + median(saved_s[-MEASURED:])) if resumed_s else None


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


def chain_verdict(rules: ChainRules, state: ChainState) -> tuple[str, str, int] | None:
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
        causes = f"{', '.join(NO_FAULT)} or were never launched"
        return "failed", f"more than {MOST_AGAIN} attempts in a row ended by {causes}", last.link
    if refusals(state) >= MOST_REFUSALS:
        return "failed", f"none of {MOST_REFUSALS} submissions in a row became a job", last.link if last else 0
    if last and next_link(rules, state) is None and not any(a.is_alive for a in attempts):
        is_used = last.link + (outcome(rules, last) == "on") > rules.links
        why = f"all {counted(rules.links, 'link', 'is')} used" if is_used else "the wanted work is done"
        return "done", why, last.link
    return None
