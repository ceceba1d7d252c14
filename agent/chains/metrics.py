"""Metrics of an agent in Prometheus' text format, for the textfile collector of node_exporter."""

from __future__ import annotations

from collections.abc import Mapping

from agent.chains.journal import handovers
from agent.chains.state import ChainState


def exposition(state: ChainState, calls: Mapping[str, int], failures: int, last_look_s: float, is_blind: bool) -> str:
    """Format the metrics file. Names follow Prometheus: base units, and `_total` for counters."""
    label = f'chain="{state.name}"'
    runs = handovers(state).values()
    link = max((a.link for a in state.attempts if a.start_s is not None), default=0)
    lines = [
        *_metric("baton_chain_links", "gauge", "Maximum number of links of the chain.", {label: state.links}),
        *_metric("baton_chain_link", "gauge", "Highest link that has started.", {label: link}),
        *_metric(
            "baton_chain_status", "gauge", "1 for the current status of the chain, else 0.",
            {f'{label},status="{s}"': int(s == state.status) for s in ("going", "done", "failed", "cancelled")},
        ),
        *_metric("baton_chain_attempts_total", "counter", "Attempted job submissions.", {label: len(state.attempts)}),
        *_metric(
            "baton_chain_interruption_seconds_total", "counter", "Time between links while none ran.",
            {label: round(sum(run["interruption_h"] for run in runs) * 3600)},
        ),
        *_metric(
            "baton_chain_overlap_seconds_total", "counter", "Time during which two links held nodes.",
            {label: round(sum(run["overlap_h"] for run in runs) * 3600)},
        ),
        *_metric(
            "baton_agent_slurm_calls_total", "counter", "Calls of Slurm's commands since the agent started.",
            {f'{label},program="{program}"': count for program, count in sorted(calls.items())},
        ),
        *_metric("baton_agent_slurm_failures_total", "counter", "Failed looks at Slurm.", {label: failures}),
        *_metric("baton_agent_blind", "gauge", "1 while Slurm gives no usable answer.", {label: int(is_blind)}),
        *_metric(
            "baton_agent_last_look_timestamp_seconds", "gauge", "Time of the last successful look at Slurm.",
            {label: round(last_look_s)},
        ),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _metric(name: str, kind: str, text: str, values: Mapping[str, int]) -> list[str]:
    samples = [f"{name}{{{labels}}} {value}" for labels, value in values.items()]
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}", *samples]
