"""The `slurm` scheduler against six recorded scenes of a real Slurm 22.05 (tests/live/scenes.py recorded them).

Two recordings each of preemption by QOS and by partition tier, and of two types of GPU with drained nodes and
reservations. docs/fidelity.md has the figures. The limits are what is reached, with a margin for changes of a second.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from simulator.slurm.world import NONE
from tests.live import scene_figures
from tests.simulator.slurm.compare import relative

FOLDERS = sorted(scene_figures.RECORDINGS.glob("*/*"))
every_scene = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: f"{folder.parent.name}-{folder.name}")
# Least share of one-step hits, most started too early, least Spearman of a free run, recorded preemptions
LIMITS = {"qos": (0.95, 0.04, 0.85, 15), "tier": (0.93, 0.07, 0.85, 25), "nodes": (0.97, 0.04, 0.90, 0)}


@every_scene
def test_one_step_and_free_run(folder: Path) -> None:
    hits, early, spearman, preempted = LIMITS[folder.parent.name]
    scene = scene_figures.read(folder)
    steps, victims = scene_figures.steps(scene)
    recorded, simulated, times, _ = scene_figures.free(scene)
    assert len(steps.job) >= 125 and int(times.sum()) >= preempted
    assert steps.share >= hits and steps.unmatched_share <= early
    assert victims["both"] >= 0.85 * (victims["both"] + victims["only recorded"])
    assert relative(simulated, recorded)["spearman"] >= spearman


@every_scene
def test_the_rule_of_a_scene_matters(folder: Path) -> None:
    """Without preemption the jobs that preempt start later; without outages and types fewer starts are hit."""
    scene = scene_figures.read(folder)
    with_rule, (without, _) = scene_figures.steps(scene)[0], scene_figures.steps(scene_figures.without_rule(scene))
    if folder.parent.name == "nodes":
        assert without.share < with_rule.share - 0.02
        return
    (prompt, of), (prompt_without, _) = (scene_figures.prompt(scene, steps) for steps in (with_rule, without))
    assert of >= 9 and prompt >= 0.9 * of
    assert prompt_without <= 0.6 * of


def test_typed_gpus_are_given_as_asked() -> None:
    """In the record and in the simulator jobs run on nodes of their type only: n6 to n8 have V100s."""
    scene = scene_figures.read(scene_figures.RECORDINGS / "nodes/1")
    kinds = scene.world.nodes.gpu_type
    wanted = scene.world.jobs.gpu_type
    assert len(set(kinds.tolist())) == 2 and (np.bincount(wanted[wanted != NONE]) > 20).all()
    for row in np.flatnonzero(wanted != NONE):
        first, last = scene.world.pinned_first[row : row + 2]
        assert (kinds[scene.world.pinned_nodes[first:last]] == wanted[row]).all()
