"""A chain as text: a table of its jobs and a timeline."""

from __future__ import annotations

from datetime import UTC, datetime

from agent.chains.journal import handovers
from agent.chains.state import ChainState, LinkAttempt
from traces.counted import counted
from traces.units import HOUR_S
from traces.visible import visible

WIDTH = 60  # characters of the timeline
COLUMNS = ("link", "job", "state", "submitted", "started", "ended", "")


def table(state: ChainState, now_s: int) -> str:
    """Format the chain as a table and a timeline; times are UTC."""
    head = f"chain {state.name} ({state.chain}): {state.status}" + (f", {state.why}" if state.why else "")
    lines = [visible(head), f"script {visible(state.script)}, {counted(state.links, 'link')}"]
    lines += [f"the number of nodes is fixed: {visible(state.fixed_nodes)}"] if state.fixed_nodes else []
    if not state.attempts:
        return "\n".join([*lines, "nothing submitted yet"])
    rows = [COLUMNS, *(_row(attempt) for attempt in state.attempts)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    lines += [" ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    for run in handovers(state).values():
        lines.append(
            f"link {run['link']} to {run['next_link']}: {run['interruption_h']:.2f} h interruption, "
            f"{run['overlap_h']:.2f} h overlap"
        )
    return "\n".join([*lines, *timeline(state, now_s)])


def timeline(state: ChainState, now_s: int) -> list[str]:
    """Draw one bar per job on a common time scale: `.` waiting, `#` running."""
    first_s = min(_submit_s(attempt) for attempt in state.attempts)
    last_s = max([now_s if any(a.is_alive for a in state.attempts) else 0, *(a.end_s or 0 for a in state.attempts)])
    span_s = max(last_s - first_s, 1)
    lines = [f"{_time(first_s)} to {_time(first_s + span_s)}, . waits, # runs"]
    for attempt in state.attempts:
        end_s = attempt.end_s if not attempt.is_alive and attempt.end_s is not None else now_s
        start_s = attempt.start_s if attempt.start_s is not None else end_s
        begin, run, end = (
            min(max(round((at - first_s) / span_s * WIDTH), 0), WIDTH) for at in (_submit_s(attempt), start_s, end_s)
        )
        run, end = max(run, begin), max(end, run, begin)
        bar = " " * begin + "." * (run - begin) + "#" * (end - run)
        lines.append(f"{attempt.link:>4}.{attempt.number} |{bar:{WIDTH}}|")
    return lines


def _row(attempt: LinkAttempt) -> tuple[str, ...]:
    if attempt.how:
        state = attempt.how
    elif not attempt.job_id:
        state = "not yet known to Slurm"
    else:
        state = "PENDING" if attempt.is_pending else "RUNNING"
    handed = f"handed over to {attempt.handed_to}" if attempt.handed_to else ""
    why = attempt.withdrawn or handed or (attempt.reason if attempt.is_pending and attempt.is_alive else "")
    limit = "" if attempt.limit_s is None else f"limit {attempt.limit_s / HOUR_S:g} h"
    nodes = "" if attempt.nodes is None else counted(attempt.nodes, "node")
    note = "; ".join(filter(None, (limit, nodes, attempt.qos and f"QOS {attempt.qos}", why)))
    end_s = None if attempt.is_alive else attempt.end_s
    times = (_time(attempt.submit_s), _time(attempt.start_s), _time(end_s))
    cells = (f"{attempt.link}.{attempt.number}", attempt.job_id or "-", state, *times, note)
    return tuple(visible(cell) for cell in cells)


def _submit_s(attempt: LinkAttempt) -> int:
    return attempt.submit_s or attempt.intended_s


def _time(at_s: int | None) -> str:
    return "-" if at_s is None else datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M:%S")
