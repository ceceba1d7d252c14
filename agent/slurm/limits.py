"""The QOS that a user's jobs may have, and the limits under each on jobs, nodes and time: two calls of sacctmgr.

Slurm looks for a limit in the partition's QOS, then in the job's QOS, then in the user's association, and uses the
first that is set (https://slurm.schedmd.com/resource_limits.html, "Hierarchy"). A job QOS with the flag OverPartQOS
precedes the partition's. We convert a limit on GPUs or processors to whole nodes of the partition: 12 GPUs are 3 nodes
of 4 GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agent.slurm.commands import Commands, SlurmError, answer_lines
from agent.slurm.numbers import UNLIMITED_S, time_limit_s, tres_counts, whole_number_or_none
from agent.slurm.settings import Partition, ScontrolConfig
from features.snapshot import NO_LIMIT

ENFORCING = frozenset({"limits", "safe", "all"})  # values of AccountingStorageEnforce; otherwise no limit is enforced
CHECKING = ENFORCING | {"qos"}  # otherwise Slurm does not check the QOS of jobs
COUNTED = ("node", "gres/gpu", "cpu")  # TRES that are converted to nodes
QOS_COLUMNS = (
    "Name", "Flags", "MaxJobsPU", "MaxTRESPU", "MaxSubmitPU", "MaxWall", "Priority", "UsageFactor", "Preempt",
    "MaxTRES",
)  # fmt: skip


@dataclass(frozen=True)
class UserLimits:
    """The most jobs and whole nodes that one user may have running at once, and two limits on submission."""

    jobs: int = NO_LIMIT
    nodes: int = NO_LIMIT  # whole nodes
    submitted: int = NO_LIMIT  # jobs, pending or running
    wall_s: int = UNLIMITED_S  # longest time limit of a job
    job_nodes: int = NO_LIMIT  # whole nodes of one job


@dataclass(frozen=True)
class UserQos:
    """One QOS that the user's jobs may have, in a partition."""

    limits: UserLimits = field(default_factory=UserLimits)
    is_alone: bool = False  # whether the limits on running jobs count the user's jobs of this QOS alone
    is_submit_alone: bool = False  # the same of the limit on submitted jobs
    usage_factor: float = 1.0
    preempting: tuple[str, ...] = ()  # QOS whose jobs may end its jobs

    def counts(self, name: str, other: str) -> bool:
        """Whether the limit on submitted jobs of this QOS, `name`, counts a job of the QOS `other`."""
        return name == other or not self.is_submit_alone


@dataclass(frozen=True)
class QosTable:
    """The QOS that a user's jobs may have in a partition. own: that of the request; "" if not known.

    factors: of every QOS, what PriorityWeightQOS multiplies: its Priority over the highest of any QOS.
    """

    own: str = ""
    by_name: Mapping[str, UserQos] = field(default_factory=dict)
    factors: Mapping[str, float] = field(default_factory=dict)

    def shift(self, weight: int, to: str, since: str) -> int:
        """Return the priority that a job of the QOS `to` has more than one of `since`; 0 if one is not known."""
        known = [self.factors.get(name or self.own) for name in (to, since)]
        return 0 if None in known else round(weight * (known[0] - known[1]))  # type: ignore[operator]


@dataclass(frozen=True)
class _Level:
    """The limits of one QOS or association; None if not set."""

    jobs: int | None
    tres: dict[str, int]
    submitted: int | None
    wall_s: int | None
    job_tres: dict[str, int] = field(default_factory=dict)


def read_limits(
    commands: Commands, settings: ScontrolConfig, partition: Partition, *, user: str, account: str, qos: str
) -> tuple[UserLimits, QosTable]:
    """Read the limits on a user's jobs of a QOS in a partition, and those of each QOS that the user may use.

    account, qos: "" for the user's default one. Without checks of QOS (CHECKING) the table is empty. Raises SlurmError,
    also if the association is not visible.
    """
    if not CHECKING & settings.enforced:
        return UserLimits(), QosTable()
    where = [f"user={user}", f"cluster={settings.cluster}"] + ([f"account={account}"] if account else [])
    association = ("sacctmgr", "--noheader", "--parsable2", "show", "association", "where")
    own = commands.run(
        *association, *where, "format=Partition,DefaultQOS,QOS,MaxJobs,GrpJobs,GrpTRES,MaxSubmit,GrpSubmit,MaxWall"
    )
    rows = _rows(own, 9)
    if len(rows) > 1 and not account and (default := read_defaults(commands, user, "")[0]):
        return read_limits(commands, settings, partition, user=user, account=default, qos=qos)
    fitting = [row for row in rows if row[0] == partition.name] or [row for row in rows if not row[0]]
    if not fitting:
        raise SlurmError("refused", "sacctmgr", f"it shows no association of user {user}")
    _, default_qos, allowed_qos, *jobs, tres, most, group, wall = fitting[0]
    allowed = [name for name in allowed_qos.split(",") if name]
    if not default_qos and len(allowed) == 1:
        default_qos = allowed[0]
    level = _Level(_least(jobs), _tres(tres), _least([most, group]), _wall_s(wall))
    layout = ("sacctmgr", "--noheader", "--parsable2", "show", "qos", f"format={','.join(QOS_COLUMNS)}")
    by_name = {row[0]: row for row in _rows(commands.run(*layout), len(QOS_COLUMNS))}
    name = qos or default_qos
    found = {one: _user_qos(by_name, one, level, partition, settings) for one in dict.fromkeys((name, *allowed))}
    priorities = {one: whole_number_or_none(row[6]) or 0 for one, row in by_name.items()}
    highest = 1 if settings.is_qos_raw else max(priorities.values(), default=0) or 1
    factors = {one: priority / highest for one, priority in priorities.items()}
    return found[name].limits, QosTable(name, {one: of for one, of in found.items() if one in by_name}, factors)


def read_defaults(commands: Commands, user: str, account: str) -> tuple[str, str]:
    """Read the account and the QOS of a user's job that names no QOS; account: "" for the user's default one.

    "" for a QOS that is not set. Raises SlurmError.
    """
    layout = ("sacctmgr", "--noheader", "--parsable2", "show", "user", "where", f"name={user}", "withassoc")
    rows = _rows(commands.run(*layout, "format=DefaultAccount,Account,DefaultQOS"), 3)
    account = account or next((row[0] for row in rows if row[0]), "")
    return account, next((row[2] for row in rows if row[1] == account), "")


def _user_qos(
    by_name: Mapping[str, list[str]], name: str, own: _Level, partition: Partition, settings: ScontrolConfig
) -> UserQos:
    """Build a QOS from its row, that of the partition's QOS, and the association. by_name: rows of QOS_COLUMNS."""
    ranked = [by_name[one] for one in dict.fromkeys((partition.qos, name)) if one in by_name]
    if ranked and "OverPartQOS" in ranked[-1][1].split(","):
        ranked.reverse()
    of_qos = [
        (row[0], _Level(_least(row[2:3]), _tres(row[3]), _least(row[4:5]), _wall_s(row[5]), _tres(row[9])))
        for row in ranked
    ]
    levels = [*of_qos, ("", own)]
    row = by_name.get(name, ["" for _ in QOS_COLUMNS])
    own_name = name if name != partition.qos else None
    return UserQos(
        limits=_first_set([level for _, level in levels], partition) if ENFORCING & settings.enforced else UserLimits(),
        is_alone=bool(own_name) and own_name in (_source(levels, "jobs"), _source(levels, "tres")),
        is_submit_alone=bool(own_name) and own_name == _source(levels, "submitted"),
        usage_factor=_factor(row[7]),
        preempting=tuple(
            one for one, other in by_name.items() if settings.qos_preempts and name in other[8].split(",")
        ),
    )


def _source(levels: Sequence[tuple[str, _Level]], limit: str) -> str | None:
    """Return the QOS that sets this limit, "" for the association, None if nothing does."""
    return next((name for name, level in levels if getattr(level, limit) not in (None, {})), None)


def _factor(text: str) -> float:
    try:
        return float(text) if text.strip() else 1.0
    except ValueError as error:
        raise SlurmError("nonsense", "sacctmgr", f"UsageFactor {text[:40]!r} is not a number") from error


def _first_set(levels: list[_Level], partition: Partition) -> UserLimits:
    jobs, submitted, wall_s = (
        next((value for level in levels if (value := getattr(level, name)) is not None), none)
        for name, none in (("jobs", NO_LIMIT), ("submitted", NO_LIMIT), ("wall_s", UNLIMITED_S))
    )
    nodes, job_nodes = (
        _whole_nodes([getattr(level, of) for level in levels], partition) for of in ("tres", "job_tres")
    )
    return UserLimits(jobs, nodes, submitted, wall_s, job_nodes)


def _whole_nodes(tres: Sequence[Mapping[str, int]], partition: Partition) -> int:
    """Convert the first limit that is set on each TRES to whole nodes of the partition; the lowest counts."""
    nodes = NO_LIMIT
    for name in COUNTED:
        most = next((one[name] for one in tres if name in one), None)
        whole, size = partition.whole.get(name, 0), partition.whole.get("node", 0)
        if most is not None and whole and size:
            nodes = min(nodes, most * size // whole)
    return nodes


def _least(counts: Sequence[str]) -> int | None:
    """Return the lowest of the limits that are set."""
    return min((count for text in counts if (count := whole_number_or_none(text)) is not None), default=None)


def _wall_s(text: str) -> int | None:
    try:
        return time_limit_s(text) if text.strip() else None
    except ValueError as error:
        raise SlurmError("nonsense", "sacctmgr", str(error)) from error


def _rows(text: str, columns: int) -> list[list[str]]:
    rows = [line.split("|") for line in answer_lines("sacctmgr", text) if line]
    if any(len(row) != columns for row in rows):
        raise SlurmError("nonsense", "sacctmgr", f"it printed a row that does not have {columns} columns")
    return rows


def _tres(text: str) -> dict[str, int]:
    try:
        return tres_counts(text)
    except ValueError as error:
        raise SlurmError("nonsense", "sacctmgr", str(error)) from error
