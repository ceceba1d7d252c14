"""A study of twelve random days, and processes that are killed over it: `python -m tests.models.toy_study FOLDER WHAT`.

WHAT is `fits`: in the middle of a training, when THREE fits are kept; or `pairs`: when half a file of pairs is written.
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from models.provisioning.scenario import Scenario
from models.study import fits
from models.study.cluster import Study
from models.study.windows import Window
from models.tracking import training_runs
from simulator.workload import Workload
from traces.clusters import ClusterSettings
from traces.store import stamps
from traces.store.folder import DataFolder
from traces.units import DAY_S

WINDOW = Window(3 * DAY_S, 8 * DAY_S, 1800)
POLICIES = ["reactive", "average-wait", "forest"]  # with three seeds of the last: five fits
THREE = 3


class KnownStudy(Study):
    """A study without a warehouse: its workload is all that there is to know, at any instant."""

    def known_before(self, until_s: int) -> Study:
        return replace(self, scenario=replace(self.scenario, known_until_s=until_s))


def toy_study(root: Path) -> Study:
    """Three seeds a learner."""
    rng = np.random.default_rng(5)
    submit, limit = np.sort(rng.integers(0, 12 * DAY_S, 400)), rng.integers(1, 13, 400) * 3600
    size, start = rng.integers(1, 5, 400), np.full(400, -1)
    workload = Workload(np.arange(400), submit, size=size, run_s=limit // 2, limit_s=limit, start_s=start)
    scenario = Scenario("toy", capacity=20, pair_nodes=(1,), limit_s=4 * 3600, every_s=DAY_S)
    data = DataFolder(root)
    return KnownStudy(data, ClusterSettings("toy", seeds=3), scenario, workload)


def killed_in_training(study: Study) -> None:
    """MLflow hears nothing of it: its part has a test of its own."""
    kept: list[str] = []

    def stamped(*arguments: Any) -> None:
        stamps.write_stamp(*arguments)
        kept.append(arguments[1])
        if len(kept) == THREE:
            os.kill(os.getpid(), signal.SIGKILL)

    no_tracker = mock.patch.object(training_runs, "MlflowTracker", return_value=None)
    with no_tracker, mock.patch.object(fits, "write_stamp", stamped):
        fits.fit(study, POLICIES, WINDOW)


def killed_over_pairs(study: Study) -> None:
    whole = np.savez_compressed

    def half(file: Any, **arrays: Any) -> None:
        whole(file, **arrays)
        file.truncate(file.tell() // 2)
        file.flush()
        os.kill(os.getpid(), signal.SIGKILL)

    with mock.patch.object(np, "savez_compressed", half):
        study.pairs(WINDOW)


if __name__ == "__main__":
    {"fits": killed_in_training, "pairs": killed_over_pairs}[sys.argv[2]](toy_study(Path(sys.argv[1])))
