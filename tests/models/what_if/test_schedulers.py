"""What would change under GPU schedulers: changes as an operator writes them, differences, who gains and who loses."""

from __future__ import annotations

import numpy as np
import pytest

from models.what_if.changes import AS_IT_IS, GpuScene, changed
from models.what_if.differences import group_rows, rows
from models.what_if.schedulers import combinations, replays, without_unplaceable
from simulator.gpu.cluster import of_nodes
from simulator.gpu.jobs import of_arrays
from tests.simulator.gpu.models import drawn_jobs
from traces.errors import InputError
from traces.units import DAY_S

ALL = ("fifo", "sjf", "yarn")


def scene(jobs: int = 120, days: int = 28) -> GpuScene:
    rng = np.random.default_rng(2)
    submit = np.sort(rng.integers(0, days * DAY_S, jobs)).astype(float)
    gpus = rng.choice([1, 2, 4, 8], jobs)
    run = rng.lognormal(10.5, 1.3, jobs)
    return GpuScene(
        of_nodes(np.array([4, 4, 4])), of_arrays(submit, gpus, run, rng.integers(0, 2, jobs), ("vision", "speech"))
    )


def test_changes_do_what_they_say() -> None:
    base = scene()
    assert changed(base, "nodes=+34%", ALL).cluster.gpus == 16
    assert changed(base, "nodes=-1", ALL).cluster.gpus == 8
    assert changed(base, "nodes=5", ALL).cluster.nodes == 5
    assert changed(base, "limit=10h", ALL).jobs.run_s.max() == 36_000.0
    faster = changed(base, "arrivals=+100%", ALL).jobs
    assert np.ptp(faster.submit_s) == pytest.approx(np.ptp(base.jobs.submit_s) / 2)
    assert changed(base, "quota.vision=9", ALL).quotas == {"vision": 9}
    found = changed(base, "yarn.hold_s=60", ALL)
    assert (found.only, found.parameters) == ("yarn", {"yarn": {"hold_s": 60.0}})
    drawn = GpuScene(base.cluster, drawn_jobs(base.jobs))
    assert (changed(drawn, "type=A100", ALL).jobs.run_s < base.jobs.run_s).all()
    assert set(changed(drawn, "mix=bert:1", ALL).jobs.model.tolist()) == {1}
    bare = changed(drawn, "mix=none", ALL)
    assert (
        (bare.jobs.model == -1).all() and not bare.jobs.elastic.any() and "no job has a profile" in bare.assumptions[-1]
    )
    gangs = drawn.jobs.gpus >= 2
    assert (changed(drawn, "elastic=1", ALL).jobs.elastic == gangs).all()


def test_a_list_is_written_with_commas() -> None:
    found = changed(scene(), "tiresias.thresholds=100, 200", ("tiresias",))
    assert found.parameters == {"tiresias": {"thresholds": (100.0, 200.0)}}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("more", "is not understood; write NAME=VALUE"),
        ("yarn.hold_s=1,2", "yarn.hold_s: '1,2' is not a number"),
        ("yarn.restart_s=-1", "yarn.restart_s of -1: it must be at least 0"),
        ("colour=red", "unknown change 'colour': known are nodes, type, limit"),
        ("nodes=many", "write \\+10%, -5 or a number"),
        ("nodes=-2", "is not feasible: .* fit nowhere, the largest of 8 GPUs on a cluster of 4"),
        ("nodes=-100%", "leaves 0 nodes of 3"),
        ("limit=soon", "duration 'soon' is not understood"),
        ("type=H900", "unknown GPU type 'H900': measured are T4"),
        ("type=T4:2,H900:1", "unknown GPU type 'H900': measured are T4"),
        ("type=T4:2,A100:2", "names 4 nodes: the cluster has 3"),
        ("type=T4:3,A100", "names 6 nodes: the cluster has 3"),
        ("type=T4:2,A100:0", "'0' nodes of A100; write a number from 1 on"),
        ("type=T4:2,T4:1", "GPU type T4 is named twice"),
        ("arrivals=-100%", "0 times the arrival rate"),
        ("mix=gpt:1", "unknown model 'gpt'"),
        ("mix=bert:half", "'half' is not a number"),
        ("quota.nobody=3", "unknown group 'nobody': known are vision, speech"),
        ("quota.vision=99", "the quotas add up to 99 GPUs, the cluster has 12"),
        ("yarn.pace=3", "unknown parameter yarn.pace: known are hold_s, reclaim_at"),
        ("tiresias.promote=3", "concerns tiresias, which is not among fifo, sjf, yarn"),
    ],
)
def test_what_cannot_be_changed_is_refused_by_name(change: str, why: str) -> None:
    base = scene()
    with pytest.raises(InputError, match=why):
        changed(GpuScene(base.cluster, drawn_jobs(base.jobs)), change, ALL)


@pytest.mark.parametrize("change", ["type=A100", "elastic=1", "mix=bert:1"])
def test_without_profiles_what_needs_them_is_refused(change: str) -> None:
    with pytest.raises(InputError, match="needs profiles of models: give --profiles published or a file"):
        changed(scene(), change, ALL)


def test_nodes_of_several_types() -> None:
    base = scene()
    few = drawn_jobs(base.jobs.take(np.flatnonzero(base.jobs.gpus <= 4)[:4]))  # Sia replays round by round
    drawn = GpuScene(base.cluster, few)
    mixed = changed(drawn, "type=T4:2,A100:1", ALL)
    assert mixed.cluster.types == ("T4", "T4", "A100") and mixed.cluster.reference == "T4"
    assert (mixed.jobs.run_s == few.run_s).all()  # recorded on a type that is still there
    moved = changed(drawn, "type=A100:1,V100:2", ALL)
    assert moved.cluster.reference == "A100" and (moved.jobs.run_s < few.run_s).all()
    asked = combinations(drawn, ["fifo", "sia"], ["type=T4:2,A100:1"])
    figures = {(one.scheduler, one.change): one.figures for one in replays(asked, lambda _: None, workers=1)}
    faster, slower = figures["sia", "type=T4:2,A100:1"], figures["sia", AS_IT_IS]
    assert faster["mean_jct_s"] < slower["mean_jct_s"]
    wide = GpuScene(base.cluster, drawn_jobs(base.jobs))
    with pytest.raises(InputError, match=r"is not feasible: .* fit nowhere, the largest of 8 GPUs"):
        changed(wide, "type=T4:1,V100:1,A100:1", ALL)  # a gang is of one type


def test_each_change_is_replayed_with_each_scheduler_that_it_concerns() -> None:
    asked = combinations(scene(), ["fifo", "yarn"], ["nodes=+1", "yarn.hold_s=0"])
    assert [(one.scheduler, one.change) for one in asked] == [
        ("fifo", AS_IT_IS),
        ("fifo", "nodes=+1"),
        ("yarn", AS_IT_IS),
        ("yarn", "nodes=+1"),
        ("yarn", "yarn.hold_s=0"),
    ]


def test_differences_are_to_the_first_and_the_parts_add_up() -> None:
    base = scene()
    result: list[str] = []
    outcomes = replays(combinations(base, ["fifo", "sjf"], ["nodes=+3"]), result.append, workers=1)
    assert result == ["fifo, as it is", "fifo, nodes=+3", "sjf, as it is", "sjf, nodes=+3"]
    found = {(row["scheduler"], row["change"], row["figure"]): row for row in rows(base.jobs, outcomes)}
    first, more = found["fifo", AS_IT_IS, "mean_jct_s"], found["fifo", "nodes=+3", "mean_jct_s"]
    assert first["difference"] == 0.0
    assert first["difference_ci95"] is None
    assert more["difference"] == pytest.approx(more["value"] - first["value"])
    low, high = more["difference_ci95"]
    assert low <= more["difference"] <= high < 0.0
    assert found["fifo", AS_IT_IS, "makespan_s"]["ci95"] is None
    sizes = [row for row in group_rows(base.jobs, outcomes) if row["dimension"] == "size" and row["change"] != AS_IT_IS]
    of_first = [row for row in sizes if row["scheduler"] == "fifo"]
    assert sum(row["jobs"] for row in of_first) == len(base.jobs)
    weighted = sum(row["jobs"] * row["difference_s"] for row in of_first) / len(base.jobs)
    assert weighted == pytest.approx(more["difference"])


def test_processes_give_what_one_gives() -> None:
    asked = combinations(scene(40), ["fifo", "sjf"], [])
    alone, together = replays(asked, lambda _: None, workers=1), replays(asked, lambda _: None, workers=2)
    assert [one.figures for one in alone] == [one.figures for one in together]


def test_jobs_that_no_configuration_holds_are_left_out_and_counted() -> None:
    base = scene()
    small = GpuScene(of_nodes(np.array([4])), base.jobs)
    kept = without_unplaceable(small)
    assert kept.jobs.gpus.max() == 4
    assert kept.assumptions == (
        f"{int((base.jobs.gpus > 4).sum())} jobs fit no configuration of the cluster: left out",
    )
