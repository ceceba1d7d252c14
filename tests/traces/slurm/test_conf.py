"""slurm.conf as sites write it, and what is refused in it with file and line."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traces.errors import InputError
from traces.slurm import conf, node_lists
from traces.slurm import conf_values as values
from traces.slurm.conf import NodeConf, PartitionConf, SlurmConf, filled, read_slurm_conf
from traces.slurm.conf_lines import Pair, read_records
from traces.slurm.reservations import read_reservations
from traces.slurm.text import expand_nodes

LAB = Path(__file__).parents[4] / "shared/traces/slurm-22.05-lab"
needs_lab = pytest.mark.skipif(not LAB.is_dir(), reason="the real dumps of ../shared/traces are not on this machine")

MINIMAL = "NodeName=n[1-2] CPUs=8\nPartitionName=p Nodes=ALL\n"


def read(tmp_path: Path, text: str, name: str = "slurm.conf") -> SlurmConf:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return read_slurm_conf(path)


def refused(tmp_path: Path, text: str) -> str:
    with pytest.raises(InputError) as error:
        read(tmp_path, text)
    assert "\n" not in str(error.value)
    return str(error.value).removeprefix(f"{tmp_path}/")


SITE = r"""# a site's file
ClusterName=deep   # trailing comment
schedulertype=sched/backfill
SchedulerParameters=bf_interval=120,bf_window=4320,\
bf_continue,bf_max_job_user=20,default_queue_depth=200,salloc_wait_nodes,bf_busy_nodes
PriorityType=priority/multifactor
PriorityFlags=SMALL_RELATIVE_TO_TIME,NO_FAIR_TREE
PriorityWeightAge=1000
PriorityWeightTRES=CPU=100,GRES/gpu=1000
PriorityMaxAge=14-0
PriorityDecayHalfLife=2-12
PriorityCalcPeriod=10
PreemptType=preempt/qos
PreemptMode=REQUEUE,GANG
PreemptExemptTime=0:30:00
KillWait=60
OverTimeLimit=5
TopologyPlugin=topology/tree
SlurmctldDebug=info
GresTypes=gpu,nic
Include nodes.conf
NodeSet=big Feature=a100
PartitionName=DEFAULT MaxTime=2-00:00:00 DefaultTime=60 State=UP TRESBillingWeights="CPU=1.0,Mem=0.25G,GRES/gpu=4"
PartitionName=gpu Nodes=big Default=YES PriorityTier=5 PriorityJobFactor=10 OverSubscribe=NO AllowQos=normal,High
PartitionName=all Nodes=gpu[01-03],cpu1 MaxTime=UNLIMITED LLN=yes OverSubscribe=EXCLUSIVE MaxNodes=2 QOS=part
PartitionName=gpu Nodes=gpu03 PriorityTier=6 DenyAccounts=(null) MinNodes=0
DownNodes=gpu02 State=DRAIN Reason="bad disk # not a comment here"
"""
NODES = r"""NodeName=DEFAULT Sockets=2 CoresPerSocket=16 \
    ThreadsPerCore=2 RealMemory=256000 Weight=10
NodeName=gpu[01-02] Gres=gpu:a100:4(S:0-1),nic:1 Feature=a100,ib
NodeName=gpu03 Gres=gpu:h100:2,gpu:a100:2 Weight=20
NodeName=cpu1 CPUs=32 Gres=gpu State=DOWN
"""


@pytest.fixture
def site(tmp_path: Path) -> SlurmConf:
    (tmp_path / "nodes.conf").write_text(NODES.replace("\n", "\r\n"), encoding="utf-8")
    text = SITE.replace(' # not a comment here"', '"')  # a quote protects no '#', slurm.conf(5)
    return read(tmp_path, text)


def test_scheduler_and_priority(site: SlurmConf) -> None:
    options = site.options
    assert (options.bf_interval_s, options.bf_window_min, options.bf_max_job_user) == (120, 4320, 20)
    assert options.default_queue_depth == 200
    assert (options.bf_resolution_s, options.sched_interval_s, options.batch_sched_delay_s) == (60, 60, 3)
    assert (site.cluster, site.weight_age, site.weight_qos) == ("deep", 1000, 0)
    assert site.weight_tres == {"cpu": 100.0, "gres/gpu": 1000.0}
    assert site.priority_flags == ("small_relative_to_time", "no_fair_tree")
    assert (site.max_age_s, site.decay_half_life_s, site.calc_period_s) == (14 * 86_400, 60 * 3_600, 600)
    assert (site.preempt_type, site.preempt_mode, site.preempt_exempt_s) == ("preempt/qos", ("requeue", "gang"), 1800)
    assert (site.kill_wait_s, site.over_time_limit_s) == (60, 300)


def test_nodes(site: SlurmConf) -> None:
    by_name = {node.name: node for node in site.nodes}
    assert list(by_name) == ["gpu01", "gpu02", "gpu03", "cpu1"]
    assert [node.cpus for node in site.nodes] == [64, 64, 64, 32]
    assert [node.weight for node in site.nodes] == [10, 10, 20, 10]
    assert by_name["gpu01"].gpus == {"a100": 4}
    assert by_name["gpu03"].gpus == {"h100": 2, "a100": 2}
    assert by_name["cpu1"].gpus == {"": 1}
    assert [node.is_up for node in site.nodes] == [True, False, True, False]
    assert by_name["gpu02"].features == ("a100", "ib") and by_name["gpu02"].mem_mib == 256000


def test_partitions(site: SlurmConf) -> None:
    gpu, every = site.partitions
    assert (gpu.name, gpu.nodes, gpu.tier, gpu.job_factor) == ("gpu", ("gpu01", "gpu02", "gpu03"), 6, 10)
    assert gpu.over_time_limit_s == 300
    assert (gpu.max_time_s, gpu.default_time_s) == (172_800, 3_600)
    assert gpu.billing_weights == {"cpu": 1.0, "mem": 0.25 / 1024, "gres/gpu": 4.0}
    assert every.nodes == ("gpu01", "gpu02", "gpu03", "cpu1") and every.max_time_s is None
    assert (every.least_loaded, every.oversubscribe, every.max_nodes, every.qos) == (True, "exclusive", 2, "part")
    assert site.default_partition is not None and site.default_partition.name == "gpu"


def test_what_is_not_read_is_listed(site: SlurmConf) -> None:
    assert [line.split(": ", 1)[1] for line in site.unmodelled] == [
        "TopologyPlugin=topology/tree",
        "partition AllowQos=normal,High",
        "SchedulerParameters bf_busy_nodes",
    ]
    assert any(line.endswith("slurm.conf:19: SlurmctldDebug") for line in site.ignored)
    assert any("salloc_wait_nodes" in line for line in site.ignored)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("PriorityWeigthAge=10", ":3: unknown parameter 'PriorityWeigthAge': did you mean 'priorityweightage'?"),
        ("SchedulerParameters=bf_intervall=5", "slurm.conf:3: SchedulerParameters: unknown option 'bf_intervall'"),
        ("SchedulerParameters=bf_interval", "slurm.conf:3: SchedulerParameters: 'bf_interval' needs a value"),
        ("SchedulerParameters=bf_interval=x", "SchedulerParameters: bf_interval='x': a whole number"),
        ("SchedulerParameters=bf_resolution=0", "SchedulerParameters bf_resolution=0: must be at least 1"),
        ("PriorityMaxAge=a week", "slurm.conf:3: 'week' is not Key=Value: quote"),
        ("PriorityMaxAge=week", "slurm.conf:3: PriorityMaxAge='week': minutes, minutes:seconds"),
        ("PriorityWeightTRES=cpu", "slurm.conf:3: PriorityWeightTRES='cpu': a comma-separated list"),
        ("PreemptMode=MAYBE", "slurm.conf:3: PreemptMode='MAYBE': OFF, CANCEL"),
        ("KillWait=-3", "slurm.conf:3: KillWait='-3': a whole number of at least 0"),
        ("NodeName=n[3-1]", "slurm.conf:3: node list 'n[3-1]': range '3-1' is descending"),
        ("NodeName=n2 CPUs=2", "slurm.conf:3: node 'n2' is already declared at"),
        ("NodeName=n3 Gress=gpu:2", "slurm.conf:3: unknown node field 'Gress': did you mean 'gres'?"),
        ("NodeName=n3 Gres=gpu:a:b:4", "slurm.conf:3: Gres='gpu:a:b:4': gpu[:type][:count]"),
        ("PartitionName=q Nodes=n7", "slurm.conf:3: Nodes names 'n7', which no NodeName or NodeSet line declares"),
        ("PartitionName=q Nodes=n1 MaxTiem=5", ":3: unknown partition field 'MaxTiem': did you mean 'maxtime'?"),
        ("PartitionName=q Nodes=n1 State=MAYBE", "slurm.conf:3: State='MAYBE': UP, DOWN, DRAIN"),
        ("DownNodes=n9", "slurm.conf:3: DownNodes names 'n9'"),
        ("Include missing.conf", "slurm.conf:3: Include 'missing.conf': no such file"),
        ("Include slurm.conf", "slurm.conf:3: Include 'slurm.conf': the file includes itself"),
        ("Include %c.conf", "slurm.conf:3: Include '%c.conf': %c needs a ClusterName above it"),
        ("JustAWord", "slurm.conf:3: 'JustAWord' is not Key=Value"),
    ],
)  # fmt: skip
def test_refused(tmp_path: Path, line: str, message: str) -> None:
    assert message in refused(tmp_path, MINIMAL + line + "\n")


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.conf: cannot be read: No such file"):
        read_slurm_conf(tmp_path / "nowhere.conf")
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        read_slurm_conf(tmp_path)
    assert "contains NUL bytes" in refused(tmp_path, MINIMAL + "\0")
    assert "no PartitionName line" in refused(tmp_path, "NodeName=n1\n")
    assert "no NodeName line" in refused(tmp_path, "")


def test_a_continued_line_is_named_by_its_first(tmp_path: Path) -> None:
    assert refused(tmp_path, MINIMAL + "NodeName=x \\\n CPUs=many\n").startswith("slurm.conf:3: CPUs='many'")


def test_the_last_of_a_repeated_parameter_counts(tmp_path: Path) -> None:
    assert read(tmp_path, MINIMAL + "KillWait=1\nkillwait=2\n").kill_wait_s == 2


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5", 300), ("1:30", 90), ("2:00:00", 7_200), ("1-2", 93_600), ("1-02:03", 93_780), ("1-02:03:04", 93_784),
     ("UNLIMITED", None), ("infinite", None)],
)  # fmt: skip
def test_times(text: str, seconds: int | None) -> None:
    assert values.time_s(text) == seconds


@given(days=st.integers(0, 400), seconds=st.integers(0, 86_399))
def test_a_time_written_as_scontrol_does_reads_back(days: int, seconds: int) -> None:
    hours, rest = divmod(seconds, 3_600)
    assert values.time_s(f"{days}-{hours:02}:{rest // 60:02}:{rest % 60:02}") == days * 86_400 + seconds


@given(st.text(alphabet="Np=[]0-1,#\\\"' \n\tIncludeamPrtio%", max_size=60))
def test_any_text_is_read_or_refused_in_one_line(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed.conf"
    path.write_text(MINIMAL + text, encoding="utf-8")
    refusal = ""
    try:
        read_slurm_conf(path)
    except InputError as error:
        refusal = str(error)
    assert not refusal or (str(path) in refusal and "\n" not in refusal)


def controllers(path: Path, first: str) -> list[dict[str, Pair]]:
    """The records of `scontrol show node|partition -o`, without what is not set."""
    unset = {"(null)", "n/a", "none", ""}
    return [
        {key: pair for key, pair in record.items() if pair.value.lower() not in unset}
        for record in read_records(path, first)
    ]


@needs_lab
def test_a_real_file_agrees_with_what_its_controller_says() -> None:
    conf = read_slurm_conf(LAB / "slurm.conf")
    assert len(conf.nodes) == 16 and [p.name for p in conf.partitions] == ["gpu", "debug", "long"]
    assert conf.unmodelled == ()
    for node, record in zip(conf.nodes, controllers(LAB / "scontrol_nodes_o.txt", "NodeName"), strict=True):
        record["features"] = record["activefeatures"]
        shown = replace(filled(NodeConf(node.name, ""), record), cpus=int(record["cputot"].value))
        assert replace(node, where="", state="") == replace(shown, where="", state="") and shown.is_up
    partitions = controllers(LAB / "scontrol_partitions_o.txt", "PartitionName")
    for partition, record in zip(conf.partitions, partitions, strict=True):
        members = tuple(expand_nodes(record["nodes"].value))
        real = filled(PartitionConf(record["partitionname"].value, "", nodes=members), record)
        # scontrol fills in the cluster's PreemptMode where the partition sets none.
        assert replace(partition, where="", preempt_mode=conf.preempt_mode) == replace(real, where="")


THOUSAND = "NodeName=n[1-1000]\n"
OF_THEM = "PartitionName=p{} Nodes={}\n"


@pytest.mark.parametrize(
    ("lines", "over_at", "total"),
    [
        ([f"NodeName=a{i}x[1-1000]\n" for i in range(9)], 5, "over 4000 nodes are declared"),
        ([THOUSAND, *(OF_THEM.format(i, "n[1-1000]") for i in range(20))], 13, "together name over 12000 nodes"),
        ([THOUSAND, *(OF_THEM.format(i, "ALL") for i in range(20))], 13, "together name over 12000 nodes"),
        ([THOUSAND, "NodeSet=s Nodes=ALL\n", *(OF_THEM.format(i, "s") for i in range(20))], 13, "over 12000 nodes"),
        ([THOUSAND, *(f"NodeSet=s{i} Nodes=n[1-1000]\n" for i in range(20))], 13, "together name over 12000 nodes"),
        ([THOUSAND, *("DownNodes=n[1-1000] State=DOWN\n" for _ in range(20))], 13, "together name over 12000 nodes"),
        (
            ["NodeName=n[1-1000] Feature=f\n", *(f"NodeSet=s{i} Feature=f\n" for i in range(20))],
            13,
            "together name over 12000 nodes",
        ),
    ],
    ids=["nodes", "partitions", "ALL", "node set", "node sets", "down nodes", "features"],
)
def test_the_node_lists_of_a_file_are_bounded_together_and_the_line_beyond_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: list[str], over_at: int, total: str
) -> None:
    monkeypatch.setattr(conf, "MOST_NODES", 4_000)
    monkeypatch.setattr(node_lists, "MOST_NAMES", 12_000)
    path = tmp_path / "slurm.conf"
    path.write_text("".join(lines) + ("" if "PartitionName" in lines[-1] else OF_THEM.format("z", "ALL")))
    with pytest.raises(InputError) as caught:
        read_slurm_conf(path)
    at, message = str(caught.value).split(": ", 1)
    assert total in message and message.startswith("up to this line")
    assert abs(int(at.rpartition(":")[2]) - over_at) <= 1


def test_reservations(tmp_path: Path) -> None:
    path = tmp_path / "res.txt"
    line = (
        "ReservationName=maint StartTime=2023-03-14T08:00:00 EndTime={} Duration=08:00:00 Nodes=n[1-2] NodeCnt=2 "
        "Features=(null) Flags=MAINT,SPEC_NODES Users=root,Ann Accounts=(null) State=INACTIVE\n"
    )
    path.write_text(line.format("2023-03-14T16:00:00"), encoding="utf-8")
    (found,) = read_reservations(path, "America/Chicago")
    assert (found.name, found.nodes, found.users, found.accounts) == ("maint", ("n1", "n2"), ("root", "Ann"), ())
    assert (found.start_s, found.end_s - found.start_s) == (1_678_798_800, 8 * 3_600)  # CDT is UTC-5
    assert found.flags == ("maint", "spec_nodes")
    path.write_text("No reservations in the system\n", encoding="utf-8")
    assert read_reservations(path, "UTC") == ()
    for end, message in (
        ("2023-03-14T07:00:00", "ends .* before it starts"),
        ("soon", "EndTime='soon': must be a time such"),
    ):
        path.write_text(line.format(end), encoding="utf-8")
        with pytest.raises(InputError, match=message):
            read_reservations(path, "UTC")


# Versions of Slurm


def versioned(tmp_path: Path, text: str) -> SlurmConf:
    return read(tmp_path, f"NodeName=n1\n{text}PartitionName=p Nodes=n1\n")


@pytest.mark.parametrize(
    ("text", "select", "priority"),
    [
        ("SLURM_VERSION          = 22.05.8\n", "select/linear", "priority/basic"),
        ("SLURM_VERSION          = 23.11.0\n", "select/cons_tres", "priority/multifactor"),
        ("SLURM_VERSION=26.05.5\nSelectType=select/linear\n", "select/linear", "priority/multifactor"),
        ("PreemptParameters=youngest_first\n", "select/linear", "priority/basic"),  # since 23.02
        ("SchedulerParameters=requeue_delay=5\n", "select/cons_tres", "priority/multifactor"),  # since 25.11
        ("", "select/linear", "priority/basic"),
    ],
)
def test_defaults_follow_the_version(tmp_path: Path, text: str, select: str, priority: str) -> None:
    found = versioned(tmp_path, text)
    assert (found.select_type, found.priority_type) == (select, priority)
    assert bool(found.version_remarks) == ("SLURM_VERSION" not in text)  # a default is used, and the version is a guess


def test_names_of_other_versions_are_one_remark(tmp_path: Path) -> None:
    """Slurm 22.05 does not know the first, 26.05 not the second; what both know is not named."""
    text = (
        "PreemptType=preempt/qos\nPreemptMode=REQUEUE\nPreemptParameters=reorder_count=3,send_user_signal\n"
        "SelectType=select/cons_res\nPriorityType=priority/multifactor\nSchedulerParameters=bf_window=99\n"
    )
    (old,) = versioned(tmp_path, f"SLURM_VERSION=22.05.8\n{text}").version_remarks
    assert old.endswith("than Slurm 22.05: preemptparameters (since 23.02, else SchedulerParameters=preempt_...)")
    (new,) = versioned(tmp_path, f"SLURM_VERSION=26.05.5\n{text}").version_remarks
    assert new.endswith("than Slurm 26.05: selecttype select/cons_res (until 23.11, else select/cons_tres)")


def test_preemption_parameters_have_two_spellings(tmp_path: Path) -> None:
    new = versioned(tmp_path, "PreemptParameters=reorder_count=3,strict_order,youngest_first\n").options
    old = versioned(
        tmp_path, "SchedulerParameters=preempt_reorder_count=3,preempt_strict_order,preempt_youngest_first\n"
    ).options
    assert new == old
    assert (new.preempt_reorder_count, new.preempt_strict_order, new.preempt_youngest_first) == (3, True, True)
    assert versioned(tmp_path, "PreemptParameters=reclaim_licenses\n").unmodelled[0].endswith("reclaim_licenses")
    with pytest.raises(InputError, match=r"slurm\.conf:2: PreemptParameters: unknown option 'oldest_first'"):
        versioned(tmp_path, "PreemptParameters=oldest_first\n")


@pytest.mark.parametrize("text", ["26", "newest", "26.5.1"])
def test_a_strange_version_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match=r"slurm\.conf:2: SLURM_VERSION='.*': a version such as 24\.11\.5 is allowed"):
        versioned(tmp_path, f"SLURM_VERSION={text}\n")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("", 120), ("AuthInfo=socket=/run/m,cred_expire=15\n", 15), ("AuthInfo=cred_expire=4\n", 120)],
)
def test_how_long_a_credential_lives(tmp_path: Path, text: str, seconds: int) -> None:
    assert versioned(tmp_path, text).cred_expire_s == seconds


def test_every_name_of_the_manual_pages_is_known(tmp_path: Path) -> None:
    """slurm_conf_names.txt: the names in slurm.conf(5) of 22.05.8, 24.11.5 and 26.05.5 that decide scheduling."""
    forms = {
        "scheduler": "SchedulerParameters={}=1\n" + MINIMAL,
        "preempt": "PreemptParameters={}=1\n" + MINIMAL,
        "parameter": "{}=1\n" + MINIMAL,
        "node": "NodeName=n[1-2] {}=1\nPartitionName=p Nodes=ALL\n",
        "partition": "NodeName=n[1-2]\nPartitionName=p {}=1\n",
    }
    lines = (Path(__file__).parents[2] / "fixtures/slurm_conf_names.txt").read_text().splitlines()
    unknown = []
    for kind, name, _ in (line.split() for line in lines):
        try:
            read(tmp_path, forms[kind].format(name))
        except InputError as error:  # 1 may be a bad value
            unknown += re.findall(rf"unknown .*'{name}\b", str(error))
    assert len(lines) > 150 and not unknown
