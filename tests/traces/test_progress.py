"""What long work says of itself where no terminal is."""

from __future__ import annotations

import pytest

from traces import progress


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_a_line_every_so_often_with_the_time_left(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with progress.shown("pairs", 100) as advance_to:
        for second in range(60):
            clock[0] = 100.0 + second
            advance_to(second)
    assert capsys.readouterr().err.splitlines() == [
        "    pairs: 15 of 100, about 85 s left",
        "    pairs: 30 of 100, about 70 s left",
        "    pairs: 45 of 100, about 55 s left",
    ]


def test_short_work_says_nothing(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with progress.shown("pairs", 3) as advance_to:
        for done in range(4):
            advance_to(done)
            clock[0] += 0.5
    assert capsys.readouterr().err == ""


def test_a_terminal_shows_a_bar(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: True, raising=False)
    watch = progress._Watch("pairs", 10)
    clock[0] += 5
    watch.at(4)
    assert watch.bar is not None and watch.bar.tasks[0].completed == 4
    watch.close()
