"""How far a long computation is: a line now and then where standard error is no terminal."""

from __future__ import annotations

import pytest

from pipelines import waiting


def test_a_line_says_how_many_are_done_and_how_long_the_rest_takes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rate is that since the first word: 100 in 10 s, so the remaining 1,850 take 185 s."""
    seconds = iter([1000.0, 1002.0, 1010.0])
    monkeypatch.setattr(waiting, "monotonic", lambda: next(seconds))
    with waiting.Waiting("slurm", 2000, "jobs") as bar:
        for count in (50, 60, 150):
            bar.reach(count)
    shown = capsys.readouterr()
    assert shown.err == "slurm: 150 of 2,000 jobs, about 185 s left\n" and shown.out == ""


def test_a_short_computation_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with waiting.Waiting("slurm", 2, "jobs") as bar:
        bar.reach(1)
        bar.reach(2)
    shown = capsys.readouterr()
    assert shown.err == shown.out == ""
