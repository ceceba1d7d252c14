"""Figures of an agent for Prometheus, by hand."""

from __future__ import annotations

from agent.chains.metrics import exposition
from agent.chains.state import ChainState, LinkAttempt
from tests.agent.fake_slurm import START_S


def test_figures_are_in_base_units() -> None:
    def ran(link: int, from_h: float, until_h: float) -> LinkAttempt:
        start_s, end_s = (START_S + int(3600 * at_h) for at_h in (from_h, until_h))
        return LinkAttempt(
            link, 1, f"t-{link}.1", START_S, job_id=str(link), submit_s=START_S, start_s=start_s, end_s=end_s,
            is_pending=False, how="TIMEOUT",
        )  # fmt: skip

    attempts = ran(1, 0, 2), ran(2, 7, 12), ran(3, 8, 14)
    text = exposition(
        ChainState("00000000", "t", "/j.sh", 5, attempts), {"squeue": 9, "sbatch": 3}, 2, START_S + 0.6, is_blind=True
    )
    found = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert found == {
        'baton_chain_links{chain="t"}': "5",
        'baton_chain_link{chain="t"}': "3",
        'baton_chain_status{chain="t",status="going"}': "1",
        'baton_chain_status{chain="t",status="done"}': "0",
        'baton_chain_status{chain="t",status="failed"}': "0",
        'baton_chain_status{chain="t",status="cancelled"}': "0",
        'baton_chain_attempts_total{chain="t"}': "3",
        'baton_chain_interruption_seconds_total{chain="t"}': "18000",
        'baton_chain_overlap_seconds_total{chain="t"}': "14400",
        'baton_agent_slurm_calls_total{chain="t",program="sbatch"}': "3",
        'baton_agent_slurm_calls_total{chain="t",program="squeue"}': "9",
        'baton_agent_slurm_failures_total{chain="t"}': "2",
        'baton_agent_blind{chain="t"}': "1",
        'baton_agent_last_look_timestamp_seconds{chain="t"}': str(START_S + 1),
    }
