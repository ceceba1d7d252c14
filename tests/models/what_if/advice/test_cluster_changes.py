"""Changes of nodes, partitions, QOS and default limits: in the text of slurm.conf, and under the declared files."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from models.what_if.advice.cluster_changes import node_list
from models.what_if.advice.conf_text import LineOfIncludedFile, applied, edited_conf
from models.what_if.advice.declared import answer_declared, edit_of, edited_description, paired_waits
from models.what_if.advice.slurm_diff import slurm_diff
from simulator.slurm.inputs.cluster import cluster
from simulator.slurm.world import NEVER
from tests.live import recording
from tests.models.study.slurm.test_pairs import RECORDING
from traces import instants
from traces.slurm.conf import SlurmConf, read_slurm_conf
from traces.slurm.text import expand_nodes

DESCRIBED = recording.described(RECORDING)
TEXT = (
    "ClusterName=lab\nNodeName=DEFAULT CPUs=8\nNodeName=n[1-4] RealMemory=9000 NodeAddr=10.0.0.[1-4] "
    'State=DRAIN Features="a, b"\nNodeName=big Sockets=2 CoresPerSocket=8 Gres=gpu:a100:4\n'
    "PartitionName=DEFAULT MaxTime=1-0 Nodes=n[1-3]\nPartitionName=gpu Nodes=big Default=YES # keep\n"
    "PartitionName=open DefaultTime=1:00:00\nPartitionName=all Nodes=ALL MaxTime=UNLIMITED\n"
)

TEXTS = [  # change, lines that are new in slurm.conf
    ("nodes.like.big=+2", ["NodeName=new[1-2] Sockets=2 CoresPerSocket=8 Gres=gpu:a100:4",
                           "PartitionName=gpu Nodes=big,new[1-2] Default=YES # keep"]),
    ("nodes.like.n1=+1", ['NodeName=new1 RealMemory=9000 Features="a, b"',
                          "PartitionName=open DefaultTime=1:00:00 Nodes=n[1-3],new1"]),
    ("nodes.like.big=+1 and nodes.like.big=+2", ["NodeName=new1 Sockets=2 CoresPerSocket=8 Gres=gpu:a100:4",
                                                 "NodeName=new[2-3] Sockets=2 CoresPerSocket=8 Gres=gpu:a100:4",
                                                 "PartitionName=gpu Nodes=big,new1,new[2-3] Default=YES # keep"]),
    ("nodes.like.big=-1", ["DownNodes=big"]),
    ("default_limit=2h", ["PartitionName=gpu Nodes=big Default=YES DefaultTime=0-02:00:00 # keep",
                          "PartitionName=open DefaultTime=0-02:00:00",
                          "PartitionName=all Nodes=ALL MaxTime=UNLIMITED DefaultTime=0-02:00:00"]),
    ("default_limit.partition.open=90m@1h", ["PartitionName=open DefaultTime=0-01:30:00"]),
    ("merge.partition.gpu=open", ["PartitionName=gpu Nodes=big Default=NO State=DRAIN # keep",
                                  "PartitionName=open DefaultTime=1:00:00 Nodes=n[1-3],big Default=YES"]),
    ("merge.partition.all=gpu", ["PartitionName=gpu Nodes=big,n[1-4] Default=YES MaxTime=UNLIMITED # keep",
                                 "PartitionName=all Nodes=ALL MaxTime=UNLIMITED State=DRAIN"]),
    ("partition.fast.limit.1h=n[1-2],big", ["PartitionName=fast Nodes=n[1-2],big"]),
]  # fmt: skip


@pytest.mark.parametrize(("change", "lines"), TEXTS)
def test_the_file_reads_as_what_is_simulated(tmp_path: Path, change: str, lines: list[str]) -> None:
    path = tmp_path / "slurm.conf"
    path.write_text(TEXT)
    before = read_slurm_conf(path)
    diff = slurm_diff([change], before)
    path.write_text(applied(TEXT, diff.conf))
    assert [line for line in path.read_text().splitlines() if line not in TEXT.splitlines()] == lines
    assert placeless(read_slurm_conf(path)) == placeless(edited_conf(before, diff.conf))


def placeless(conf: SlurmConf) -> SlurmConf:
    """The settings without the numbers of their lines, and with each partition's nodes in one order."""
    nodes = tuple(replace(one, where="") for one in conf.nodes)
    partitions = tuple(replace(one, where="", nodes=tuple(sorted(one.nodes))) for one in conf.partitions)
    return replace(conf, nodes=nodes, partitions=partitions, ignored=())


def test_a_line_of_an_included_file_is_named() -> None:
    with pytest.raises(LineOfIncludedFile, match="no line NodeName with n01"):
        applied("Include nodes.conf\n", slurm_diff(["nodes.like.n01=+1"], DESCRIBED.conf).conf)


@pytest.mark.parametrize("names", [["n01", "n02", "n10", "n11", "n9"], ["login", "a1b", "a2", "a03"], ["n9", "n10"]])
def test_a_node_list_expands_to_its_names(names: list[str]) -> None:
    assert expand_nodes(node_list(names)) == names
    assert node_list(f"n{number:02d}" for number in range(1, 13)) == "n[01-12]"


def test_plain_nodes_are_those_of_a_cluster_of_one_kind(tmp_path: Path) -> None:
    diff = slurm_diff(["nodes=+25%"], DESCRIBED.conf)
    assert diff.conf[0].text == "NodeName=new[1-4]" and diff.conf[1].partition == "gpu"
    assert slurm_diff(["nodes=14"], DESCRIBED.conf).conf[0].text == "DownNodes=n[15-16]"
    path = tmp_path / "slurm.conf"
    path.write_text(TEXT.replace(" State=DRAIN", ""))
    assert "nodes.like.NODENAME=+4" in slurm_diff(["nodes=+4"], read_slurm_conf(path)).by_hand[0]


def mean_wait(change: str) -> dict[str, Any]:
    """The change of the mean wait in the recorded four hours, and of what the jobs ask for."""
    diff = slurm_diff([change], DESCRIBED.conf, DESCRIBED.qos)
    described, jobs = edited_description(DESCRIBED, diff), recording.read(RECORDING)
    if diff.moves:
        (move,) = diff.moves
        jobs = [
            replace(job, submission=replace(job.submission, partition=move.new))
            if job.submission.partition == move.who
            else job
            for job in jobs
        ]
    changed = recording.world(RECORDING, jobs, declared=described)
    changed = replace(changed, outages=cluster(*described).outages)
    before = recording.world(RECORDING, recording.read(RECORDING))
    found: dict[str, Any] = answer_declared(paired_waits(before, changed, (0, NEVER)), 1800)
    return found["results"][0]  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("change", "sign"),
    [
        ("nodes.like.n01=+4", -1),
        ("nodes=-4", 1),
        ("merge.partition.short=gpu", -1),  # most jobs ask for gpu, which gets four more nodes
        ("conf.partition.gpu.OverSubscribe=EXCLUSIVE", 1),  # whole nodes in place of shared ones
        ("conf.SelectType=select/linear", 1),
    ],
)
def test_the_declared_cluster_shows_the_effect(change: str, sign: int) -> None:
    row = mean_wait(change)
    assert row["difference"] * sign > 60


def test_nodes_are_shared_again() -> None:
    exclusive = edited_conf(DESCRIBED.conf, slurm_diff(["conf.partition.gpu.OverSubscribe=EXCLUSIVE"]).conf)
    shared = edited_conf(exclusive, slurm_diff(["conf.partition.gpu.OverSubscribe=NO"]).conf)
    assert shared == DESCRIBED.conf and exclusive != shared


JOBS = pl.DataFrame(
    {
        "start_utc": [datetime(2024, 1, day) for day in range(1, 5)] + [None],
        "partition": ["gpu", None, "gpu", "short,gpu", "gpu"],
        "qos": ["high", None, "High", "normal", "high"],
        "user_name": ["amy", "bob", "amy", "bob", "amy"],
        "account": ["lab"] * 5,
        "limit_s": [3600, None, 3600, 1800, 7200],
        "run_s": [100, 2000, 2000, 100, 100],
        "allocated_nodes": [1, 2, 3, 4, None],
        "requested_nodes": [1, 2, 3, 4, 5],
    }
)


@pytest.mark.parametrize(
    ("change", "column", "after"),
    [
        ("default_limit.partition.gpu=30m", "limit_s", [1800, 3600, 3600, 1800, 7200]),
        (
            "default_limit.partition.gpu=2h and default_limit.partition.short=1h",
            "limit_s",
            [7200, 7200, 7200, 3600, 7200],
        ),
        ("merge.partition.gpu=short", "partition", ["short", "short", "short", "short,gpu", "short"]),
        ("merge.qos.high=normal", "qos", ["normal", None, "normal", "normal", "normal"]),
        ("partition.fast.limit.1h=n01", "partition", ["fast", None, "fast", "fast", "gpu"]),
        ("partition.fast.nodes.3=n01", "partition", ["fast", "fast", "fast", "short,gpu", "gpu"]),
        ("partition.fast.user.amy=n01", "partition", ["fast", None, "fast", "short,gpu", "fast"]),
    ],
)
def test_jobs_ask_for_what_the_change_says(change: str, column: str, after: list[Any]) -> None:
    """Two jobs of an hour are taken as having the default; the one that ran longer than the new one keeps it."""
    _described, jobs = edit_of(slurm_diff([change], DESCRIBED.conf, DESCRIBED.qos), 0)(DESCRIBED, JOBS)
    assert jobs[column].to_list() == after
    others = [name for name in JOBS.columns if name != column]
    assert jobs.select(others).equals(JOBS.select(others))


def test_jobs_that_run_when_the_window_begins_keep_their_partition() -> None:
    edited = edit_of(slurm_diff(["merge.partition.gpu=short"], DESCRIBED.conf), instants.epoch_s(datetime(2024, 1, 3)))
    assert edited(DESCRIBED, JOBS)[1]["partition"].to_list() == ["gpu", None, "short", "short,gpu", "short"]


def test_a_partition_of_a_merged_qos_gets_the_other() -> None:
    conf = replace(DESCRIBED.conf, partitions=(replace(DESCRIBED.conf.partitions[0], qos="high"),))
    assert [edit.text for edit in slurm_diff(["merge.qos.high=normal"], conf).conf] == ["PartitionName=gpu QOS=normal"]
