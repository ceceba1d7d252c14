"""The declared cluster before and after a diff of slurm.conf and sacctmgr: paired waits, and how far to trust them.

The world is that of `baton simulate --scheduler slurm`, from the recorded state at the beginning of a window on. The
edits change what the files say (`SlurmDescription`), by the parsers that read the files, and the world is built from it
as before. MaxWall that the dumps hold is not read: the recorded jobs obey it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import polars as pl

from features.bootstrap import BLOCK_S
from models.study.slurm.files import SlurmDescription, SlurmFiles, load_slurm_files
from models.what_if.advice.conf_text import ConfEdit, edited_conf
from models.what_if.advice.draft import AccountEdit, SlurmDiff
from models.what_if.advice.moved_jobs import NORMAL, moved_jobs, with_default_limits
from models.what_if.advice.slurm_diff import OF_A_JOB, WALL
from models.what_if.trust import QUANTILES, WAITS, mean_interval, quantile_intervals, trust, verdict, waits
from simulator.metrics import spearman
from simulator.recorded.follow import HORIZON_S
from simulator.slurm.run import run
from simulator.slurm.world import NEVER, NO_LIMIT, NONE, REASONS, SlurmJobs, SlurmWorld
from traces.arrays import Bools, Float64s, Int64s
from traces.counted import counted
from traces.errors import InputError
from traces.slurm import conf_values as values
from traces.slurm.accounts import Association, Qos
from traces.slurm.conf import SlurmConf

if TYPE_CHECKING:
    from models.study.slurm.files import SlurmEdit

Row = TypeVar("Row", Qos, Association)


def edited_description(described: SlurmDescription, diff: SlurmDiff) -> SlurmDescription:
    """Return the cluster with slurm.conf, QOS and associations as after the diff.

    Raises InputError for a user or account whose association the dump does not hold.
    """
    qos, tree = described.qos, described.associations
    for edit in diff.accounts:
        if edit.is_new:
            qos = (*(qos or ()), _set(Qos(edit.name), edit))
        elif edit.entity == "qos":
            rows = qos or ()
            known = any(row.name == edit.name for row in rows)
            rows = rows if known else (*rows, Qos(edit.name))
            qos = tuple(_set(row, edit) if row.name == edit.name else row for row in rows)
        else:
            tree = _edited_tree(tree or (), edit)
    return SlurmDescription(edited_conf(described.conf, diff.conf), qos, tree)


def _edited_tree(tree: tuple[Association, ...], edit: AccountEdit) -> tuple[Association, ...]:
    """The associations after a command for a user or an account.

    A dump shows an account's MaxJobs again in the rows below it that inherit it, so those that have its present value
    follow it. Raises InputError for a name without a row.
    """
    own = next((row for row in tree if _is_of(row, edit)), None)
    if own is None:
        raise InputError(f"the {edit.entity} {edit.name!r} has no row in the dump of associations: give --associations")
    below = _and_below(tree, edit.name) if edit.entity == "account" else set()
    inherited = replace(edit, settings=tuple(one for one in edit.settings if one.startswith("MaxJobs=")))

    def changed(row: Association) -> Association:
        if _is_of(row, edit):
            return _set(row, edit)
        return _set(row, inherited) if row.account in below and row.max_jobs == own.max_jobs else row

    return tuple(changed(row) for row in tree)


def _is_of(row: Association, edit: AccountEdit) -> bool:
    return row.user == edit.name if edit.entity == "user" else (row.account, row.user) == (edit.name, "")


def _set(row: Row, edit: AccountEdit) -> Row:
    """The row with the settings of the command."""
    for setting in edit.settings:
        name, _equals, value = setting.partition("=")
        row = _SETTERS[name](row, value) if name in _SETTERS else row
    return row


def _count(field: str) -> Callable[[Any, str], Any]:
    return lambda row, value: replace(row, **{field: None if value == "-1" else values.count(value)})


def _tres(field: str) -> Callable[[Any, str], Any]:
    def limited(row: Any, value: str) -> Any:
        """Set or, with -1, take away the limit of one resource."""
        name, _equals, number = value.partition("=")
        others = {other: most for other, most in getattr(row, field).items() if other != name}
        return replace(row, **{field: others if number == "-1" else others | values.limits(value)})

    return limited


_SETTERS: dict[str, Callable[[Any, str], Any]] = {
    "Priority": lambda row, value: replace(row, priority=values.count(value)),
    "MaxJobsPerUser": _count("max_jobs_per_user"),
    "MaxTRESPerUser": _tres("max_tres_per_user"),
    "MaxTRESPerJob": _tres("max_tres_per_job"),
    "MaxJobs": _count("max_jobs"),
    "GrpTRES": _tres("grp_tres"),
    "QOS+": lambda row, value: replace(row, qos=(*row.qos, value)),
    "DefaultQOS": lambda row, value: replace(row, default_qos=value),
}


def edit_of(diff: SlurmDiff, from_s: int) -> SlurmEdit:
    """Return the diff, made at epoch second `from_s`, as a change of a cluster and its jobs.

    Jobs in the usual QOS that start later move to the new one that becomes their default, or whose limits they keep:
    users ask for it. Jobs ask for at most MaxWall (`wall_s`).
    """

    def edited(described: SlurmDescription, jobs: pl.DataFrame) -> tuple[SlurmDescription, pl.DataFrame]:
        """Change what the files say, and move the jobs."""
        runs = (pl.col("start_utc").dt.epoch("s") < from_s).fill_null(value=False)
        jobs = with_default_limits(jobs, described.conf, diff.conf)
        jobs = moved_jobs(jobs, described.conf, diff.moves, ~runs)
        for edit in diff.accounts:
            for setting in edit.settings:
                own, name = _moved(edit, setting)
                jobs = jobs.with_columns(qos=pl.when(own & _usual() & ~runs).then(pl.lit(name)).otherwise("qos"))
        return edited_description(described, diff), _with_walls(jobs, described, diff)

    return edited


def _usual() -> pl.Expr:
    return pl.col("qos").is_null() | pl.col("qos").str.to_lowercase().is_in(["", NORMAL])


def _with_walls(jobs: pl.DataFrame, described: SlurmDescription, diff: SlurmDiff) -> pl.DataFrame:
    """Add `wall_s`, the MaxWall that the commands give a job; null for none.

    That of a QOS counts before that of the user, and that before an account's (resource_limits.html, "Hierarchy"). A
    MaxWall of the dumps that Slurm counts before a new one is not known here, so the new one counts.
    """
    jobs = jobs.with_columns(wall_s=pl.lit(None, pl.Int64))
    for entity in ("account", "user", "qos"):  # a later one counts before
        for edit in diff.accounts:
            for value in (one.removeprefix(WALL) for one in edit.settings if one.startswith(WALL)):
                if edit.entity == entity and not edit.is_new and value != "-1":
                    own = _jobs_of(edit, described.associations or ())
                    jobs = jobs.with_columns(wall_s=pl.when(own).then(values.time_s(value)).otherwise("wall_s"))
    return jobs


def _jobs_of(edit: AccountEdit, tree: tuple[Association, ...]) -> pl.Expr:
    """The jobs of a QOS, a user, or an account and those below it."""
    if edit.entity == "user":
        return pl.col("user_name") == edit.name
    if edit.entity == "qos":
        own = pl.col("qos").str.to_lowercase() == edit.name
        return own | _usual() if edit.name == NORMAL else own
    return pl.col("account").str.to_lowercase().is_in(sorted(_and_below(tree, edit.name)))


def _and_below(tree: tuple[Association, ...], account: str) -> set[str]:
    """The account and those below it."""
    found, more = set[str](), {account}
    while more:
        found |= more
        more = {row.account for row in tree if row.parent in more} - found
    return found


def _moved(edit: AccountEdit, setting: str) -> tuple[pl.Expr, str]:
    """The jobs that a setting moves to a new QOS, and its name."""
    value = setting.rpartition("=")[2]
    if setting.startswith("DefaultQOS="):
        own = pl.col("user_name") if edit.entity == "user" else pl.col("account").str.to_lowercase()
        return own == edit.name, value
    if edit.is_new and setting.startswith(WALL):
        return pl.col("limit_s") <= values.time_s(value), edit.name
    if edit.is_new and setting.startswith(OF_A_JOB):
        return pl.coalesce("allocated_nodes", "requested_nodes") <= int(value), edit.name
    return pl.lit(value=False), ""


def with_max_time(world: SlurmWorld, conf: SlurmConf, edits: Iterable[ConfEdit]) -> SlurmWorld:
    """Return the world in which jobs ask for at most the MaxTime that the edits set; `conf` is the edited slurm.conf.

    Longer jobs are cut there and not submitted again, as in `baton whatif`.
    """
    for edit in edits:
        one = conf.partition(edit.partition or "")
        if edit.key != "MaxTime" or one is None:
            continue
        row, most_s = world.partitions.names.index(one.name), one.max_time_s
        max_time_s = world.partitions.max_time_s.copy()
        max_time_s[row] = NO_LIMIT if most_s is None else most_s
        limit_s = world.jobs.limit_s
        if most_s is not None:
            limit_s = np.where(world.jobs.partition == row, np.minimum(limit_s, most_s), limit_s)
        jobs = replace(world.jobs, limit_s=limit_s)
        world = replace(world, jobs=jobs, partitions=replace(world.partitions, max_time_s=max_time_s))
    return world


def compare_declared(files: SlurmFiles, diff: SlurmDiff, window: tuple[int, int]) -> dict[str, Any]:
    """Simulate a cluster's window (epoch s) under its files before and after the diff; see `answer_declared`."""
    around = (window[0], window[1] + HORIZON_S)
    before = load_slurm_files(files, around=around)
    after = load_slurm_files(files, around=around, edit=edit_of(diff, window[0]))
    changed = with_max_time(after.world, edited_conf(files.conf, diff.conf), diff.conf)
    answer = answer_declared(paired_waits(before.world, changed, window))
    return {**answer, "said": list(dict.fromkeys([*answer["said"], *diff.by_hand, *after.remarks]))}


class PairedWaits(NamedTuple):
    """Waits from eligibility (submission, if later) to the start, s, arrays of shape (jobs,)."""

    submit_s: Int64s
    recorded_s: Float64s  # NaN for a job that did not start in the record
    before_s: Float64s  # simulated; NaN for a job that never starts
    after_s: Float64s
    contradictions: tuple[str, ...] = ()  # jobs of the record that the files before the change never start, by reason

    @property
    def both(self) -> Bools:
        """The jobs that the record and both simulations start."""
        kept: Bools = ~np.isnan(self.recorded_s + self.before_s + self.after_s)
        return kept

    @property
    def lost(self) -> int:
        """The number of recorded jobs that start before the change and never after it."""
        return int((~np.isnan(self.recorded_s + self.before_s) & np.isnan(self.after_s)).sum())


def paired_waits(before: SlurmWorld, after: SlurmWorld, window: tuple[int, int]) -> PairedWaits:
    """Simulate both worlds from the recorded state at the window's first second on, and pair the jobs submitted in it.

    `window` is the first second and the one after the last. `SlurmJobs.pinned_s` of `before` is the record. Jobs that
    started earlier did so when they did, on their nodes, and run as long as they did; they count in fair share, and no
    change cuts them. Raises InputError for different jobs.
    """
    if not np.array_equal(before.jobs.submit_s, after.jobs.submit_s):
        raise InputError("the two clusters to compare hold different jobs")
    from_s, until_s = window
    before, after = (_with_started(world, before.jobs, from_s) for world in (before, after))
    jobs = before.jobs
    since_s = np.maximum(jobs.submit_s, jobs.eligible_s)
    recorded_s = np.where(jobs.pinned_s == NEVER, NONE, jobs.pinned_s)
    base = run(before, free_from=from_s)
    judged = (jobs.submit_s >= from_s) & (jobs.submit_s < until_s)
    starts = (recorded_s, base.start_s, run(after, free_from=from_s).start_s)
    recorded, old, new = (np.where(at == NONE, np.nan, at - since_s)[judged] for at in starts)
    runs = judged | ((jobs.pinned_s < from_s) & (jobs.pinned_s + jobs.run_s > from_s))
    counts = np.bincount(base.reason[runs & (recorded_s != NONE)], minlength=len(REASONS))
    lines = tuple(
        f"slurm.conf contradicts the log: {counted(int(count), 'job')} that ran can never start under it: {why}"
        for why, count in zip(REASONS, counts, strict=True)
        if why and count
    )
    return PairedWaits(jobs.submit_s[judged], recorded, old, new, lines)


def _with_started(world: SlurmWorld, recorded: SlurmJobs, from_s: int) -> SlurmWorld:
    """The world in which jobs that started before `from_s` end when they did; no limit of theirs is shorter."""
    started, jobs = recorded.pinned_s < from_s, world.jobs
    limit_s = np.where(started, np.maximum(recorded.limit_s, recorded.run_s), jobs.limit_s)
    return replace(world, jobs=replace(jobs, limit_s=limit_s, run_s=np.where(started, recorded.run_s, jobs.run_s)))


def answer_declared(paired: PairedWaits, block_s: int = BLOCK_S) -> dict[str, Any]:
    """Compare paired waits: the base with the record, and the change with the base.

    `results` has a row per figure with the difference, its interval over blocks of `block_s` seconds, and the
    verdict. Raises InputError without a job that starts in the record and both simulations.
    """
    both = paired.both
    if not both.any():
        why = "; ".join(paired.contradictions) or "so there is nothing to compare"
        raise InputError(f"no recorded job starts both before and after the change: {why}")
    recorded, old, new = (waits(w[both]) for w in (paired.recorded_s, paired.before_s, paired.after_s))
    rho: float | None = spearman(paired.before_s[both], paired.recorded_s[both])
    rho = None if rho is None or np.isnan(rho) else rho
    submit_s, rows = paired.submit_s[both], []
    drawn = quantile_intervals(paired.before_s[both], paired.after_s[both], submit_s, list(QUANTILES.values()), block_s)
    intervals = dict(zip(QUANTILES, drawn, strict=True))
    intervals["mean_wait_s"] = mean_interval((paired.after_s - paired.before_s)[both], submit_s, block_s)
    for figure in WAITS:
        difference, ci95 = (new[figure] or 0.0) - (old[figure] or 0.0), intervals[figure]
        error = abs((old[figure] or 0.0) - (recorded[figure] or 0.0))
        rows.append(
            {
                "figure": figure,
                "before": old[figure],
                "value": new[figure],
                "difference": difference,
                "difference_ci95": ci95,
                "base_error": error,
                "verdict": verdict(difference, ci95, error, is_sampled=True),
            }
        )
    never = f"{counted(paired.lost, 'job')} can never start after the change and count in no figure"
    base = {
        "recorded": recorded,
        "replayed": old,
        "spearman": rho,
        "trust": trust(recorded["mean_wait_s"], old["mean_wait_s"], rho),
    }
    return {
        "jobs": int(both.sum()),
        "never": paired.lost,
        "base": base,
        "results": rows,
        "said": [*paired.contradictions, *([never] if paired.lost else [])],
    }
