"""What an administrator types for a change of `baton whatif`: edits of slurm.conf and `sacctmgr` commands.

docs/what-if.md lists the changes. Ranges and meanings are those of slurm.conf(5) and sacctmgr(1) of Slurm 22.05.
`models.what_if.advice.conf_text` writes the edits into the file, and `models.what_if.advice.declared` simulates them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from models.what_if.advice.cluster_changes import CLUSTER_CHANGES
from models.what_if.advice.conf_text import ConfEdit
from models.what_if.advice.draft import AccountEdit, SlurmDiff, SlurmDraft, check_slurm_name, written_time
from models.what_if.advice.moved_jobs import NORMAL
from models.what_if.advice.setting import PREFIX, setting_edit
from models.what_if.changes import finite, limit_of
from models.what_if.recorded.changes import DIMENSIONS, KNOWN, MOST, TOGETHER, UNLIMITED
from traces.counted import counted
from traces.errors import InputError
from traces.slurm.accounts import Qos
from traces.slurm.conf import SlurmConf

MOST_JOBS, MOST_WINDOW_MIN, MOST_WEIGHT = 1_000_000, 43_200, 2**32 - 2  # slurm.conf(5): the largest values it reads
ROOT = "root"  # the account that a new Slurm has
WALL, OF_A_JOB = "MaxWall=", "MaxTRESPerJob=node="  # settings of a QOS


def slurm_diff(changes: Sequence[str], conf: SlurmConf | None = None, qos: Sequence[Qos] | None = None) -> SlurmDiff:
    """Return what makes the changes, in their order, in a cluster with this slurm.conf and these QOS (None: unknown).

    Raises InputError for a change that is not understood, a value that Slurm does not read, and a name that slurm.conf
    or `sacctmgr` cannot hold.
    """
    draft = SlurmDraft(conf, None if qos is None else tuple(qos))
    for change in changes:
        for part in change.split(TOGETHER):
            _add(draft, part.strip())
    limits = any(one.startswith(("Max", "Grp")) for edit in draft.accounts for one in edit.settings)
    if limits and conf is not None and not {"limits", "safe", "all"} & set(conf.enforce):
        draft.by_hand.append(
            "AccountingStorageEnforce does not include 'limits', so Slurm does not enforce the limits of QOS and users"
        )
    by_hand, remarks = (tuple(dict.fromkeys(lines)) for lines in (draft.by_hand, draft.remarks))
    return SlurmDiff(tuple(draft.edits), tuple(draft.accounts), by_hand, remarks, tuple(draft.moves))


def _add(draft: SlurmDraft, change: str) -> None:
    name, found, value = (part.strip() for part in change.partition("="))
    first, _dot, rest = name.partition(".")
    dimension, _dot, who = rest.partition(".")
    known = ", ".join(KNOWN)
    if not found or not value:
        raise InputError(f"change {change[:80]!r} is not understood; write NAME=VALUE, with one of {known}")
    if change.startswith(PREFIX):
        draft.edits.append(setting_edit(change))
    elif first in CLUSTER_CHANGES:
        CLUSTER_CHANGES[first](draft, rest, value, change)
    elif name in _SETTINGS:
        _SETTINGS[name](draft, value, change)
    elif first in _BY_HAND:
        draft.by_hand.append(f"{change}: {_BY_HAND[first]}")
    elif first not in _OF_JOBS:
        raise InputError(f"unknown change {name[:80]!r}: known are {known}")
    elif dimension and dimension not in (*DIMENSIONS, *MOST):
        known = ", ".join((*DIMENSIONS, *MOST))
        raise InputError(f"change {change[:80]!r}: unknown dimension {dimension[:40]!r}: known are {known}")
    elif dimension in MOST and first != "priority":
        draft.by_hand.append(f"{change}: no setting concerns only jobs of that size; give them a QOS")
    else:
        check_slurm_name(dimension, who, change)
        _OF_JOBS[first](draft, dimension, who.lower() if dimension in ("qos", "account") else who, value, change)


# -- slurm.conf ------------------------------------------------------------------------------------------------------


def _backfill(draft: SlurmDraft, value: str, change: str) -> None:
    if value not in ("on", "off"):
        raise InputError(f"change {change!r}: write backfill=off or backfill=on")
    draft.edits.append(ConfEdit("SchedulerType", "sched/backfill" if value == "on" else "sched/builtin"))
    draft.remarks.append("SchedulerType counts after a restart of slurmctld; `scontrol reconfigure` does not change it")


def _option(key: str, most: int, parse: Callable[[str, str], int]) -> Callable[[SlurmDraft, str, str], None]:
    def edited(draft: SlurmDraft, value: str, change: str) -> None:
        """Set an option of SchedulerParameters."""
        number = most if value.upper() == UNLIMITED else parse(value, change)
        if not 0 < number <= most:
            raise InputError(f"change {change!r}: Slurm reads {key} from 1 to {most:,}, not {number:,}")
        draft.edits.append(ConfEdit(key, str(number), is_option=True))

    return edited


def _whole_number(value: str, change: str) -> int:
    if not (value.isascii() and value.isdigit() and len(value) <= 18):
        raise InputError(f"change {change!r}: {value[:40]!r} is not a whole number from 1 on")
    return int(value)


def _minutes(value: str, change: str) -> int:
    return int(min(math.ceil(limit_of(value, change) / 60), 10**9))


def _age(draft: SlurmDraft, value: str, change: str) -> None:
    factor = finite(value, change)
    if not 0.0 <= factor <= 1000.0:
        raise InputError(f"change {change!r}: {factor:g} times the age weight; allowed is 0 to 1000")
    if draft.conf is None:
        draft.by_hand.append(f"{change}: PriorityWeightAge={factor:g} times its present value, which is not known")
    elif not draft.conf.weight_age:
        draft.by_hand.append(f"{change}: PriorityWeightAge is 0, so a factor changes nothing: choose a weight")
    else:
        draft.conf = _weight(draft, "weight_age", "PriorityWeightAge", round(draft.conf.weight_age * factor), change)


def _size(draft: SlurmDraft, value: str, change: str) -> None:
    points = finite(value, change)
    if draft.conf is None:
        draft.by_hand.append(f"{change}: PriorityWeightJobSize={points:+g} on its present value, which is not known")
        return
    weight = round(draft.conf.weight_job_size + points)
    if weight < 0 or (draft.conf.favor_small and draft.conf.weight_job_size):
        draft.by_hand.append(f"{change}: larger jobs would get fewer points: decide on PriorityFavorSmall by hand")
        return
    draft.conf = _weight(draft, "weight_job_size", "PriorityWeightJobSize", weight, change)


def _weight(draft: SlurmDraft, name: str, key: str, weight: int, change: str) -> SlurmConf:
    """Write a weight of priority/multifactor; returns the slurm.conf that has it."""
    assert draft.conf is not None
    if weight > MOST_WEIGHT:
        raise InputError(f"change {change!r}: Slurm reads {key} up to {MOST_WEIGHT:,}, not {weight:,}")
    if draft.conf.priority_type != "priority/multifactor":
        draft.by_hand.append(f"{key} counts only with PriorityType=priority/multifactor, which is not set")
    draft.edits.append(ConfEdit(key, str(weight)))
    return replace(draft.conf, **{name: weight})  # type: ignore[arg-type]


def _limit(draft: SlurmDraft, dimension: str, who: str, value: str, change: str) -> None:
    """MaxTime of partitions; of other jobs MaxWall of the QOS, user or account."""
    seconds = limit_of(value, change)
    time = UNLIMITED if math.isinf(seconds) else written_time(math.ceil(seconds / 60))
    if dimension not in ("", "partition"):
        draft.account(dimension, who, f"{WALL}{'-1' if math.isinf(seconds) else time}")
        return
    draft.remarks.append("Slurm refuses, or leaves waiting, jobs that ask for more than MaxTime: their users ask less")
    if draft.conf is None:
        if not dimension:
            draft.by_hand.append(f"{change}: MaxTime={time} of each partition, whose names are not known")
            return
        draft.edits.append(ConfEdit("MaxTime", time, who))
        return
    if dimension and draft.conf.partition(who) is None:
        names = ", ".join(one.name for one in draft.conf.partitions)
        raise InputError(f"change {change[:80]!r}: {draft.conf.path} has no partition {who[:60]!r} (known: {names})")
    longer = {one.name for one in draft.conf.partitions if one.max_time_s is None or one.max_time_s > seconds}
    for one in draft.conf.partitions:
        if one.name not in (longer if not dimension else {who}):
            continue
        draft.edits.append(ConfEdit("MaxTime", time, one.name))
        if one.default_time_s is not None and one.default_time_s > seconds:
            draft.edits.append(ConfEdit("DefaultTime", time, one.name))


# -- sacctmgr --------------------------------------------------------------------------------------------------------


def _most(of_qos: str, of_user: str) -> Callable[[SlurmDraft, str, str, str, str], None]:
    def limited(draft: SlurmDraft, dimension: str, who: str, value: str, change: str) -> None:
        """Limit what a user runs at once. `of_qos` and `of_user` are the settings, which end where the number goes."""
        number = -1 if value.upper() == UNLIMITED else _whole_number(value, change)
        if number == 0:
            raise InputError(f"change {change!r}: with 0 nothing would run; write a whole number from 1 on")
        own = draft.conf.partition(who) if draft.conf and dimension == "partition" else None
        if dimension == "partition" and (own is None or not own.qos):
            draft.by_hand.append(f"{change}: give the partition a QOS of its own (QOS= in slurm.conf) with {of_qos}N")
        elif dimension in ("user", "account"):
            if dimension == "account" and of_user.startswith("Grp"):
                draft.by_hand.append(f"{change}: no setting of an account limits each user's nodes: use a QOS")
                return
            draft.account(dimension, who, f"{of_user}{number}")
        else:
            names = [who] if dimension == "qos" else [own.qos] if own else draft.qos_names()
            for name in names:
                draft.account("qos", name, f"{of_qos}{number}")
            if len(names) > 1:
                draft.remarks.append(f"{change}: each QOS counts for itself, so a user with jobs in two runs twice it")
        if "node=" in of_qos and number > 0:
            draft.remarks.append(f"{change}: a single job of more than {counted(number, 'node')} never starts")

    return limited


def _priority(draft: SlurmDraft, dimension: str, who: str, value: str, change: str) -> None:
    """Raise the Priority of a QOS; for a user or account, that of a new QOS for their jobs."""
    if dimension not in ("qos", "user", "account", *MOST):
        draft.by_hand.append(f"{change}: write priority.qos.NAME, priority.user.NAME or priority.account.NAME")
        return
    limit = _limit_of_qos(dimension, who, change) if dimension in MOST else ()
    if draft.conf is None or draft.qos is None:
        missing = "slurm.conf" if draft.conf is None else "dump of QOS"
        draft.by_hand.append(f"{change}: Priority of a QOS, counted by PriorityWeightQOS; without a {missing} the "
                             "present values are not known")  # fmt: skip
        return
    name = who if dimension == "qos" else f"advised_{dimension}_{who}".lower()
    rows = {row.name: row for row in draft.qos}
    if dimension == "qos" and name not in rows:
        raise InputError(f"change {change[:80]!r}: the dump has no QOS {who[:60]!r} (known: {', '.join(rows)})")
    old = rows.get(name) or rows.get(NORMAL) or Qos(name)
    raised = _raised(draft, old.priority, _points(draft.conf, value, change), change)
    if raised is None:
        return
    draft.qos = (*(row for row in draft.qos if row.name != name), replace(old, name=name, priority=raised))
    if name in rows:
        draft.account("qos", name, f"Priority={raised}")
        return
    draft.accounts.append(AccountEdit("qos", name, (f"Priority={raised}", *limit), is_new=True))
    if limit:
        draft.account("account", ROOT, f"QOS+={name}")
        draft.remarks.append(f"{change}: users ask for it (sbatch --qos={name}), or a job_submit plugin sets it")
    else:
        draft.account(dimension, who, f"QOS+={name}", f"DefaultQOS={name}")
        draft.remarks.append(f"{change}: jobs that name a QOS keep it, and the new QOS has no limits")


def _limit_of_qos(dimension: str, who: str, change: str) -> tuple[str, ...]:
    """The settings of a QOS that takes only jobs of at most that limit or that many nodes."""
    if dimension == "nodes":
        return (f"{OF_A_JOB}{_whole_number(who, change)}", "Flags=DenyOnLimit")
    seconds = limit_of(who, change)
    if math.isinf(seconds):
        raise InputError(
            f"change {change!r}: every job asks for at most that; write a time, as in priority.limit.4h=+6h"
        )
    return (f"{WALL}{written_time(math.ceil(seconds / 60))}", "Flags=DenyOnLimit")


def _points(conf: SlurmConf, value: str, change: str) -> float:
    """Points of priority; a time is what a job gets for waiting so long."""
    if value[-1].isalpha() or ":" in value:
        sign, span = (-1.0, value[1:]) if value.startswith("-") else (1.0, value.removeprefix("+"))
        seconds = limit_of(span, change)
        if math.isinf(seconds):
            raise InputError(f"change {change!r}: write points or a time, as in +1000 or +6h")
        return sign * conf.weight_age * min(seconds / max(conf.max_age_s, 1), 1.0)
    return finite(value, change)


def _raised(draft: SlurmDraft, present: int, points: float, change: str) -> int | None:
    """Return the Priority of a QOS that has `points` more; None where a person has to decide.

    Slurm gives a QOS its share of the highest Priority, times PriorityWeightQOS. Where the new one is the highest, the
    weight grows with it, so that every other QOS keeps its points.
    """
    assert draft.conf is not None and draft.qos is not None
    highest, weight = max((row.priority for row in draft.qos), default=0), draft.conf.weight_qos
    if highest and not weight:
        draft.by_hand.append(f"{change}: PriorityWeightQOS is 0; any other weight counts the Priority of every QOS")
        return None
    wanted = round(present + points * (highest / weight if highest else 1.0))
    if wanted < 0:
        draft.by_hand.append(f"{change}: the Priority of a QOS is at least 0: raise all others instead")
        return None
    if wanted == present:
        draft.by_hand.append(f"{change}: less than one unit of Priority, or nothing for waiting: nothing changes")
        return None
    if wanted > highest:
        grown = round(weight * wanted / highest) if highest else wanted
        draft.conf = _weight(draft, "weight_qos", "PriorityWeightQOS", grown, change)
    return wanted


_SETTINGS: dict[str, Callable[[SlurmDraft, str, str], None]] = {
    "backfill": _backfill,
    "backfill.depth": _option("bf_max_job_test", MOST_JOBS, _whole_number),
    "backfill.user": _option("bf_max_job_user", MOST_JOBS, _whole_number),
    "backfill.window": _option("bf_window", MOST_WINDOW_MIN, _minutes),
    "priority.age": _age,
    "priority.size": _size,
}
_OF_JOBS: dict[str, Callable[[SlurmDraft, str, str, str, str], None]] = {
    "limit": _limit,
    "max_jobs": _most("MaxJobsPerUser=", "MaxJobs="),
    "max_nodes": _most("MaxTRESPerUser=node=", "GrpTRES=node="),
    "priority": _priority,
}
_BY_HAND = {
    "arrivals": "no setting changes what users submit",
    "ask": "users ask for their time limits themselves; show them what their jobs use",
}
