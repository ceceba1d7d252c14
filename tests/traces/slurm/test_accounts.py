"""QOS and associations as `sacctmgr -P` prints them."""

from __future__ import annotations

from pathlib import Path

import pytest

from traces.errors import InputError
from traces.slurm.accounts import read_associations, read_qos

HEADINGS = (  # of sacctmgr 22.05, in its order
    "Name", "Priority", "GraceTime", "Preempt", "PreemptExemptTime", "PreemptMode", "Flags", "UsageThres",
    "UsageFactor", "GrpTRES", "GrpTRESMins", "GrpTRESRunMins", "GrpJobs", "GrpSubmit", "GrpWall", "MaxTRES",
    "MaxTRESPerNode", "MaxTRESMins", "MaxWall", "MaxTRESPU", "MaxJobsPU", "MaxSubmitPU", "MaxTRESPA", "MaxJobsPA",
    "MaxSubmitPA", "MinTRES",
)  # fmt: skip
ROWS = (
    {"Name": "normal", "Priority": "100", "PreemptMode": "cluster", "UsageFactor": "1.000000"},
    {"Name": "high", "Priority": "1000", "GraceTime": "00:05:00", "Preempt": "normal,scavenger",
     "PreemptExemptTime": "00:30:00", "PreemptMode": "requeue", "Flags": "DenyOnLimit,OverPartQOS",
     "UsageFactor": "2.500000", "MaxTRESPU": "gres/gpu=24", "MaxTRESPA": "node=9"},
    {"Name": "capped", "Priority": "10", "GrpTRES": "cpu=64,gres/gpu=8,mem=1T", "GrpJobs": "5", "MaxTRES": "node=2",
     "MaxWall": "1-00:00:00", "MaxJobsPU": "4", "MaxSubmitPU": "10", "MaxJobsPA": "7"},
    {"Name": "scavenger", "Priority": "1", "PreemptMode": "cancel", "UsageFactor": "0.000000",
     "GrpTRESMins": "cpu=600"},
)  # fmt: skip
QOS = "\n".join(["|".join(HEADINGS), *("|".join(row.get(name, "") for name in HEADINGS) for row in ROWS), ""])
ASSOC = """Cluster|Account|Par Name|User|Partition|Share|Priority|GrpJobs|GrpTRES|MaxJobs|MaxTRES|MaxSubmit|QOS|Def QOS
lab|root||||1||||||||
lab|root||root||1|||||||normal|
lab|physics|root|||50|||||||normal|
lab|physics||alice||1|||||||normal,high|normal
lab|ml|root|||30||20|gres/gpu=16|5||||
lab|ml_sub|ml|||10||||||||
lab|ml_sub||dave||parent||||3|node=4|100|Normal|
other|root||||1||||||||
"""
TREE = """Cluster|Account|User|Share
lab|root||1
lab| ml||30
lab|  ml_sub||10
lab|  ml_sub|dave|1
lab| physics||50
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "dump.psv"
    path.write_text(text, encoding="utf-8")
    return path


def test_qos(tmp_path: Path) -> None:
    dump = read_qos(written(tmp_path, QOS))
    normal, high, capped, scavenger = dump.rows
    assert (normal.priority, normal.usage_factor, normal.grp_tres, normal.preempt_mode) == (100, 1.0, {}, "cluster")
    assert (high.preempt, high.preempt_mode, high.preempt_exempt_s) == (("normal", "scavenger"), "requeue", 1_800)
    assert (high.max_tres_per_user, high.max_tres_per_account, high.usage_factor) == (
        {"gres/gpu": 24},
        {"node": 9},
        2.5,
    )
    assert high.flags == ("denyonlimit", "overpartqos")
    assert capped.grp_tres == {"cpu": 64, "gres/gpu": 8, "mem": 1024**2}
    assert (capped.grp_jobs, capped.max_jobs_per_user, capped.max_jobs_per_account) == (5, 4, 7)
    assert capped.max_tres_per_job == {"node": 2}
    assert (scavenger.usage_factor, scavenger.preempt_mode) == (0.0, "cancel")
    assert [line.split(": ")[1] for line in dump.unmodelled] == [
        "QOS high GraceTime=00:05:00",
        "QOS capped MaxSubmitPU=10",
        "QOS capped MaxWall=1-00:00:00",
        "QOS scavenger GrpTRESMins=cpu=600",
    ]


def test_associations(tmp_path: Path) -> None:
    dump = read_associations(written(tmp_path, ASSOC), "lab")
    assert [(row.account, row.parent, row.user) for row in dump.rows] == [
        ("root", "", ""), ("root", "", "root"), ("physics", "root", ""), ("physics", "", "alice"),
        ("ml", "root", ""), ("ml_sub", "ml", ""), ("ml_sub", "", "dave"),
    ]  # fmt: skip
    ml, dave = dump.rows[4], dump.rows[6]
    assert (ml.shares, ml.grp_jobs, ml.grp_tres, ml.max_jobs) == (30, 20, {"gres/gpu": 16}, 5)
    assert (dave.shares, dave.max_jobs, dave.max_tres_per_job, dave.qos) == (None, 3, {"node": 4}, ("normal",))
    assert dump.rows[3].qos == ("normal", "high")
    assert [line.split(": ")[1] for line in dump.unmodelled] == ["association ml_sub/dave MaxSubmit=100"]


def test_an_indented_tree_says_who_stands_below_whom(tmp_path: Path) -> None:
    rows = read_associations(written(tmp_path, TREE), "lab").rows
    assert [(row.account, row.parent) for row in rows if not row.user] == [
        ("root", ""), ("ml", "root"), ("ml_sub", "ml"), ("physics", "root"),
    ]  # fmt: skip
    flat = read_associations(written(tmp_path, TREE.replace("  ", "").replace("| ", "|")), "lab")
    assert {row.parent for row in flat.rows} == {""} and "accounts have no parents" in flat.unmodelled[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "dump.psv:1: no column 'Name'"),
        ("Priority|Flags\n1|\n", "dump.psv:1: no column 'Name'"),
        (QOS.replace("normal|100|", "normal|"), "dump.psv:2: 25 fields, but the heading has 26"),
        (QOS.replace("|100|", "|high|"), "dump.psv:2: Priority 'high': a whole number"),
        (QOS.replace("2.500000", "much"), "dump.psv:3: UsageFactor 'much': a number"),
        (QOS.replace("gres/gpu=24", "gres/gpu"), "dump.psv:3: MaxTRESPU 'gres/gpu': a comma-separated list"),
        (QOS.replace("normal,scavenger", "norml"), "QOS 'high' preempts 'norml', which has no row"),
        (QOS.replace("capped|10", "high|10"), "dump.psv:4: QOS 'high' has two rows"),
    ],
)
def test_refused_qos(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        read_qos(written(tmp_path, text))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("text", "cluster", "message"),
    [
        (ASSOC, "", "holds associations of lab, other, not of one cluster ''"),
        (ASSOC, "far", "holds associations of lab, other, not of one cluster 'far'"),
        (ASSOC.replace("|parent|", "|some|"), "lab", "dump.psv:8: Share 'some': a whole number"),
        (ASSOC.replace("lab|ml|root|", "lab|ml|rot|"), "lab", "dump.psv:6: account 'rot' has no row of its own"),
        (ASSOC.replace("lab|physics|root|", "lab||root|"), "lab", "dump.psv:4: the association has no account"),
    ],
)
def test_refused_associations(tmp_path: Path, text: str, cluster: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        read_associations(written(tmp_path, text), cluster)
    assert message in str(error.value)
