"""The end of every job beside the authors' own programs: Tiresias' simulator and Lucid's, on the same jobs.

The results of these programs are in `../shared/references/gpu`, whose README states how they were made. Both count in
whole seconds. Tiresias' program counts GPUs and places nothing, so here all GPUs are on one node.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from simulator.gpu.cluster import GpuCluster, of_nodes
from simulator.gpu.jobs import of_arrays
from simulator.gpu.run import simulate
from simulator.gpu.scheduler import Setting

FOLDER = Path(__file__).resolve().parents[3].parent / "shared" / "references" / "gpu"
FREE: dict[str, Setting] = {"restart_s": 0.0}
RELEASED: dict[str, Setting] = {**FREE, "released": 1.0}
# Every fifth of the 1,001 GPU times, in s, that the program computes its Gittins index from: SymbioticLab/Tiresias,
# simulator/yarn-gput1000.csv (Apache-2.0).
QUANTILES = """
121 130 138 146 156 165 175 183 190 201 211 222 237 254 268 285 304 314 324 337 357 385 410 442 467 488 507 521
536 545 552 559 566 574 584 595 607 623 639 654 672 690 708 728 748 766 788 810 828 846 860 874 885 897 911 929
951 973 997 1024 1049 1075 1104 1130 1159 1185 1210 1239 1269 1299 1331 1366 1400 1427 1448 1467 1483 1500 1517
1537 1559 1584 1613 1647 1695 1741 1781 1822 1851 1876 1908 1940 1966 1994 2022 2046 2070 2100 2133 2173 2227 2291
2332 2374 2416 2450 2479 2509 2533 2557 2577 2599 2625 2650 2679 2710 2744 2780 2833 2924 3064 3199 3348 3419 3500
3583 3712 3833 3954 4017 4081 4179 4344 4501 4702 4953 5097 5217 5332 5448 5555 5666 5770 5854 5937 6055 6228 6477
6974 7692 8215 8577 8884 9098 9375 9911 10424 10807 11185 11950 12706 13317 14384 14649 16048 17608 19387 21626
23840 26530 29168 32004 36641 41300 44431 49068 54232 57612 61692 67981 75999 86242 99075 114025 124655 143327
167080 190280 230480 273248 326172 387104 467939 592368 721700 901096 1259182 1650544 2268824 4307904 53294624
"""
GITTINS: dict[str, Setting] = {
    **RELEASED,
    "promote": 0.0,
    "samples": tuple(float(one) for one in QUANTILES.split()),
}
LUCID: dict[str, dict[str, Setting]] = {
    "fifo": {**FREE, "consolidate": 1.0},
    "sjf": {**FREE, "consolidate": 1.0, "pass": 0.0},
}
COUNTED = {"tiresias_T60b": 12, "tiresias_T480": 64}  # GPUs


def compared(
    file: str, policy: str, cluster: GpuCluster, name: str, settings: dict[str, Setting], late_s: float = 0.0
) -> tuple[float, float]:
    """Return the share of jobs that end at the same second, and the ratio of mean completion times, ours to theirs."""
    path = FOLDER / f"{file}.csv.gz"
    if not path.is_file():
        pytest.skip(f"the authors' results are not there: {path}")
    theirs = pl.read_csv(path).filter(pl.col("policy") == policy).sort("submit_s", maintain_order=True)
    submit_s, end_s = theirs["submit_s"].to_numpy().astype(float), theirs["finish_s"].to_numpy() - late_s
    jobs = of_arrays(submit_s, theirs["gpus"].to_numpy(), theirs["run_s"].to_numpy().astype(float))
    ours = simulate(cluster, jobs, name, settings).result.end_s + submit_s.min()
    return float(np.mean(np.abs(ours - end_s) < 1e-3)), float((ours - submit_s).mean() / (end_s - submit_s).mean())


EQUAL: list[tuple[str, str, dict[str, Setting]]] = [
    ("fifo", "fifo", FREE),
    ("shortest", "srtf", FREE),
    ("dlas-gpu", "tiresias", {**RELEASED, "promote": 0.0}),
    ("dlas-gpu-8", "tiresias", {**RELEASED, "promote": 8.0}),
]


@pytest.mark.parametrize("file", COUNTED)
@pytest.mark.parametrize(("policy", "name", "settings"), EQUAL)
def test_every_job_ends_as_in_tiresias_simulator(
    file: str, policy: str, name: str, settings: dict[str, Setting]
) -> None:
    cluster = of_nodes(np.array([COUNTED[file]]))
    assert compared(file, policy, cluster, name, settings) == (1.0, 1.0)


def test_papers_rules_stay_near_the_released_ones() -> None:
    for policy, promote in (("dlas-gpu", 0.0), ("dlas-gpu-8", 8.0)):
        settings: dict[str, Setting] = {**FREE, "promote": promote}
        equal, ratio = compared("tiresias_T480", policy, of_nodes(np.array([64])), "tiresias", settings)
        assert 0.8 < equal < 1.0 and ratio == pytest.approx(1.0, abs=0.01)


def test_gittins_index_ranks_as_the_released_one() -> None:
    # With all 1,001 values every job ends at the same second, in both files.
    cluster = of_nodes(np.array([64]))
    equal, ratio = compared("tiresias_T480", "dlas-gpu-gittins", cluster, "tiresias-gittins", GITTINS)
    assert equal >= 0.95 and ratio == pytest.approx(1.0, abs=0.002)


@pytest.mark.parametrize(("policy", "settings"), LUCID.items())
def test_every_job_ends_as_in_lucids_program(policy: str, settings: dict[str, Setting]) -> None:
    assert compared("lucid_T480", policy, of_nodes(np.full(8, 8)), policy, settings) == (1.0, 1.0)
