"""Changes of `baton whatif` as edits of slurm.conf and sacctmgr commands."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from models.what_if.advice.slurm_diff import slurm_diff
from models.what_if.recorded.changes import KNOWN
from traces.errors import InputError
from traces.slurm.accounts import Qos
from traces.slurm.conf import SlurmConf, read_slurm_conf

NODES = "ClusterName=lab\nNodeName=n[1-4] CPUs=8\n"
TEXT = (
    "SchedulerParameters=bf_max_job_test=100,defer\nPriorityType=priority/multifactor\nPriorityWeightAge=1000\n"
    "PriorityWeightQOS=500\nPriorityMaxAge=2-0\nAccountingStorageEnforce=limits\n" + NODES +
    "PartitionName=gpu Nodes=ALL MaxTime=2-0 DefaultTime=1-0 QOS=part\nPartitionName=open Nodes=ALL\n"
    "PartitionName=quick Nodes=ALL MaxTime=60\n"
)  # fmt: skip
QOS = (Qos("normal", priority=10), Qos("high", priority=100))


@pytest.fixture
def conf(tmp_path: Path) -> SlurmConf:
    (tmp_path / "slurm.conf").write_text(TEXT)
    return read_slurm_conf(tmp_path / "slurm.conf")


CONF_EDITS = [  # change, lines of slurm.conf
    ("backfill=off", ["SchedulerType=sched/builtin"]),
    ("backfill=on", ["SchedulerType=sched/backfill"]),
    ("backfill.depth=200", ["SchedulerParameters=bf_max_job_test=200"]),
    ("backfill.user=10", ["SchedulerParameters=bf_max_job_user=10"]),
    ("backfill.window=1-0", ["SchedulerParameters=bf_window=1440"]),
    ("backfill.window=90s", ["SchedulerParameters=bf_window=2"]),
    ("backfill.window=UNLIMITED", ["SchedulerParameters=bf_window=43200"]),
    ("priority.age=2.5", ["PriorityWeightAge=2500"]),
    ("priority.age=2 and priority.age=2", ["PriorityWeightAge=2000", "PriorityWeightAge=4000"]),
    ("priority.size=+1000", ["PriorityWeightJobSize=1000"]),
    (
        "limit.partition.gpu=12h",
        ["PartitionName=gpu MaxTime=0-12:00:00", "PartitionName=gpu DefaultTime=0-12:00:00"],
    ),
    ("limit=36h", ["PartitionName=gpu MaxTime=1-12:00:00", "PartitionName=open MaxTime=1-12:00:00"]),
    ("limit.partition.quick=UNLIMITED", ["PartitionName=quick MaxTime=UNLIMITED"]),
]


@pytest.mark.parametrize(("change", "lines"), CONF_EDITS)
def test_edits_of_slurm_conf(conf: SlurmConf, change: str, lines: list[str]) -> None:
    diff = slurm_diff([change], conf, QOS)
    assert [edit.text for edit in diff.conf] == lines
    assert not diff.accounts
    assert not diff.by_hand


COMMANDS = [  # change, commands
    ("max_jobs.qos.high=4", ["sacctmgr modify qos where name=high set MaxJobsPerUser=4"]),
    ("max_nodes.qos.HIGH=4", ["sacctmgr modify qos where name=high set MaxTRESPerUser=node=4"]),
    (
        "max_jobs=10",
        [f"sacctmgr modify qos where name={name} set MaxJobsPerUser=10" for name in ("normal", "high")],
    ),
    ("max_jobs.user.amy=UNLIMITED", ["sacctmgr modify user where name=amy cluster=lab set MaxJobs=-1"]),
    ("max_nodes.user.amy=3", ["sacctmgr modify user where name=amy cluster=lab set GrpTRES=node=3"]),
    ("max_jobs.partition.gpu=2", ["sacctmgr modify qos where name=part set MaxJobsPerUser=2"]),
    ("limit.user.amy=1-0", ["sacctmgr modify user where name=amy cluster=lab set MaxWall=1-00:00:00"]),
    ("max_jobs.user.a b;rm=1", ["sacctmgr modify user where 'name=a b;rm' cluster=lab set MaxJobs=1"]),
    ("max_jobs.user.$(id)=1", ["sacctmgr modify user where 'name=$(id)' cluster=lab set MaxJobs=1"]),
    ("priority.qos.normal=+100", ["sacctmgr modify qos where name=normal set Priority=30"]),
    ("priority.qos.normal=+24h", ["sacctmgr modify qos where name=normal set Priority=110"]),
    (
        "priority.limit.4h=+200",
        [
            "sacctmgr add qos advised_limit_4h Priority=50 MaxWall=0-04:00:00 Flags=DenyOnLimit",
            "sacctmgr modify account where name=root cluster=lab set QOS+=advised_limit_4h",
        ],
    ),
    (
        "priority.nodes.1=+200",
        [
            "sacctmgr add qos advised_nodes_1 Priority=50 MaxTRESPerJob=node=1 Flags=DenyOnLimit",
            "sacctmgr modify account where name=root cluster=lab set QOS+=advised_nodes_1",
        ],
    ),
    (
        "priority.user.amy=+200",
        [
            "sacctmgr add qos advised_user_amy Priority=50",
            "sacctmgr modify user where name=amy cluster=lab set QOS+=advised_user_amy DefaultQOS=advised_user_amy",
        ],
    ),
]


@pytest.mark.parametrize(("change", "lines"), COMMANDS)
def test_commands_of_sacctmgr(conf: SlurmConf, change: str, lines: list[str]) -> None:
    diff = slurm_diff([change], conf, QOS)
    assert [edit.text for edit in diff.accounts] == lines
    assert [shlex.split(edit.text) for edit in diff.accounts] == [list(edit.command) for edit in diff.accounts]


def test_the_highest_qos_keeps_the_points_of_the_others(conf: SlurmConf) -> None:
    """110 of 110 times 550 are 550 points; 100 of 110 times 550 are still 500."""
    diff = slurm_diff(["priority.qos.normal=+500"], conf, QOS)
    assert diff.accounts[0].settings == ("Priority=110",)
    assert [edit.text for edit in diff.conf] == ["PriorityWeightQOS=550"]


def test_a_first_priority_of_a_qos_counts_in_points(tmp_path: Path) -> None:
    path = tmp_path / "slurm.conf"
    path.write_text("PriorityType=priority/multifactor\n" + NODES + "PartitionName=a Nodes=ALL\n")
    diff = slurm_diff(["priority.qos.normal=+500"], read_slurm_conf(path), [Qos("normal")])
    assert (diff.accounts[0].settings, diff.conf[0].text) == (("Priority=500",), "PriorityWeightQOS=500")


BY_HAND = [  # change, a part of the sentence, with the cluster's files or without
    ("nodes=+4", "bought", False),
    ("nodes=-1@2024-01-10..2024-01-17", "bought", True),
    ("merge.qos.high=normal", "sacctmgr delete qos where name=high", True),
    ("merge.partition.gpu=open", "whose line is then deleted", False),
    ("default_limit=4h@24h", "DefaultTime=0-04:00:00 of each partition", False),
    ("partition.fast.limit.4h=n1", "PartitionName=fast Nodes=n1", False),
    ("arrivals.user.amy=0", "no setting", True),
    ("ask=1.2", "users ask", True),
    ("max_jobs.partition.open=2", "QOS of its own", True),
    ("max_jobs.nodes.1=2", "give them a QOS", True),
    ("max_nodes.account.art=2", "each user's nodes", True),
    ("priority.size=-1", "fewer points", True),
    ("priority.partition.gpu=+5", "priority.qos.NAME", True),
    ("priority.qos.normal=-5000", "at least 0", True),
    ("priority.qos.normal=+1", "nothing changes", True),
    ("priority.age=2", "present value, which is not known", False),
    ("priority.size=+5", "present value, which is not known", False),
    ("priority.qos.normal=+5", "present values are not known", False),
    ("limit=24h", "MaxTime=1-00:00:00 of each partition", False),
]


@pytest.mark.parametrize(("change", "part", "is_known"), BY_HAND)
def test_a_sentence_where_no_setting_does_it(conf: SlurmConf, change: str, part: str, is_known: bool) -> None:
    diff = slurm_diff([change], *((conf, QOS) if is_known else ()))
    assert not diff.conf
    assert not diff.accounts
    (line,) = diff.by_hand
    assert part in line
    assert f"# {line}\n" in diff.comments


REFUSED = [  # change, a part of the message
    ("backfill.depth=0", "from 1 to 1,000,000"),
    ("backfill.depth=two", "not a whole number"),
    ("backfill.window=60-0", "from 1 to 43,200"),
    ("backfill=maybe", "backfill=off"),
    ("priority.age=-1", "allowed is 0 to 1000"),
    ("priority.age=nan", "not a number"),
    ("priority.size=5e9", "4,294,967,294"),
    ("max_jobs=0", "nothing would run"),
    ("max_jobs.user.a,b=1", "sacctmgr cannot hold"),
    ("max_jobs.user.n[1-3]=1", "sacctmgr cannot hold"),
    ('max_jobs.user.a"b=1', "sacctmgr cannot hold"),
    ("max_jobs.user.a\nb=1", "sacctmgr cannot hold"),
    ("max_jobs.user.=1", "sacctmgr cannot hold"),
    ("limit.partition.a b=1h", "slurm.conf cannot hold"),
    ("limit.partition.a#b=1h", "slurm.conf cannot hold"),
    ("limit.partition.default=1h", "slurm.conf cannot hold"),
    ("limit.partition.none=1h", "no partition 'none' (known: gpu, open, quick)"),
    ("priority.qos.none=+5", "no QOS 'none'"),
    ("max_jobs.planet.x=1", "unknown dimension"),
    ("priority.nodes.x=+5", "not a whole number"),
    ("priority.limit.UNLIMITED=+5", "every job asks"),
    ("default_limit.user.amy=4h", "that of a partition, not of a user"),
    ("default_limit.partition.none=4h", "no partition 'none' (known: gpu, open, quick)"),
    ("default_limit.partition.quick=4h", "a shorter MaxTime"),
    ("default_limit.partition.gpu=1-0", "has this DefaultTime already"),
    ("default_limit=4h@4h", "another default limit and the present one"),
    ("default_limit=UNLIMITED", "another default limit"),
    ("default_limit.partition.open=99999999999h", "another default limit"),
    ("nodes.like.n9=+4", "has no node 'n9' (known: n[1-4])"),
    ("nodes.like.n1=4", "write +4 or -4"),
    ("nodes.like.n1=-5", "has 4 nodes of that kind"),
    ("nodes.like.n1=+99999", "over 100,000 nodes"),
    ("nodes.user.amy=+4", "concerns all jobs"),
    ("merge.partition.gpu=none", "no partition 'none'"),
    ("merge.partition.gpu=gpu", "write merge.partition.A=B"),
    ("merge.user.amy=bob", "write merge.partition.A=B"),
    ("merge.qos.high=none", "the dump has no QOS 'none' (known: normal, high)"),
    ("partition.fast=n1", "does not say which jobs go there"),
    ("partition.gpu.limit.4h=n1", "has a partition 'gpu' already"),
    ("partition.fast.limit.4h=n9", "has no node 'n9'"),
    ("partition.fast.limit.4h=n[2-1]", "is descending"),
    ("partition.fast.nodes.x=n1", "not a whole number of nodes"),
    ("colour=red", "unknown change"),
    ("nodes", "write NAME=VALUE"),
]


@pytest.mark.parametrize(("change", "part"), REFUSED)
def test_refused_changes_are_named(conf: SlurmConf, change: str, part: str) -> None:
    with pytest.raises(InputError, match="change") as refused:
        slurm_diff([change], conf, QOS)
    assert part in str(refused.value)
    assert "\n" not in str(refused.value)


def test_every_change_of_whatif_is_understood(conf: SlurmConf) -> None:
    values = {
        "backfill": "off", "backfill.window": "1-0", "limit": "24h", "nodes.like.NODENAME": "+1",
        "merge.partition.NAME": "open", "merge.qos.NAME": "high", "partition.NAME.limit.TIME": "n1",
    }  # fmt: skip
    names = {
        "KEY": "KillWait", "NODENAME": "n1", "merge.partition.NAME": "merge.partition.gpu",
        "merge.qos.NAME": "merge.qos.normal", "TIME": "4h",
    }  # fmt: skip
    for name in KNOWN:
        change = name
        for place, own in names.items():
            change = change.replace(place, own)
        diff = slurm_diff([f"{change}={values.get(name, '2')}"], conf, QOS)
        assert diff.conf or diff.accounts or diff.by_hand, name


def test_limits_that_are_not_enforced_are_named(tmp_path: Path) -> None:
    path = tmp_path / "slurm.conf"
    path.write_text(NODES + "PartitionName=a Nodes=ALL\n")
    diff = slurm_diff(["max_jobs=3"], read_slurm_conf(path))
    assert "AccountingStorageEnforce" in diff.by_hand[0]
    weights = slurm_diff(["priority.size=+3"], read_slurm_conf(path))
    assert "priority/multifactor" in weights.by_hand[0]
