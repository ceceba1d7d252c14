"""How many jobs and nodes a user may have at once: two calls of sacctmgr.

Slurm looks for a limit in the QOS of the partition, then in that of the job, then in the association of the user, and
takes the first that is set (https://slurm.schedmd.com/resource_limits.html, "Hierarchy"); a QOS with the flag
OverPartQOS goes before that of the partition. A limit on GPUs or processors counts as whole nodes of the partition:
12 GPUs are 3 nodes of 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent.slurm.commands import Commands, SlurmError
from agent.slurm.settings import Partition, SlurmSettings
from features.snapshot import NO_LIMIT
from traces.slurm.text import parse_tres

ENFORCING = frozenset({"limits", "safe", "all"})  # of AccountingStorageEnforce: without them no limit holds
COUNTED = ("node", "gres/gpu", "cpu")  # TRES that are counted as nodes


@dataclass(frozen=True)
class UserLimits:
    """What one user may have running at once."""

    jobs: int = NO_LIMIT
    nodes: int = NO_LIMIT  # whole nodes


@dataclass(frozen=True)
class _Level:
    """What one QOS or association says; None for a limit that is not set."""

    jobs: int | None
    tres: dict[str, int]


def read_limits(
    commands: Commands, settings: SlurmSettings, partition: Partition, *, user: str, account: str, qos: str
) -> UserLimits:
    """The limits on a user's jobs in a partition. Raises SlurmError, also where the association cannot be seen."""
    if not ENFORCING & settings.enforced:
        return UserLimits()
    where = [f"user={user}", f"cluster={settings.cluster}"] + ([f"account={account}"] if account else [])
    association = ("sacctmgr", "--noheader", "--parsable2", "show", "association", "where")
    own = commands.run(*association, *where, "format=Partition,DefaultQOS,QOS,MaxJobs,GrpJobs,GrpTRES")
    rows = _rows(own, 6)
    fitting = [row for row in rows if row[0] == partition.name] or [row for row in rows if not row[0]]
    if not fitting:
        raise SlurmError("refused", "sacctmgr", "shows no association of the user")
    _, default_qos, allowed_qos, *counts, tres = fitting[0]
    if not default_qos and "," not in allowed_qos:
        default_qos = allowed_qos
    set_jobs = [count for count in map(_count, counts) if count is not None]
    levels = [_Level(min(set_jobs, default=None), _tres(tres))]
    names = [name for name in dict.fromkeys((partition.qos, qos or default_qos)) if name]
    if names:
        columns = "format=Name,Flags,MaxJobsPU,MaxTRESPU"
        text = commands.run("sacctmgr", "--noheader", "--parsable2", "show", "qos", "where", f"name={','.join(names)}",
                            columns)  # fmt: skip
        levels = _by_rank(_rows(text, 4), names) + levels
    return _first_set(levels, partition)


def _by_rank(rows: list[list[str]], names: Sequence[str]) -> list[_Level]:
    """The QOS in the order in which Slurm asks them; `names`: that of the partition, that of the job."""
    by_name = {row[0]: row for row in rows}
    ranked = [by_name[name] for name in names if name in by_name]
    if ranked and "OverPartQOS" in ranked[-1][1].split(","):
        ranked.reverse()
    return [_Level(_count(row[2]), _tres(row[3])) for row in ranked]


def _first_set(levels: list[_Level], partition: Partition) -> UserLimits:
    jobs = next((level.jobs for level in levels if level.jobs is not None), NO_LIMIT)
    nodes = NO_LIMIT
    for name in COUNTED:
        most = next((level.tres[name] for level in levels if name in level.tres), None)
        whole, size = partition.whole.get(name, 0), partition.whole.get("node", 0)
        if most is not None and whole and size:
            nodes = min(nodes, most * size // whole)
    return UserLimits(jobs, nodes)


def _rows(text: str, columns: int) -> list[list[str]]:
    rows = [line.split("|") for line in text.splitlines() if line]
    if any(len(row) != columns for row in rows):
        raise SlurmError("nonsense", "sacctmgr", f"a row that has not {columns} columns")
    return rows


def _count(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None


def _tres(text: str) -> dict[str, int]:
    try:
        tres = parse_tres(text)
    except ValueError as error:
        raise SlurmError("nonsense", "sacctmgr", str(error)) from error
    return {name: int(count) for name, count in tres.items() if count.isdigit()}
