"""Changes of single settings of slurm.conf: what they edit, what they change, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from models.what_if.advice.conf_text import ConfEdit, applied, edited_conf
from models.what_if.advice.declared import answer_declared, edited_description, paired_waits
from models.what_if.advice.setting import setting_edit
from models.what_if.advice.slurm_diff import slurm_diff
from models.what_if.recorded.changes import changed_recorded
from simulator.slurm.world import NEVER
from tests.live import recording
from tests.models.study.slurm.test_pairs import RECORDING
from tests.models.what_if.recorded import cases
from traces.errors import InputError

DESCRIBED = recording.described(RECORDING)


@pytest.mark.parametrize(
    ("change", "edit"),
    [
        ("conf.PriorityMaxAge=14-0", ConfEdit("PriorityMaxAge", "14-0")),
        ("conf.prioritymaxage=14-0", ConfEdit("PriorityMaxAge", "14-0")),
        ("conf.bf_interval=60", ConfEdit("bf_interval", "60", is_option=True)),
        ("conf.partition.gpu.PriorityTier=2", ConfEdit("PriorityTier", "2", "gpu")),
        ("conf.partition.a.b.MaxTime=1-0", ConfEdit("MaxTime", "1-0", "a.b")),
    ],
)
def test_a_setting_is_an_edit_of_the_file(change: str, edit: ConfEdit) -> None:
    assert setting_edit(change) == edit
    assert slurm_diff([change], DESCRIBED.conf).conf == (edit,)
    if edit.partition is None:
        assert edit.text in applied("ClusterName=lab\n", [edit])


def mean_wait(change: str) -> dict[str, Any]:
    jobs, diff = recording.read(RECORDING), slurm_diff([change], DESCRIBED.conf, DESCRIBED.qos)
    changed = recording.world(RECORDING, jobs, declared=edited_description(DESCRIBED, diff))
    rows: list[dict[str, Any]] = answer_declared(
        paired_waits(recording.world(RECORDING, jobs), changed, (0, NEVER)), 1800
    )["results"]
    return next(row for row in rows if row["figure"] == "mean_wait_s")


def test_a_setting_is_simulated_under_the_declared_files() -> None:
    assert edited_conf(DESCRIBED.conf, [setting_edit("conf.bf_interval=600")]).options.bf_interval_s == 600
    assert mean_wait("conf.bf_interval=600")["difference"] > 0
    assert mean_wait(f"conf.bf_interval={DESCRIBED.conf.options.bf_interval_s}")["difference"] == 0


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("conf.PriorityMaxAges=1-0", "'PriorityMaxAges' is not simulated; settings that are: PriorityMaxAge"),
        ("conf.bf_intervall=1", "settings that are: bf_interval"),
        ("conf.ClusterName=other", "'ClusterName' is not simulated"),
        ("conf.zzz=1", "'zzz' is not simulated; settings that are: "),
        ("conf.partition.MaxTime=1", "names no partition"),
        ("conf.partition.gpu.bf_interval=1", "'bf_interval' is not simulated"),
        ("conf.PriorityMaxAge=", "has no value"),
    ],
)
def test_what_is_refused(change: str, why: str) -> None:
    with pytest.raises(InputError) as refused:
        setting_edit(change)
    assert why in str(refused.value)


def test_the_recorded_cluster_says_that_it_cannot_show_it() -> None:
    scene = cases.scene(14)
    assert "only the declared slurm.conf shows" in changed_recorded(scene, "conf.PriorityMaxAge=14-0").assumptions[-1]
