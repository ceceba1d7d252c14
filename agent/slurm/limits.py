"""Limits on the jobs and nodes of a user, and on how long a job may run: two calls of sacctmgr.

Slurm looks for a limit in the partition's QOS, then in the job's QOS, then in the user's association, and uses the
first that is set (https://slurm.schedmd.com/resource_limits.html, "Hierarchy"). A job QOS with the flag OverPartQOS
precedes the partition's. We convert a limit on GPUs or processors to whole nodes of the partition: 12 GPUs are 3 nodes
of 4 GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent.slurm.commands import Commands, SlurmError, answer_lines
from agent.slurm.numbers import UNLIMITED_S, time_limit_s, tres_counts, whole_number_or_none
from agent.slurm.settings import Partition, ScontrolConfig
from features.snapshot import NO_LIMIT

ENFORCING = frozenset({"limits", "safe", "all"})  # values of AccountingStorageEnforce; otherwise no limit is enforced
COUNTED = ("node", "gres/gpu", "cpu")  # TRES that are converted to nodes


@dataclass(frozen=True)
class UserLimits:
    """The most jobs and whole nodes that one user may have running at once, and two limits on submission."""

    jobs: int = NO_LIMIT
    nodes: int = NO_LIMIT  # whole nodes
    submitted: int = NO_LIMIT  # jobs, pending or running
    wall_s: int = UNLIMITED_S  # longest time limit of a job


@dataclass(frozen=True)
class _Level:
    """The limits of one QOS or association; None if not set."""

    jobs: int | None
    tres: dict[str, int]
    submitted: int | None
    wall_s: int | None


def read_limits(
    commands: Commands, settings: ScontrolConfig, partition: Partition, *, user: str, account: str, qos: str
) -> UserLimits:
    """Read the limits on a user's jobs in a partition. Raises SlurmError, also if the association is not visible."""
    if not ENFORCING & settings.enforced:
        return UserLimits()
    where = [f"user={user}", f"cluster={settings.cluster}"] + ([f"account={account}"] if account else [])
    association = ("sacctmgr", "--noheader", "--parsable2", "show", "association", "where")
    own = commands.run(
        *association, *where, "format=Partition,DefaultQOS,QOS,MaxJobs,GrpJobs,GrpTRES,MaxSubmit,GrpSubmit,MaxWall"
    )
    rows = _rows(own, 9)
    fitting = [row for row in rows if row[0] == partition.name] or [row for row in rows if not row[0]]
    if not fitting:
        raise SlurmError("refused", "sacctmgr", f"it shows no association of user {user}")
    _, default_qos, allowed_qos, *jobs, tres, most, group, wall = fitting[0]
    if not default_qos and "," not in allowed_qos:
        default_qos = allowed_qos
    levels = [_Level(_least(jobs), _tres(tres), _least([most, group]), _wall_s(wall))]
    names = [name for name in dict.fromkeys((partition.qos, qos or default_qos)) if name]
    if names:
        columns = "format=Name,Flags,MaxJobsPU,MaxTRESPU,MaxSubmitPU,MaxWall"
        text = commands.run("sacctmgr", "--noheader", "--parsable2", "show", "qos", "where", f"name={','.join(names)}",
                            columns)  # fmt: skip
        levels = _by_rank(_rows(text, 6), names) + levels
    return _first_set(levels, partition)


def read_defaults(commands: Commands, user: str, account: str) -> tuple[str, str]:
    """Read the account and the QOS of a user's job that names no QOS; account: "" for the user's default one.

    "" for a QOS that is not set. Raises SlurmError.
    """
    layout = ("sacctmgr", "--noheader", "--parsable2", "show", "user", "where", f"name={user}", "withassoc")
    rows = _rows(commands.run(*layout, "format=DefaultAccount,Account,DefaultQOS"), 3)
    account = account or next((row[0] for row in rows if row[0]), "")
    return account, next((row[2] for row in rows if row[1] == account), "")


def _by_rank(rows: list[list[str]], names: Sequence[str]) -> list[_Level]:
    """Order the QOS as Slurm consults them; `names`: the partition's QOS, then the job's."""
    by_name = {row[0]: row for row in rows}
    ranked = [by_name[name] for name in names if name in by_name]
    if ranked and "OverPartQOS" in ranked[-1][1].split(","):
        ranked.reverse()
    return [_Level(_least(row[2:3]), _tres(row[3]), _least(row[4:5]), _wall_s(row[5])) for row in ranked]


def _first_set(levels: list[_Level], partition: Partition) -> UserLimits:
    jobs, submitted, wall_s = (
        next((value for level in levels if (value := getattr(level, name)) is not None), none)
        for name, none in (("jobs", NO_LIMIT), ("submitted", NO_LIMIT), ("wall_s", UNLIMITED_S))
    )
    nodes = NO_LIMIT
    for name in COUNTED:
        most = next((level.tres[name] for level in levels if name in level.tres), None)
        whole, size = partition.whole.get(name, 0), partition.whole.get("node", 0)
        if most is not None and whole and size:
            nodes = min(nodes, most * size // whole)
    return UserLimits(jobs, nodes, submitted, wall_s)


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
