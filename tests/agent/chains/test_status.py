"""What a person reads of a chain: the table, the timeline, and the reason of a decision."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent import cli
from agent.chains import status
from agent.chains.decide import ReleasedPolicy
from agent.chains.state import ChainState, LinkAttempt
from tests.agent.fake_slurm import START_S
from tests.agent.lab import artifact, lab_of


def test_status_shows_jobs_handovers_and_a_timeline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert cli.main(["status"]) == 2
    lab = lab_of(tmp_path / "lab", links=2)
    lab.folder.path = tmp_path / "baton-agent" / "train"
    lab.run()
    assert cli.main(["status"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("chain train (") and shown[0].endswith("): done, all 2 links are used")
    assert [line.split()[:3] for line in shown[3:5]] == [["1.1", "100", "TIMEOUT"], ["2.1", "101", "TIMEOUT"]]
    assert "link 1 to 2: 0.00 h interruption, 0.50 h overlap" in shown
    first, second = shown[-2:]
    assert first.count("#") == pytest.approx(60 * 2 / 3.5, abs=1) and second.count(" #") == 1
    assert first.index("#") < second.index("#") < first.rindex("#") < second.rindex("#")
    assert cli.main(["status", "--state", str(lab.folder.path)]) == 0


def test_status_of_what_waits_and_what_nobody_knows_yet() -> None:
    waiting = LinkAttempt(1, 1, "t-00000000-1.1", START_S, job_id="7", submit_s=START_S, reason="JobHeldUser\x1b[2J")
    state = ChainState("00000000", "t", "/j.sh", 2, (waiting, LinkAttempt(2, 1, "n", START_S)))
    text = status.table(state, START_S + 3600)
    assert "PENDING" in text and "\\x1b" in text and "\x1b" not in text and "not yet known to Slurm" in text
    assert "." * 60 in text


def test_nothing_of_a_state_reaches_the_terminal_raw() -> None:
    raw = "\x1b]0;x\x07"
    attempt = LinkAttempt(1, 1, raw, START_S, raw, raw, START_S, START_S, START_S, raw, False, raw, raw)
    state = ChainState(raw, raw, raw, 2, (attempt,), raw, raw, raw)
    assert "\x1b" not in status.table(state, START_S) and "\x07" not in status.table(state, START_S)


def test_the_policy_says_why_in_words(tmp_path: Path) -> None:
    policy = ReleasedPolicy(artifact(tmp_path / "released"))
    observed = {"remaining_h": 0.4, "start_estimate_h": 3.0, "start_estimate_expected_h": 1.25}
    decision = policy.decide(observed)
    assert decision.submit and decision.score == pytest.approx(0.1)
    assert decision.reason == (
        "lead, lead, h = 0.5 submits, score +0.10; 0.40 h left, predicted wait 1.25 to 3.00 h "
        "(from expected run times and from limits)"
    )
