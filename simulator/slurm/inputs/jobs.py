"""Convert the job tables of a cluster to the jobs of a world, and list left-out records and assumptions.

Each recorded run is a row of its own; a requeue is submitted again at its recorded time. We assume where the log is
silent:

- A job that never started waits until it was cancelled or until the log ends. If it starts earlier in the simulation,
  it runs for 0 s, because its run time is unknown.
- A job that was running at the end of the log runs to its limit. So does a job that was waiting then, if the column
  `is_open` of the jobs marks it.
- A job gets the same share on each of its nodes: its recorded allocation divided by its nodes, rounded up; its request
  if it never ran.
- Dependencies and begin times are represented by the recorded eligible time; the tables name no parent.
- The recorded eligible time of an array task is when the array's throttle released it. If the log holds the throttle,
  we simulate it: every task is eligible, and ages, from the array's first eligible time (seen on Slurm 22.05 against
  sprio; docs/fidelity.md). Otherwise we use the recorded time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from simulator.array_tasks import one_row_a_task
from simulator.slurm import world as w
from simulator.slurm.inputs.cluster import YEAR_S, SlurmCluster, cluster
from simulator.slurm.inputs.submitted import Submitter, SubmitterNames
from simulator.workload import Workload
from traces.arrays import Int64s
from traces.counted import counted
from traces.errors import InputError
from traces.slurm.accounts import Association, Qos
from traces.slurm.conf import PartitionConf, SlurmConf
from traces.slurm.reservations import Reservation

ROOT = "root"  # the account of a job without an account in the log
NOBODY = "(unknown)"  # the user of a job without a user in the log


@dataclass(frozen=True)
class Loaded:
    """A world whose job row r is attempt `attempts[r]` of job `keys[r]`, with left-out records and remarks."""

    world: w.SlurmWorld
    keys: tuple[str, ...]
    attempts: Int64s
    remarks: tuple[str, ...]
    left_out: dict[str, int]  # reason -> number of records
    submitter: Submitter | None = None  # the submitter of extra jobs, if there is one


def flat(workload: Workload, capacity: int) -> w.SlurmWorld:
    """Build a world of a workload on `capacity` equal units (nodes or processors), as from an empty slurm.conf.

    This means Slurm's defaults: first come, first served (priority/basic), main loop every 60 s, backfill every 30 s.
    """
    jobs = w.plain_jobs(workload.submit_s, workload.run_s, workload.limit_s, workload.size)
    return w.flat_world(jobs, capacity, w.SlurmSettings())


def from_tables(
    conf: SlurmConf,
    jobs: pl.DataFrame,
    attempts: pl.DataFrame,
    placements: pl.DataFrame | None = None,
    *,
    qos: Sequence[Qos] | None = None,
    associations: Sequence[Association] | None = None,
    reservations: Sequence[Reservation] = (),
    submitter: SubmitterNames | None = None,
) -> Loaded:
    """Build the world of one cluster's `jobs`, `attempts` and `placements` (columns as in `traces.schema`).

    A column `wall_s` of the jobs caps their time limits (null: no cap). A `submitter` that appears neither in the jobs
    nor in the dumps gets a row, as do new users of the jobs. Jobs that can never start are included; the run lists them
    with their reasons. Records without a submission time or with a negative run time are left out and counted. Raises
    InputError if no record is left.
    """
    rows, left_out = _runs(jobs, attempts)
    remarks: list[str] = []
    rows = _expanded(rows, remarks)
    rows = _named(rows, conf, remarks)
    if rows.is_empty():
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in left_out.items()) or "it has no jobs"
        raise InputError(f"{conf.path}: no job of the cluster can be replayed: {reasons}")
    pairs = list(dict.fromkeys(zip(rows["account"].to_list(), rows["user_name"].to_list(), strict=True)))
    wanted_qos = rows["qos"].unique(maintain_order=True).to_list()
    if submitter is not None:
        pairs, wanted_qos = [*pairs, submitter[1:]], [*wanted_qos, default_qos(associations or (), submitter)]
    declared = cluster(
        conf,
        qos,
        associations,
        reservations=reservations,
        more_qos=wanted_qos,
        more_users=pairs,
    )
    table, throttle = _jobs(rows, conf, declared)
    partitions = _as_it_was(declared.partitions, table, rows, remarks)
    first, nodes = _pinned(rows, placements, declared, table.nodes)
    world = w.SlurmWorld(
        nodes=declared.nodes,
        partitions=partitions,
        qos=declared.qos,
        associations=declared.associations,
        jobs=table,
        dependencies=w.no_dependencies(),
        outages=declared.outages,
        capacity=w.constant_capacity(),
        pinned_first=first,
        pinned_nodes=nodes,
        array_throttle=throttle,
        settings=declared.settings,
    )
    keys, numbers = tuple(rows["job_key"].to_list()), rows["attempt"].to_numpy()
    by = submitter and _submitter(submitter, declared, wanted_qos[-1])
    return Loaded(world, keys, numbers, (*declared.remarks, *remarks), left_out, by)


def default_qos(associations: Sequence[Association], submitter: SubmitterNames) -> str:
    """Return the default QOS of a job: the association's default, else its account's, else `normal`."""
    by_name = {(row.account, row.user): row.default_qos for row in associations}
    return by_name.get(submitter[1:]) or by_name.get((submitter.account, "")) or "normal"


def _submitter(names: SubmitterNames, declared: SlurmCluster, qos: str) -> Submitter:
    return Submitter(
        declared.partition_rows[names.partition],
        declared.qos_rows[qos],
        declared.user_rows[names.user],
        declared.association_rows[names.account, names.user],
    )


def _seconds(name: str) -> pl.Expr:
    return pl.col(f"{name}_utc").dt.epoch("s")


def _positive(*names: str) -> list[pl.Expr]:
    return [pl.when(pl.col(name) > 0).then(pl.col(name)) for name in names]


def _runs(jobs: pl.DataFrame, attempts: pl.DataFrame) -> tuple[pl.DataFrame, dict[str, int]]:
    """Return one row per recorded run, or job that never ran, and the number of left-out records by reason.

    A resized job is one run: it never returned to the queue.
    """
    own = attempts.select(
        "job_key",
        "attempt",
        _seconds("submit").alias("again_s"),
        _seconds("start").alias("start_s"),
        _seconds("end").alias("end_s"),
        pl.col("run_s").alias("attempt_run_s"),
        pl.col("state").alias("attempt_state"),
        pl.col("nodes").alias("attempt_nodes"),
        pl.col("gpus").alias("attempt_gpus"),
    )
    resized = own.filter(pl.col("attempt_state") == "RESIZING")["job_key"].unique()
    own = own.filter(~pl.col("job_key").is_in(resized.implode()) | (pl.col("attempt") == 0))
    is_resized = pl.col("job_key").is_in(resized.implode())
    every = jobs.join(own, on="job_key", how="left").with_columns(pl.col("attempt").fill_null(0))
    log_end_s = every.select(pl.max_horizontal(pl.col("end_s").max(), _seconds("submit").max())).item()
    is_open = pl.col("is_open") if "is_open" in jobs.columns else pl.lit(False)
    # If the log holds eligible times, a waiting job without one is held.
    shows_holds = pl.lit(jobs["eligible_utc"].null_count() < jobs.height)
    first = pl.col("attempt") == 0
    begun = pl.coalesce("start_s", pl.when(first).then(_seconds("start")))
    rows = every.with_columns(
        submit_s=pl.when(first).then(_seconds("submit")).otherwise(pl.coalesce("again_s", _seconds("submit"))),
        start_s=begun,
        run_s=pl.when(is_resized).then(pl.col("run_s")).otherwise(pl.coalesce("attempt_run_s", "run_s")),
        state=pl.when(is_resized).then(pl.col("state")).otherwise(pl.coalesce("attempt_state", "state")),
        cancel_s=pl.when(begun.is_null() & ~is_open).then(pl.coalesce(_seconds("end"), pl.lit(log_end_s))),
        waits_on=begun.is_null() & is_open,
    ).with_columns(
        eligible_s=pl.when(first & _seconds("eligible").is_not_null())
        .then(pl.min_horizontal(_seconds("eligible"), pl.coalesce("start_s", _seconds("eligible"))))
        .when(pl.col("start_s").is_null() & first & (shows_holds | ~is_open))
        .then(w.NEVER)  # held until its cancellation
        .otherwise(pl.col("submit_s"))
    )
    reasons = {
        "without a submission time": pl.col("submit_s").is_null(),
        "with a negative run time": (pl.col("run_s") < 0).fill_null(False),
    }
    left_out: dict[str, int] = {}
    for reason, mask in reasons.items():
        if count := rows.filter(mask).height:
            left_out[reason] = count
        rows = rows.filter(~mask)
    return rows, left_out


def _expanded(rows: pl.DataFrame, remarks: list[str]) -> pl.DataFrame:
    """Return one row per array task, with the array's throttle and the task's eligible time under it."""
    rows = one_row_a_task(rows).with_columns(throttle=pl.col("job_id").str.extract(r"%(\d+)\]?$").cast(pl.Int64))
    cut = rows.filter(pl.col("array_task_id").is_null() & pl.col("job_id").str.contains("_[", literal=True)).height
    if cut:
        remarks.append(
            f"{counted(cut, 'record')} of pending array tasks with a truncated task list: each counts as one task"
        )
    known = pl.col("throttle").max().over("array_job_id").fill_null(0) > 0
    first = pl.when(pl.col("eligible_s") < w.NEVER).then("eligible_s").min().over("array_job_id", "submit_s")
    return rows.with_columns(
        eligible_s=pl.when(pl.col("array_job_id").is_not_null() & known)
        .then(pl.min_horizontal("eligible_s", first))
        .otherwise("eligible_s")
    )


def _named(rows: pl.DataFrame, conf: SlurmConf, remarks: list[str]) -> pl.DataFrame:
    """Fill in blank names and sort the rows as a world does: by submission and job id, array tasks by number.

    (The last task of an array has the array's own job id, the smallest of all.)
    """
    several = rows.filter(pl.col("partition").str.contains(",", literal=True).fill_null(False)).height
    if several:
        remarks.append(f"{counted(several, 'job', 'asks')} for several partitions: each waits in the first one")
    default = conf.default_partition
    partition = pl.col("partition").str.split(",").list.first().replace("", None)
    return rows.with_columns(
        partition=partition.fill_null(default.name if default else ""),
        qos=pl.col("qos").replace("", None).str.to_lowercase().fill_null("normal"),
        account=pl.col("account").replace("", None).str.to_lowercase().fill_null(ROOT),
        user_name=pl.col("user_name").replace("", None).fill_null(NOBODY),
        id_of_all=pl.coalesce("array_job_id", "job_id_raw"),
    ).sort("submit_s", "id_of_all", "array_task_id", "job_id_raw", "job_key", "attempt", nulls_last=True)


def _ints(rows: pl.DataFrame, expression: pl.Expr) -> Int64s:
    values: Int64s = rows.select(expression.cast(pl.Int64)).to_series().to_numpy().astype(np.int64)
    return values


def _rows_of(names: pl.Series, known: dict[str, int], unset: int = w.NONE) -> Int64s:
    return np.array([known.get(name, unset) for name in names.to_list()], np.int64)


def _jobs(rows: pl.DataFrame, conf: SlurmConf, declared: SlurmCluster) -> tuple[w.SlurmJobs, Int64s]:
    """Return the jobs of a world and the throttle of each array."""
    by_name = {partition.name: partition for partition in conf.partitions}
    of_row = [by_name.get(name) for name in rows["partition"].to_list()]
    nodes = _ints(rows, pl.coalesce(*_positive("attempt_nodes", "allocated_nodes", "requested_nodes"), pl.lit(1)))
    cpus = _ints(rows, pl.coalesce(*_positive("allocated_cpus", "requested_cpus"), pl.lit(0)))
    gpus = _ints(rows, pl.coalesce(*_positive("attempt_gpus", "allocated_gpus", "requested_gpus"), pl.lit(0)))
    memory = _memory_mb(rows, conf, of_row, nodes, cpus, gpus)
    cpus_count = conf.select_type != "select/linear" and "cr_memory" not in conf.select_parameters
    limit = _limit_s(rows, of_row)
    start = _ints(rows, pl.col("start_s").fill_null(w.NEVER))
    takes_time = (start != w.NEVER) | rows["waits_on"].to_numpy()
    arrays = rows.group_by("array_job_id", maintain_order=True).agg(pl.col("throttle").max().fill_null(0))
    arrays = arrays.filter(pl.col("array_job_id").is_not_null())
    array_rows = {int(array): row for row, array in enumerate(arrays["array_job_id"].to_list())}
    user = _rows_of(rows["user_name"], declared.user_rows)
    pairs = zip(rows["account"].to_list(), rows["user_name"].to_list(), strict=True)
    name_rows = rows.select(pl.struct("user_name", "job_name").rank("dense").cast(pl.Int64) - 1).to_series()
    table = w.plain_jobs(
        _ints(rows, pl.col("submit_s")),
        np.where(takes_time, _ints(rows, pl.coalesce("run_s", pl.lit(-1))), 0),
        limit,
        nodes,
        eligible_s=_ints(rows, pl.col("eligible_s")),
        cancel_s=_ints(rows, pl.col("cancel_s").fill_null(w.NEVER)),
        failed=_ints(rows, pl.col("state") != "COMPLETED").astype(bool),
        partition=_rows_of(rows["partition"], declared.partition_rows),
        qos=_rows_of(rows["qos"], declared.qos_rows),
        user=user,
        association=np.array([declared.association_rows[pair] for pair in pairs], np.int64),
        cpus_per_node=-(-cpus // nodes) if cpus_count else np.zeros(len(rows), np.int64),
        memory_per_node_mb=-(-memory // nodes),
        gpus_per_node=-(-gpus // nodes),
        array=_rows_of(rows["array_job_id"], array_rows),  # type: ignore[arg-type]
        name=name_rows.to_numpy().astype(np.int64),
        pinned_s=start,
    )
    unfinished = table.run_s < 0  # running or waiting at the end of the log
    table = replace(table, run_s=np.where(unfinished, limit, table.run_s))
    return table, arrays["throttle"].to_numpy().astype(np.int64)


def _limit_s(rows: pl.DataFrame, of_row: list[PartitionConf | None]) -> Int64s:
    """Return the job's limit, else its partition's default, else its maximum, else YEAR_S; at most the job's wall_s."""
    stated = _ints(rows, pl.col("limit_s").fill_null(0))
    default = [(p.default_time_s or p.max_time_s or YEAR_S) if p else YEAR_S for p in of_row]
    limit = np.where(stated > 0, stated, np.array(default, np.int64))
    return np.minimum(limit, _ints(rows, pl.col("wall_s").fill_null(w.NEVER))) if "wall_s" in rows.columns else limit


def _memory_mb(
    rows: pl.DataFrame,
    conf: SlurmConf,
    of_row: list[PartitionConf | None],
    nodes: Int64s,
    cpus: Int64s,
    gpus: Int64s,
) -> Int64s:
    """Return MiB over all nodes, by default from DefMemPer*; 0 if memory is not a consumable resource."""
    consumable = any("memory" in parameter for parameter in conf.select_parameters)
    consumable |= conf.select_type != "select/linear" and not conf.select_parameters  # CR_Core_Memory
    if not consumable:
        return np.zeros(len(rows), np.int64)
    asked = _ints(rows, pl.col("requested_mem_mib").fill_null(0))
    by_default = np.zeros(len(rows), np.int64)
    for row, partition in enumerate(of_row):
        where = partition if partition and _default_memory(partition) else conf
        per_node, per_gpu, per_cpu = _default_memory(where) or (0, 0, 0)
        by_default[row] = per_node * nodes[row] or per_gpu * gpus[row] or per_cpu * cpus[row]
    return np.where(asked > 0, asked, by_default)


def _default_memory(where: PartitionConf | SlurmConf) -> tuple[int, int, int] | None:
    defaults = (where.def_mem_per_node_mib, where.def_mem_per_gpu_mib, where.def_mem_per_cpu_mib)
    return defaults if any(defaults) else None


def _as_it_was(partitions: w.Partitions, jobs: w.SlurmJobs, rows: pl.DataFrame, remarks: list[str]) -> w.Partitions:
    """Raise the partitions' limits to the largest recorded run: an operator may extend a job past MaxTime."""
    ran = jobs.pinned_s != w.NEVER
    longest, widest = partitions.max_time_s.copy(), partitions.max_nodes.copy()
    for what, most, values in (("MaxTime", longest, jobs.limit_s), ("MaxNodes", widest, jobs.nodes)):
        for row, name in enumerate(partitions.names):
            over = ran & (jobs.partition == row) & (values > most[row]) & (most[row] != w.NO_LIMIT)
            if over.any():
                remarks.append(
                    f"{counted(int(over.sum()), 'job')} of partition {name} exceeded its {what}: it is raised"
                )
                most[row] = values[over].max()
    return replace(partitions, max_time_s=longest, max_nodes=widest)


def _pinned(
    rows: pl.DataFrame, placements: pl.DataFrame | None, declared: SlurmCluster, wanted: Int64s
) -> tuple[Int64s, Int64s]:
    """Return the recorded nodes of each row, for replays with pinned starts; none where the files lack one of them."""
    count = len(rows)
    if placements is None or placements.is_empty():
        return np.zeros(count + 1, np.int64), np.zeros(0, np.int64)
    known = pl.DataFrame({"node": list(declared.node_rows), "node_row": list(declared.node_rows.values())})
    held = placements.join(known, on="node").sort("node_row").group_by("job_key", "attempt").agg("node_row")
    lists = rows.select("job_key", "attempt").join(held, on=["job_key", "attempt"], how="left", maintain_order="left")
    lists = lists.with_columns(pl.when(pl.col("node_row").list.len() == wanted).then("node_row"))
    lengths = lists.select(pl.col("node_row").list.len().fill_null(0)).to_series().to_numpy()
    nodes = lists["node_row"].drop_nulls().explode().to_numpy().astype(np.int64)
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), nodes
