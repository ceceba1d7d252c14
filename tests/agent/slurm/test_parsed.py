"""What Slurm's commands print, as objects: rows as they are, rows that are hostile, and rows that are broken."""

from __future__ import annotations

import pytest

from agent.slurm.accounting import PastJob, parse_past, read_past
from agent.slurm.commands import SlurmError
from agent.slurm.limits import QosTable, UserLimits, read_defaults, read_limits
from agent.slurm.nodes import SinfoStates, in_service, parse_nodes
from agent.slurm.numbers import UNLIMITED_S
from agent.slurm.queue import FIELDS, parse_queue
from agent.slurm.settings import parse_partitions, parse_settings
from features.snapshot import NO_LIMIT
from tests.agent.replayed_slurm import RecordedJob, ReplayedSlurm

HOUR, DAY = 3600, 86400
MARK = "|c0ffee|"
# squeue of Slurm 22.05.8 on the cluster of tests/live/slurm.py, a field a line.
RUNNING = ["2", "train", "root", "science", "gpu", "normal", "RUNNING", "None", "4", "2:00:00", "1795361071",
           "1795361072", "1795368272", "281", "0", "(null)", "n[1-4]"]  # fmt: skip
PENDING = ["3_7", "evil\nname", "games", "(null)", "urgent,gpu", "normal", "PENDING", "JobArrayTaskLimit", "1",
           "UNLIMITED", "1795361071", "N/A", "N/A", "70", "2", "a|b x", ""]  # fmt: skip
PARTITION = (
    "PartitionName=gpu AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=YES QoS={qos} "
    "DefaultTime=01:00:00 DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO MaxNodes=UNLIMITED "
    "MaxTime=2-00:00:00 MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED Nodes=n[1-4] PriorityJobFactor=1 PriorityTier=9 "
    "RootOnly=NO ReqResv=NO OverSubscribe=NO OverTimeLimit=NONE PreemptMode=REQUEUE State=UP TotalCPUs=32 TotalNodes=4 "
    "SelectTypeParameters=NONE JobDefaults=(null) DefMemPerCPU=1000 MaxMemPerNode=UNLIMITED "
    "TRES=cpu=32,mem=125G,node=4,billing=32,gres/gpu=16,gres/gpu:a100=16\n"
)
CONFIG = """Configuration data as of 1795361075
AccountingStorageEnforce = {enforced}
AccountingStorageType   = accounting_storage/slurmdbd
ClusterName             = live
PriorityMaxAge          = 7-00:00:00
PriorityType            = priority/multifactor
PriorityWeightAge       = 1000
PrivateData             = jobs,usage
SLURM_VERSION           = 22.05.8

Slurmctld(primary) at vm is UP
"""


def printed(*rows: list[str]) -> str:
    return "".join("".join(field + MARK for field in row) + "\n" for row in rows)


def test_a_queue_as_slurm_prints_it() -> None:
    queue = parse_queue(printed(RUNNING, PENDING), MARK, 1795361080)
    running, pending = queue.jobs
    assert (running.id, running.state, running.nodes, running.limit_s, running.node_list) == ("2", "RUNNING", 4, 7200,
                                                                                             "n[1-4]")  # fmt: skip
    assert (running.submit_s, running.start_s, running.end_s) == (1795361071, 1795361072, 1795368272)
    assert (running.priority, running.restarts, running.comment) == (281, 0, "")
    assert (pending.id, pending.name, pending.account, pending.comment) == ("3_7", "evil\nname", "", "a|b x")
    assert (pending.limit_s, pending.start_s, pending.restarts) == (UNLIMITED_S, None, 2)
    assert (queue.unread, queue.ended, queue.hidden, queue.now_s) == (0, (), frozenset(), 1795361080)


def test_no_job_name_forges_a_row() -> None:
    row = list(RUNNING)
    forged = printed([*RUNNING]).replace(MARK, "|c0ffe0|")  # another call's mark is the most that anyone can know
    row[FIELDS.index("Name")], row[FIELDS.index("Comment")] = forged, "x\n" * 50 + "|" * 50
    (job,) = parse_queue(printed(row), MARK, 0).jobs
    assert (job.name, job.id) == (forged, "2")


def test_ended_jobs_stand_apart_and_rows_that_cannot_be_parsed_are_counted() -> None:
    over, broken, worse = list(RUNNING), list(RUNNING), list(RUNNING)
    over[FIELDS.index("State")] = "COMPLETED"
    broken[FIELDS.index("TimeLimit")] = "INVALID"
    worse[FIELDS.index("SubmitTime")] = "-5"
    queue = parse_queue(printed(RUNNING, over, broken, worse), MARK, 0)
    assert (len(queue.jobs), len(queue.ended), queue.unread) == (1, 1, 2)
    assert parse_queue("", MARK, 0).jobs == ()


@pytest.mark.parametrize("text", ["x", printed(RUNNING)[:-20], printed(RUNNING[:-1]), printed(["?"] * len(FIELDS))])
def test_another_layout_is_nonsense(text: str) -> None:
    with pytest.raises(SlurmError) as caught:
        parse_queue(text, MARK, 0)
    assert caught.value.kind == "nonsense"


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ("idle mixed allocated completing planned mixed- idle~ idle# idle@ powered_down", True),
        ("draining allocated* allocated$ draining@ failing", True),  # until their jobs end
        ("down down* drained drained* idle* maint maint* reserved fail inval unknown", False),
        ("idle$ idle^ reboot future perfctrs blocked ?!", False),
    ],
)
def test_which_nodes_are_in_service(states: str, expected: bool) -> None:
    assert [state for state in states.split() if in_service(state) is not expected] == []


def test_nodes_as_sinfo_prints_them() -> None:
    nodes = parse_nodes("allocated|n[1-2,7]\nidle|n3\ndrained*|gpu-[01-02]\n")
    assert nodes.states["n7"] == "allocated" and nodes.states["gpu-02"] == "drained*"
    assert nodes.in_service(frozenset({"n1", "n3", "gpu-01", "elsewhere"})) == 2
    assert parse_nodes("") == SinfoStates({})
    for text in ("idle n1\n", "idle|n[1-\n"):
        with pytest.raises(SlurmError):
            parse_nodes(text)


def test_settings_as_scontrol_prints_them() -> None:
    settings = parse_settings(CONFIG.format(enforced="associations,limits,qos"))
    assert (settings.version, settings.cluster, settings.now_s) == ("22.05.8", "live", 1795361075)
    assert settings.private == {"jobs", "usage"}
    assert settings.enforced == {"associations", "limits", "qos"}
    assert (settings.age_weight, settings.age_most_s) == (1000, 7 * DAY)
    assert parse_settings(CONFIG.format(enforced="none")).enforced == frozenset()
    flags = CONFIG.replace("PriorityMaxAge ", "PriorityFlags           = ACCRUE_ALWAYS,NO_FAIR_TREE\nPriorityMaxAge ")
    assert parse_settings(flags.format(enforced="none")).ages_held and not settings.ages_held
    for text in (flags.replace("= 1000", "= 0"), flags.replace("multifactor", "basic")):
        assert not parse_settings(text.format(enforced="none")).ages_held, "held or not, no job gains priority"
    broken = (CONFIG.replace("1795361075", "yesterday"), CONFIG.replace("7-00:00:00", "a week"))
    for text in ("", "nothing at all\n", *broken):
        with pytest.raises(SlurmError):
            parse_settings(text)


def test_partitions_as_scontrol_prints_them() -> None:
    (partition,) = parse_partitions(PARTITION.format(qos="N/A")).values()
    assert (partition.name, partition.tier, partition.qos, partition.limit_s) == ("gpu", 9, "", 2 * DAY)
    assert partition.is_default and partition.nodes == {"n1", "n2", "n3", "n4"}
    with pytest.raises(SlurmError, match="partition gpu"):
        parse_partitions(PARTITION.format(qos="N/A").replace("n[1-4]", "n[1-"))
    assert (partition.whole["node"], partition.whole["gres/gpu"], partition.whole["cpu"]) == (4, 16, 32)


class Sacctmgr(ReplayedSlurm):
    """Answers with one association and some QOS."""

    def __init__(self, association: str, *qos: str) -> None:
        """Rows may leave out the columns of limits on submission."""
        super().__init__([])
        rows = association.splitlines()
        self.association = "".join(f"{row}{'|||' if row.count('|') == 5 else ''}\n" for row in rows)
        self.qos = [f"{row}{'|' * (9 - row.count('|'))}" for row in qos]
        self.first = 0  # association of the default account; those before are of another one

    def run(self, *argv: str, **_: object) -> str:
        if "user" in argv:
            return "science|games|normal\nscience|science|normal\n"
        if "association" in argv:
            rows = self.association.splitlines(keepends=True)
            return "".join(rows[self.first if "account=science" in argv else 0 :])
        return "".join(f"{row}\n" for row in self.qos)


@pytest.mark.parametrize(
    ("association", "qos", "partition_qos", "expected"),
    [
        ("|normal|normal,high|||\n", ["normal|||"], "", UserLimits()),
        ("|normal|normal,high|3||\n", ["normal|||"], "", UserLimits(jobs=3)),
        (
            "|normal|normal,high|3|2|node=5\n",
            ["normal|||"],
            "",
            UserLimits(2, 5),
        ),  # GrpJobs and GrpTRES of a user's own association
        ("||normal|3||\n", ["normal||7|"], "", UserLimits(jobs=7)),  # the only QOS that it may use
        ("||normal,high|3||\n", ["normal||7|"], "", UserLimits(jobs=3)),
        ("|normal|normal,high|3||\n", ["normal||7|"], "", UserLimits(jobs=7)),  # a QOS goes before the association
        (
            "|normal|normal,high|3||\n",
            ["normal||7|", "part||9|"],
            "part",
            UserLimits(jobs=9),
        ),  # that of the partition before both
        ("|normal|normal,high|3||\n", ["normal|OverPartQOS|7|", "part||9|"], "part", UserLimits(jobs=7)),
        ("|normal|normal,high|||\n", ["normal|||gres/gpu=12"], "", UserLimits(nodes=3)),  # nodes of four GPUs
        ("|normal|normal,high|||\n", ["normal|||cpu=24,gres/gpu=8,node=6"], "", UserLimits(nodes=2)),  # the tightest
        ("|normal|normal,high|||node=2\n", ["normal|||gres/gpu=12"], "", UserLimits(nodes=2)),  # each TRES for itself
        ("|normal|normal,high|||\n", ["normal|||gres/gpu:h100=12,mem=4G"], "", UserLimits()),  # not counted as nodes
        ("other|normal|normal,high|1||\n|normal|normal,high|4||\n", ["normal|||"], "", UserLimits(jobs=4)),
        (
            "|normal|normal||||9|6|2-00:00:00\n",
            ["normal||||4|"],
            "",
            UserLimits(submitted=4, wall_s=2 * 86400),
        ),
        (
            "|normal|normal||||9|6|2-00:00:00\n",
            ["normal|||||06:00:00"],
            "",
            UserLimits(submitted=6, wall_s=6 * 3600),
        ),
        (
            "gpu|normal|normal,high|1||\n|normal|normal,high|4||\n",
            ["normal|||"],
            "",
            UserLimits(jobs=1),
        ),  # the association in this partition
    ],
)
def test_the_first_limit_that_is_set_holds(
    association: str, qos: list[str], partition_qos: str, expected: UserLimits
) -> None:
    settings = parse_settings(CONFIG.format(enforced="associations,limits"))
    (partition,) = parse_partitions(PARTITION.format(qos=partition_qos or "N/A")).values()
    commands = Sacctmgr(association, *qos)
    assert read_limits(commands, settings, partition, user="me", account="", qos="")[0] == expected


def test_each_qos_that_the_user_may_use_with_its_limits_and_its_share_of_the_priority() -> None:
    """`top` is not the user's, but counts as the highest; `part` is the partition's and sets one limit first."""
    rows = [
        "normal||||9||10", "short||2|node=3|1|02:00:00|60|2.0|low|node=2", "low||||||0|0.5", "top||||||100||short,low",
        "part|||||06:00:00",
    ]  # fmt: skip
    (partition,) = parse_partitions(PARTITION.format(qos="part")).values()
    association = "|normal|normal,short,low|4|||||3-00:00:00\n"

    def table_of(**lines: str) -> QosTable:
        text = CONFIG.format(enforced="qos,limits") + "".join(f"{key} = {value}\n" for key, value in lines.items())
        commands, settings = Sacctmgr(association, *rows), parse_settings(text)
        return read_limits(commands, settings, partition, user="me", account="", qos="")[1]

    table = table_of(PreemptType="preempt/qos")
    assert (table.own, list(table.by_name)) == ("normal", ["normal", "short", "low"])
    normal, short, low = table.by_name.values()
    assert short.limits == UserLimits(2, 3, 1, 6 * 3600, 2) and normal.limits == UserLimits(
        4, submitted=9, wall_s=21600
    )
    assert (normal.is_alone, short.is_alone, low.is_alone) == (False, True, False), "only QOS short limits running jobs"
    assert short.counts("short", "short") and not short.counts("short", "normal") and low.counts("low", "normal")
    assert (normal.usage_factor, short.usage_factor, low.usage_factor) == (1, 2, 0.5)
    assert (short.preempting, low.preempting, normal.preempting) == (("top",), ("short", "top"), ())
    assert table_of().by_name["low"].preempting == (), "PreemptType=preempt/none"
    assert table.shift(1000, "short", "normal") == 500 == -table.shift(1000, "", "short")
    assert table.shift(1000, "short", "unknown") == 0
    assert table_of(PriorityFlags="NO_NORMAL_QOS").shift(1000, "short", "normal") == 50_000


def test_of_several_accounts_the_default_one_counts() -> None:
    (partition,) = parse_partitions(PARTITION.format(qos="N/A")).values()
    settings = parse_settings(CONFIG.format(enforced="qos,limits"))
    commands = Sacctmgr("gpu|normal|normal|1||\n|short|normal,short|4||\n", "normal|", "short|")
    commands.first = 1
    limits, table = read_limits(commands, settings, partition, user="me", account="", qos="")
    assert (limits, table.own, list(table.by_name)) == (UserLimits(jobs=4), "short", ["short", "normal"])


def test_an_odd_usage_factor_is_nonsense() -> None:
    (partition,) = parse_partitions(PARTITION.format(qos="N/A")).values()
    settings = parse_settings(CONFIG.format(enforced="qos"))
    commands = Sacctmgr("|normal|normal||||||\n", "normal||||||0|much")
    with pytest.raises(SlurmError, match="UsageFactor 'much'"):
        read_limits(commands, settings, partition, user="me", account="", qos="")


def test_limits_that_are_not_enforced_and_those_that_are_not_shown() -> None:
    (partition,) = parse_partitions(PARTITION.format(qos="N/A")).values()
    free = parse_settings(CONFIG.format(enforced="associations"))
    found = read_limits(Sacctmgr(""), free, partition, user="me", account="", qos="")
    assert found == (UserLimits(NO_LIMIT, NO_LIMIT), QosTable())
    enforced = parse_settings(CONFIG.format(enforced="limits"))
    odd = "|normal|normal||||9|6|soon\n"
    for rows in (odd, "", "other|normal|normal,high|1||\n", "a|b\n", "gpu|normal\n"):
        with pytest.raises(SlurmError):
            read_limits(Sacctmgr(rows), enforced, partition, user="me", account="", qos="")


def test_the_past_as_sacct_prints_it() -> None:
    text = (
        "12|root|gpu|COMPLETED|1000|1060|4660|01:00:00|2\n"
        "13_4|games|gpu|RUNNING|1000|1060|Unknown|UNLIMITED|1\n"
        "14|games|gpu|CANCELLED by 1000|1000|None|1500|00:30:00|1\n"
        "15|games|gpu|CANCELLED by 1000|1000|1500|1500|00:30:00|1\n"  # before Slurm 22.05
        "16_[0-20%2]|games|gpu|PENDING|1000|Unknown|Unknown|00:30:00|1\n"
        "17|games|gpu|COMPLETED|1000|1060\n"
    )
    past = parse_past(text)
    never = PastJob("14", "games", "gpu", 1, 1800, 1000, None, 1500)
    assert past.jobs[0] == PastJob("12", "root", "gpu", 2, HOUR, 1000, 1060, 4660)
    assert past.jobs[1] == PastJob("13_4", "games", "gpu", 1, UNLIMITED_S, 1000, 1060, None)
    assert past.jobs[2:] == (never, PastJob("15", "games", "gpu", 1, 1800, 1000, None, 1500))
    assert past.unread == 1
    with pytest.raises(SlurmError):
        parse_past("Slurm accounting storage is disabled\n")


@pytest.mark.parametrize(("started_in_a_day", "calls"), [(99, 2), (100, 1)])
def test_few_jobs_in_a_day_are_looked_for_in_a_week(started_in_a_day: int, calls: int) -> None:
    now_s = 1_700_000_000
    lately = [RecordedJob(str(k), "u", 1, HOUR, now_s - 9 * HOUR, now_s - 8 * HOUR, now_s - 7 * HOUR, node_list="n1")
              for k in range(started_in_a_day)]  # fmt: skip
    before = RecordedJob("1000", "u", 1, HOUR, now_s - 3 * DAY, now_s - 3 * DAY, now_s - 3 * DAY + 9, node_list="n1")
    slurm = ReplayedSlurm([*lately, before], now_s)
    past = read_past(slurm, now_s)
    assert slurm.calls["sacct"] == calls
    assert ("1000" in {job.id for job in past.jobs}) is (calls == 2)


@pytest.mark.parametrize(
    ("text", "account", "qos", "why"),
    [
        ("AllowAccounts=ALL AllowQos=ALL", "a", "q", ""),
        ("AllowAccounts=b,c AllowQos=ALL", "a", "q", "does not allow account a: AllowAccounts=b,c"),
        ("AllowAccounts=A,c AllowQos=ALL", "a", "q", ""),
        ("DenyAccounts=a DenyQos=r", "a", "q", "does not allow account a: DenyAccounts=a"),
        ("AllowAccounts=ALL AllowQos=r", "a", "q", "does not allow QOS q: AllowQos=r"),
        ("AllowAccounts=b AllowQos=r", "", "", ""),  # not known
    ],
)
def test_whom_a_partition_refuses(text: str, account: str, qos: str, why: str) -> None:
    (partition,) = parse_partitions(PARTITION.format(qos="N/A").rstrip() + f" {text}\n").values()
    assert partition.refusal(account, qos).removeprefix(f"partition {partition.name} ") == why


def test_the_account_and_the_qos_of_a_job_that_names_none() -> None:
    class Users(ReplayedSlurm):
        def run(self, *argv: str, **_: object) -> str:
            return "science|science|normal\nscience|other|high\n"

    assert read_defaults(Users([]), "me", "") == ("science", "normal")
    assert read_defaults(Users([]), "me", "other") == ("other", "high")
    assert read_defaults(Users([]), "me", "third") == ("third", "")
