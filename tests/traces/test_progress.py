"""How far a long computation is: a line now and then where standard error is no terminal."""

from __future__ import annotations

import pytest

from traces import progress


def test_a_line_says_how_many_are_done_and_how_long_the_rest_takes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rate is that since the first word: 100 in 10 s, so the remaining 1,850 take 185 s."""
    for each in (False, True):
        seconds = iter([950.0, 1000.0, 1002.0, 1010.0])
        monkeypatch.setattr(progress, "monotonic", seconds.__next__)
        with progress.Progress("slurm", 2000, "jobs", stays=False, each=each) as bar:
            for count in (50, 60, 150):
                bar.reach(count)
        shown = capsys.readouterr()
        cost = ", 0.100 s each" if each else ""
        assert shown.err == f"  slurm; 150 of 2,000 jobs{cost}, about 185 s left\n" and shown.out == ""


def test_a_short_computation_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.Progress("slurm", 2, "jobs", stays=False) as bar:
        bar.reach(1)
        bar.reach(2)
    shown = capsys.readouterr()
    assert shown.err == shown.out == ""


def test_steps_are_named_and_counted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The second of four steps ends 8 s after the beginning, so the other two take 8 s."""
    seconds = iter([100.0, 104.0, 108.0])
    monkeypatch.setattr(progress, "monotonic", lambda: next(seconds))
    with progress.Progress("training", 4) as bar:
        bar.advance("forest, seed 1")
        bar.advance("forest, seed 2")
    assert "  forest, seed 2; 2 of 4, about 8 s left\n" in capsys.readouterr().err
