"""slurm.conf, QOS, associations and reservations as the tables of a world."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator.slurm import world as w
from simulator.slurm.inputs.cluster import SlurmCluster, cluster
from traces.errors import InputError
from traces.slurm.accounts import read_associations, read_qos
from traces.slurm.conf import read_slurm_conf
from traces.slurm.reservations import Reservation

CONF = """ClusterName=lab
SelectType=select/cons_tres
PriorityType=priority/multifactor
PriorityWeightAge=1000
PriorityWeightTRES=cpu=10,gres/gpu:a100=200
PriorityDecayHalfLife=1-0
SchedulerParameters=bf_interval=120,bf_window=2880,bf_max_job_user=5
AccountingStorageEnforce=limits,qos
PreemptType=preempt/qos
PreemptMode=REQUEUE
PreemptExemptTime=5
OverTimeLimit=2
NodeName=n[1-3] CPUs=32 RealMemory=1000 Gres=gpu:a100:4
NodeName=n4 CPUs=64 RealMemory=2000 Weight=5 State=DRAIN
PartitionName=gpu Nodes=n[1-3] Default=YES MaxTime=2-0 PriorityTier=3 TRESBillingWeights=CPU=1,GRES/gpu=4 QOS=part
PartitionName=all Nodes=ALL MaxNodes=2 LLN=YES OverSubscribe=EXCLUSIVE
"""
QOS = """Name|Priority|Preempt|PreemptExemptTime|PreemptMode|UsageFactor|GrpTRES|GrpJobs|MaxTRES|MaxTRESPU|MaxJobsPU
normal|100|||cluster|1.0|||||
high|1000|normal|0|cancel|2.0|||node=2|gres/gpu:a100=8|4
part|0|||off|1.0|cpu=64|9|||
"""
ASSOC = """Cluster|Account|Par Name|User|Share|GrpJobs|GrpTRES|MaxJobs
lab|root|||1|||
lab|sub|physics||10||gres/gpu=6|
lab|physics|root||50|12||3
lab|sub||ann|parent|||
lab|sub||bob|7|||2
"""


def loaded(tmp_path: Path, conf: str = CONF, **more: object) -> SlurmCluster:
    for name, text in (("slurm.conf", conf), ("qos.psv", QOS), ("assoc.psv", ASSOC)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    qos = read_qos(tmp_path / "qos.psv").rows
    associations = read_associations(tmp_path / "assoc.psv", "lab").rows
    return cluster(read_slurm_conf(tmp_path / "slurm.conf"), qos, associations, **more)  # type: ignore[arg-type]


def test_machine(tmp_path: Path) -> None:
    found = loaded(tmp_path)
    assert found.nodes.cpus.tolist() == [32, 32, 32, 64] and found.nodes.weight.tolist() == [1, 1, 1, 5]
    assert found.nodes.gpus.tolist() == [4, 4, 4, 0] and found.nodes.gpu_type.tolist() == [0, 0, 0, w.NONE]
    assert found.partitions.nodes.astype(int).tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]
    assert found.partitions.max_time_s.tolist() == [172_800, w.NO_LIMIT]
    assert found.partitions.max_nodes.tolist() == [w.NO_LIMIT, 2]
    assert found.partitions.exclusive.tolist() == [False, True]
    assert found.partitions.least_loaded.tolist() == [False, True]
    assert found.partitions.qos.tolist() == [found.qos_rows["part"], w.NONE]
    assert found.partitions.billing.tolist() == [[1, 0, 0, 4], [1, 0, 0, 0]]
    assert (found.outages.kind.tolist(), found.outages.nodes.tolist()) == ([w.DRAIN], [[False, False, False, True]])


def test_settings(tmp_path: Path) -> None:
    settings = loaded(tmp_path).settings
    assert (settings.weight_age, settings.weight_tres) == (1000, (10.0, 0.0, 0.0, 200.0))
    assert (settings.bf_interval_s, settings.bf_window_s, settings.bf_max_job_user) == (120, 172_800, 5)
    assert (settings.over_time_limit_s, settings.decay_half_life_s, settings.backfill) == (120, 86_400, True)
    basic = loaded(tmp_path, CONF.replace("priority/multifactor", "priority/basic") + "SchedulerType=sched/builtin\n")
    assert (basic.settings.weight_age, basic.settings.backfill) == (0, False)


def test_qos(tmp_path: Path) -> None:
    found = loaded(tmp_path)
    assert found.qos.names == ("normal", "high", "part")
    assert found.qos.preempts.astype(int).tolist() == [[0, 0, 0], [1, 0, 0], [0, 0, 0]]
    assert found.qos.preempt_mode.tolist() == [w.PREEMPT_REQUEUE, w.PREEMPT_CANCEL, w.PREEMPT_OFF]
    assert found.qos.preempt_exempt_s.tolist() == [300, 0, 300]
    assert found.qos.user_tres.tolist()[1] == [-1, -1, -1, 8] and found.qos.user_jobs.tolist() == [-1, 4, -1]
    assert found.qos.group_tres.tolist()[2] == [64, -1, -1, -1] and found.qos.group_jobs.tolist() == [-1, -1, 9]
    assert found.qos.job_tres.tolist()[1] == [-1, -1, 2, -1] and found.qos.usage_factor.tolist() == [1, 2, 1]


def test_associations_stand_below_their_parents_and_inherit_max_jobs(tmp_path: Path) -> None:
    found = loaded(tmp_path)
    rows, tree = found.association_rows, found.associations
    assert rows["root", ""] == 0 and tree.parent[0] == w.NONE
    assert all(parent < row for row, parent in enumerate(tree.parent.tolist()))
    assert tree.parent[rows["sub", ""]] == rows["physics", ""] and tree.parent[rows["sub", "bob"]] == rows["sub", ""]
    assert tree.max_jobs[rows["sub", "ann"]] == 3 and tree.max_jobs[rows["sub", "bob"]] == 2
    assert tree.group_tres[rows["sub", ""]].tolist() == [-1, -1, -1, 6] and tree.group_jobs[rows["physics", ""]] == 12
    assert tree.shares[rows["sub", ""]] == 10
    assert tree.account[rows["sub", "ann"]] == found.account_rows["sub"]
    assert any("sub/ann: Fairshare=parent" in remark for remark in found.remarks)


def test_what_only_the_jobs_name_is_added_with_a_remark(tmp_path: Path) -> None:
    found = loaded(tmp_path, more_qos=["high", "gone"], more_users=[("sub", "ann"), ("far", "eve")])
    assert found.qos.names[-1] == "gone" and found.qos.group_jobs.tolist()[-1] == w.NO_LIMIT
    assert found.associations.parent[found.association_rows["far", "eve"]] == found.association_rows["far", ""]
    assert [r for r in found.remarks if "gone" in r] and [r for r in found.remarks if "far/eve" in r]


def test_limits_that_are_not_enforced_are_off(tmp_path: Path) -> None:
    found = loaded(tmp_path, CONF.replace("limits,qos", "associations"))
    assert (found.qos.user_tres == w.NO_LIMIT).all() and (found.associations.max_jobs == w.NO_LIMIT).all()
    assert any("AccountingStorageEnforce" in remark for remark in found.remarks)
    assert found.qos.priority.tolist() == [100, 1000, 0]


def test_without_dumps_there_is_one_qos_and_a_root(tmp_path: Path) -> None:
    path = tmp_path / "slurm.conf"
    path.write_text(CONF.replace(" QOS=part", ""), encoding="utf-8")
    found = cluster(read_slurm_conf(path), more_users=[("a", "u")])
    assert found.qos.names == ("normal",) and list(found.association_rows) == [("root", ""), ("a", ""), ("a", "u")]
    assert found.remarks == ()


def test_reservations_and_what_is_not_modelled(tmp_path: Path) -> None:
    maint = Reservation("maint", "res.txt:1", 100, 200, ("n1", "n3"), (), (), ())
    found = loaded(tmp_path, CONF + "TopologyPlugin=topology/tree\nPriorityFlags=MAX_TRES\n", reservations=[maint])
    assert found.outages.kind.tolist() == [w.DRAIN, w.RESERVATION]
    assert (found.outages.begin_s[1], found.outages.end_s[1]) == (100, 200)
    assert found.outages.nodes[1].tolist() == [True, False, True, False]
    assert any("TopologyPlugin" in remark for remark in found.remarks)
    assert any("MAX_TRES" in remark for remark in found.remarks)
    with pytest.raises(InputError, match=r"res\.txt:1: Nodes names 'n9', which is not a node"):
        loaded(tmp_path, reservations=[Reservation("r", "res.txt:1", 1, 2, ("n9",), (), (), ())])


def test_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"slurm\.conf:15: QOS='prat' has no row in the QOS dump"):
        loaded(tmp_path, CONF.replace("QOS=part", "QOS=prat"))


def test_qos_that_preempt_one_another_are_refused(tmp_path: Path) -> None:
    loaded(tmp_path)
    (tmp_path / "qos.psv").write_text("Name|Preempt\na|b\nb|c\nc|a\nd|a\n", encoding="utf-8")
    conf = read_slurm_conf(tmp_path / "slurm.conf")
    with pytest.raises(InputError, match=r"slurm\.conf: the QOS a, b, c preempt one another"):
        cluster(conf, read_qos(tmp_path / "qos.psv").rows)


@pytest.mark.parametrize(("interval_us", "is_named"), [(1_000_000, False), (2_000_000, True)])
def test_a_pause_between_passes_that_the_clock_can_see_is_named(
    tmp_path: Path, interval_us: int, is_named: bool
) -> None:
    conf = CONF + f"SchedulerParameters=sched_min_interval={interval_us}\n"
    assert any("sched_min_interval" in remark for remark in loaded(tmp_path, conf).remarks) == is_named


def test_limits_of_a_relative_qos_are_percentages(tmp_path: Path) -> None:
    """sacctmgr(1), Relative: of the cluster (160 CPUs, 12 GPUs), or of the partition `gpu` (96 CPUs), rounded down."""
    text = "Name|Flags|GrpTRES|MaxTRESPU|GrpJobs\nnormal|Relative|cpu=33,node=50|gres/gpu=40|7\n"
    (tmp_path / "qos.psv").write_text(text + "part|DenyOnLimit,Relative|cpu=33||\n", encoding="utf-8")
    (tmp_path / "slurm.conf").write_text(CONF, encoding="utf-8")
    found = cluster(read_slurm_conf(tmp_path / "slurm.conf"), read_qos(tmp_path / "qos.psv").rows)
    normal, part = (found.qos_rows[name] for name in ("normal", "part"))
    assert found.qos.group_tres[normal].tolist() == [52, w.NO_LIMIT, 2, w.NO_LIMIT]
    assert found.qos.user_tres[normal].tolist() == [w.NO_LIMIT, w.NO_LIMIT, w.NO_LIMIT, 4]
    assert found.qos.group_jobs[normal] == 7
    assert found.qos.group_tres[part].tolist() == [31, w.NO_LIMIT, w.NO_LIMIT, w.NO_LIMIT]


def test_partitions_preempt_by_tier_as_their_modes_say(tmp_path: Path) -> None:
    conf = CONF.replace("preempt/qos", "preempt/partition_prio").replace("MaxNodes=2", "MaxNodes=2 PreemptMode=CANCEL")
    found = loaded(tmp_path, conf + "PartitionName=own Nodes=n1 PreemptMode=OFF Exclusive=NODE\n")
    assert found.settings.preempt_by_partition and not found.qos.preempts.any()
    assert found.partitions.preempt_mode.tolist() == [w.PREEMPT_REQUEUE, w.PREEMPT_CANCEL, w.PREEMPT_OFF]
    assert found.partitions.exclusive.tolist() == [False, True, True]
    off = loaded(tmp_path, conf.replace("PreemptMode=REQUEUE", "PreemptMode=OFF"))
    assert off.partitions.preempt_mode.tolist() == [w.PREEMPT_OFF, w.PREEMPT_OFF]


@pytest.mark.parametrize(
    ("lines", "delay"),
    [
        ("", 121),
        ("AuthInfo=cred_expire=30\n", 31),
        ("SchedulerParameters=requeue_delay=7\nAuthInfo=cred_expire=30\n", 8),
    ],
)
def test_a_requeued_job_waits_for_its_credential_or_the_delay(tmp_path: Path, lines: str, delay: int) -> None:
    assert loaded(tmp_path, CONF + lines).settings.requeue_delay_s == delay
