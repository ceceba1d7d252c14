"""QOS and associations from Slurm's database, as `sacctmgr show ... -P` prints them; slurm.conf does not hold them.

    sacctmgr -P show qos > qos.psv
    sacctmgr -P show assoc format=Cluster,Account,ParentName,User,Partition,Share,Priority,GrpJobs,GrpTRES,MaxJobs,\
MaxTRES,QOS,DefaultQOS > assoc.psv

Columns are found by their heading (sacctmgr(1)); a missing column means "no limit". `Dump.unmodelled` lists the limits
that a row sets and the simulator does not model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from traces.errors import InputError
from traces.slurm import conf_values as values
from traces.slurm.conf_lines import quoted_line, read_text

Row = TypeVar("Row")

# Headings of limits that the simulator does not model. Blank, 0 and UNLIMITED set no limit.
_QOS_UNMODELLED = (
    "GrpTRESMins", "GrpTRESRunMins", "GrpWall", "GrpSubmit", "GrpJobsAccrue", "MaxTRESPerNode", "MaxTRESMins",
    "MaxSubmitPU", "MaxSubmitPA", "MaxJobsAccruePU", "MaxJobsAccruePA", "MinTRES", "UsageThres", "LimitFactor",
    "MaxWall", "GraceTime",
)  # fmt: skip
_ASSOC_UNMODELLED = (
    "GrpTRESMins", "GrpTRESRunMins", "GrpWall", "GrpSubmit", "GrpJobsAccrue", "MaxTRESPerNode", "MaxTRESMins",
    "MaxSubmit", "MaxJobsAccrue", "MinPrioThresh", "MaxWall",
)  # fmt: skip


@dataclass(frozen=True)
class Qos:
    """One quality of service. TRES limits by lower-case name (cpu, gres/gpu, node, mem in MiB); None: no limit."""

    name: str
    priority: int = 0
    usage_factor: float = 1.0
    grp_tres: Mapping[str, int] = field(default_factory=dict)
    grp_jobs: int | None = None
    max_tres_per_job: Mapping[str, int] = field(default_factory=dict)
    max_tres_per_user: Mapping[str, int] = field(default_factory=dict)
    max_jobs_per_user: int | None = None
    max_tres_per_account: Mapping[str, int] = field(default_factory=dict)
    max_jobs_per_account: int | None = None
    preempt: tuple[str, ...] = ()  # names of the QOS that it may preempt
    preempt_mode: str = "cluster"  # cluster, off, cancel, requeue, suspend, within
    preempt_exempt_s: int | None = None
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Association:
    """One association, of an account (user '') or of a user in it. `shares` None means the shares of its parent."""

    account: str
    user: str = ""
    cluster: str = ""
    parent: str = ""  # account above this one; '' for root and where the dump does not say
    partition: str = ""
    shares: int | None = 1
    priority: int = 0
    grp_tres: Mapping[str, int] = field(default_factory=dict)
    grp_jobs: int | None = None
    max_tres_per_job: Mapping[str, int] = field(default_factory=dict)
    max_jobs: int | None = None
    qos: tuple[str, ...] = ()
    default_qos: str = ""  # QOS of jobs that name none; '' where the dump does not say


@dataclass(frozen=True)
class Dump(Generic[Row]):
    """The rows of a dump in file order, and the limits it sets that are not simulated."""

    rows: tuple[Row, ...]
    unmodelled: tuple[str, ...]


class _Cells:
    """One row of a dump, by heading; a heading may have several spellings."""

    def __init__(self, cells: dict[str, str], where: str) -> None:
        self.cells, self.where = cells, where

    def get(self, *headings: str, parse: Callable[[str], Any] = str, blank: Any = "") -> Any:
        heading = next((name for name in headings if name.lower() in self.cells), None)
        text = self.cells[heading.lower()].strip() if heading else ""
        if not text:
            return blank
        try:
            return parse(text)
        except ValueError as error:
            raise InputError(f"{self.where}: {heading} {quoted_line(text)}: {error}") from error

    def unmodelled(self, headings: tuple[str, ...], name: str) -> list[str]:
        unset = {"", "0", "00:00:00", "0.000000", "1.000000"} | {word.lower() for word in values.NO_LIMIT}
        values_of = [(heading, self.cells.get(heading.lower(), "").strip()) for heading in headings]
        return [f"{self.where}: {name} {heading}={text}" for heading, text in values_of if text.lower() not in unset]


def _rows(path: Path, needed: str) -> list[_Cells]:
    """Read the rows of a `-P` or `-p` dump. Raises InputError without headings, and for a row of another width."""
    lines = [(number, line) for number, line in enumerate(read_text(path).splitlines(), start=1) if line.strip()]
    headings = [heading.strip().lower() for heading in lines[0][1].split("|")] if lines else []
    if needed.lower() not in headings:
        raise InputError(f"{path}:1: no column {needed!r}: print it with headings, as `sacctmgr -P show ...` does")
    rows = []
    for number, line in lines[1:]:
        cells = line.split("|")
        if len(cells) != len(headings):
            raise InputError(f"{path}:{number}: {len(cells)} fields, but the heading has {len(headings)}")
        rows.append(_Cells(dict(zip(headings, cells, strict=True)), f"{path}:{number}"))
    return rows


def _count(text: str) -> int | None:
    return values.count_or_unlimited(text)


def read_qos(path: Path) -> Dump[Qos]:
    """Read the QOS from the output of `sacctmgr -P show qos`. Raises InputError (file:line)."""
    rows: list[Qos] = []
    unmodelled: list[str] = []
    for cells in _rows(path, "Name"):
        qos = Qos(
            name=cells.get("Name").lower(),
            priority=cells.get("Priority", parse=values.count, blank=0),
            usage_factor=cells.get("UsageFactor", parse=values.decimal, blank=1.0),
            grp_tres=cells.get("GrpTRES", parse=values.limits, blank={}),
            grp_jobs=cells.get("GrpJobs", parse=_count, blank=None),
            max_tres_per_job=cells.get("MaxTRES", "MaxTRESPerJob", parse=values.limits, blank={}),
            max_tres_per_user=cells.get("MaxTRESPU", "MaxTRESPerUser", parse=values.limits, blank={}),
            max_jobs_per_user=cells.get("MaxJobsPU", "MaxJobsPerUser", parse=_count, blank=None),
            max_tres_per_account=cells.get("MaxTRESPA", "MaxTRESPerAccount", parse=values.limits, blank={}),
            max_jobs_per_account=cells.get("MaxJobsPA", "MaxJobsPerAccount", parse=_count, blank=None),
            preempt=cells.get("Preempt", parse=values.words, blank=()),
            preempt_mode=cells.get("PreemptMode", parse=_mode, blank="cluster"),
            preempt_exempt_s=cells.get("PreemptExemptTime", parse=values.time_s, blank=None),
            flags=cells.get("Flags", parse=values.words, blank=()),
        )
        if any(qos.name == other.name for other in rows):
            raise InputError(f"{cells.where}: QOS {quoted_line(qos.name)} has two rows: keep one of them")
        rows.append(qos)
        unmodelled += cells.unmodelled(_QOS_UNMODELLED, f"QOS {qos.name}")
    _check_preempt(path, rows)
    return Dump(tuple(rows), tuple(unmodelled))


def _mode(text: str) -> str:
    return ",".join(values.preempt_mode(text))


def _check_preempt(path: Path, rows: list[Qos]) -> None:
    known = {qos.name for qos in rows}
    for qos in rows:
        for other in qos.preempt:
            if other not in known:
                raise InputError(
                    f"{path}: QOS {quoted_line(qos.name)} preempts {quoted_line(other)}, which has no row: dump all QOS"
                )


def read_associations(path: Path, cluster: str = "") -> Dump[Association]:
    """Read the associations of one cluster from the output of `sacctmgr -P show assoc`.

    `cluster` may be '' if the dump holds a single cluster. Without a column Par Name, parents are inferred from the
    indentation of `sacctmgr show assoc tree`. A dump with neither gives a flat tree, which `unmodelled` reports.
    Raises InputError (file:line), also for a user whose account has no row of its own.
    """
    all_rows = _rows(path, "Account")
    clusters = sorted({cells.get("Cluster") for cells in all_rows if cells.get("Cluster")})
    if (cluster and clusters and cluster not in clusters) or (not cluster and len(clusters) > 1):
        raise InputError(f"{path}: holds associations of {', '.join(clusters)}, not of one cluster {cluster!r}")
    kept = [cells for cells in all_rows if not cluster or cells.get("Cluster") in {"", cluster}]
    rows: list[Association] = []
    unmodelled: list[str] = []
    above: list[str] = []  # accounts on the way down an indented tree
    for cells in kept:
        account, user = cells.get("Account").lower(), cells.get("User")
        if not account:
            raise InputError(f"{cells.where}: the association has no account: print the column Account")
        depth = len(cells.cells["account"]) - len(cells.cells["account"].lstrip(" "))
        if not user:
            above = [*above[:depth], account]
        parent = cells.get("Par Name", "ParentName").lower() or (above[depth - 1] if 0 < depth <= len(above) else "")
        rows.append(_association(cells, account, parent, user))
        unmodelled += cells.unmodelled(_ASSOC_UNMODELLED, f"association {account}/{user or '-'}")
    accounts = {row.account for row in rows if not row.user}
    for row, cells in zip(rows, kept, strict=True):
        missing = row.account if row.user and row.account not in accounts else row.parent
        if missing and missing not in accounts:
            raise InputError(
                f"{cells.where}: account {quoted_line(missing)} has no row of its own in this dump: print all accounts"
            )
    if len(accounts) > 2 and not any(row.parent for row in rows):
        unmodelled.append(f"{path}:1: accounts have no parents, so all are put below root; print the column ParentName")
    return Dump(tuple(rows), tuple(unmodelled))


def _association(cells: _Cells, account: str, parent: str, user: str) -> Association:
    return Association(
        cluster=cells.get("Cluster"),
        account=account,
        parent="" if user else parent,
        user=user,
        partition=cells.get("Partition"),
        shares=cells.get("Share", "Fairshare", "RawShares", parse=_shares, blank=1),
        priority=cells.get("Priority", parse=values.count, blank=0),
        grp_tres=cells.get("GrpTRES", parse=values.limits, blank={}),
        grp_jobs=cells.get("GrpJobs", parse=_count, blank=None),
        max_tres_per_job=cells.get("MaxTRES", "MaxTRESPerJob", parse=values.limits, blank={}),
        max_jobs=cells.get("MaxJobs", parse=_count, blank=None),
        qos=cells.get("QOS", parse=values.words, blank=()),
        default_qos=cells.get("Def QOS", "DefaultQOS").lower(),
    )


def _shares(text: str) -> int | None:
    """Parse the shares of an association; None for `parent`, which means the parent's shares."""
    return None if text.lower() == "parent" else values.count(text)
