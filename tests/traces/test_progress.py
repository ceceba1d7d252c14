"""How far a long computation is: a line now and then where standard error is no terminal."""

from __future__ import annotations

import pytest

from traces import progress


def test_a_line_says_how_many_are_done_and_how_long_the_rest_takes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rate is that since the first word: 100 in 100 s, so the remaining 1,850 take 1,850 s."""
    for each in (False, True):
        seconds = iter([950.0, 1000.0, 1020.0, 1100.0])
        monkeypatch.setattr(progress, "monotonic", seconds.__next__)
        with progress.Progress("slurm", 2000, "jobs", stays=False, each=each) as bar:
            for count in (50, 60, 150):
                bar.reach(count)
        shown = capsys.readouterr()
        cost = ", 1.000 s each" if each else ""
        assert shown.err == f"  slurm; 150 of 2,000 jobs{cost}, about 1,850 s left\n" and shown.out == ""


def test_a_short_computation_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.Progress("slurm", 2, "jobs", stays=False) as bar:
        bar.reach(1)
        bar.reach(2)
    shown = capsys.readouterr()
    assert shown.err == shown.out == ""


def test_steps_are_named_and_counted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The second of four steps ends 40 s after the beginning, so the other two take 40 s."""
    seconds = iter([100.0, 120.0, 140.0])
    monkeypatch.setattr(progress, "monotonic", lambda: next(seconds))
    with progress.Progress("training", 4) as bar:
        bar.advance("forest, seed 1")
        bar.advance("forest, seed 2")
    assert "  forest, seed 2; 2 of 4, about 40 s left\n" in capsys.readouterr().err


def test_a_line_for_a_file_is_not_wrapped(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    seconds = iter([100.0, 140.0])
    monkeypatch.setattr(progress, "monotonic", lambda: next(seconds))
    with progress.Progress("x", 4) as bar:
        bar.advance("simulating the pairs of a very large cluster with a name that is long")
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("  simulating") and ";" in line]
    assert line.endswith("1 of 4, about 120 s left")
