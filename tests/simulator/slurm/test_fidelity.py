"""The `slurm` scheduler against recorded runs of real Slurms (tests/live/fidelity.py recorded them).

docs/fidelity.md has the figures (make fidelity prints them) and says what the rest is. The limits are the targets where
they are met, and elsewhere what is reached with a margin for changes of a second; they may only be tightened.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.live import figures, recording

FOLDERS = sorted(figures.RECORDINGS.glob("*/*"))
every_recording = pytest.mark.parametrize("folder", FOLDERS, ids=figures.named)


@every_recording
def test_one_step(folder: Path) -> None:
    """From the recorded state before each start the same job starts within a backfill interval: target 95 % of cases.

    A scheduler that starts everything at once would pass that; so what it starts too early is counted as well.
    """
    steps = figures.steps(recording.world(folder, recording.read(folder)))
    assert len(steps.job) >= 1000
    assert steps.share >= 0.96
    assert steps.unmatched_share <= 0.06


@every_recording
def test_free_run(folder: Path) -> None:
    """Given submissions and run times alone: Spearman at least .95, mean wait within 5 % (reached: 6 %).

    The mean of runs whose run times differ by a second, since one run alone is a draw of 2 % (sd).
    """
    runs, pairs = figures.repeated(recording.world(folder, recording.read(folder)))
    assert all(run["only_recorded"] == 0 and run["jobs"] >= 1000 for run in runs)
    assert np.mean([run["spearman"] for run in runs]) >= 0.95
    assert abs(np.mean([run["relative_mean_wait"] for run in runs])) <= 0.075
    assert 0.96 <= np.mean([pair["spearman"] for pair in pairs]) < 1  # as unsteady as Slurm itself


def test_slurm_itself_does_not_repeat_its_waits() -> None:
    """The spread between runs of one workload, beside which every distance has to be read."""
    spread = figures.spread(FOLDERS).values()
    assert len(spread) == 5  # of three, two and two runs
    assert all(pair["jobs"] >= 1000 and 0.95 < pair["spearman"] < 0.98 for pair in spread)
    assert 0.005 < max(abs(pair["relative_mean_wait"]) for pair in spread) < 0.06


@every_recording
def test_priorities(folder: Path) -> None:
    """Every pending job's priority is sprio's, to the rounding of a second of age.

    But for one look at the second recording of 22.05, which fell on a tie of two accounts' fair shares (.94184 and
    .94190): these are ranked the other way round, and the priorities of their jobs differ by the step of a rank.
    """
    apart = figures.priorities(folder, recording.world(folder, recording.read(folder)))
    assert len(apart) > 4000
    other = np.abs(apart[np.abs(apart) > 1])
    assert len(other) <= (230 if figures.named(folder) == "22.05/2" else 0) and np.isin(other, [5, 250]).all()
