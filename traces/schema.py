"""The canonical tables: every name, type, unit and meaning, declared once.

Casts, checks, SQL comments and the column dictionary (docs/columns.md) are generated from `TABLES`.
Times are naive UTC timestamps and end in `_utc`; durations are whole seconds and end in `_s`.
A count names what it counts. A null means that the log does not record the value.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

SCHEMA_VERSION = 11

# Upper bounds of one record's values, by a column's full name or the last part of it. No machine comes near them: a
# larger value is a fault or an attack, and the record is rejected with the value. A product of two bounds fits in
# 64 bits, and so does the summed GPU time of half a million attempts.
MOST: dict[str, int] = {
    "nodes": 1 << 20,  # six times the nodes of the largest machine yet (Fugaku)
    "cpus": 1 << 28,  # six times the cores of the machine with the most of them (Sunway)
    "gpus": 1 << 20,
    "mib": 1 << 40,  # an EiB
    "kib": 1 << 50,
    "gb": 1 << 30,
    "percent": 100 << 28,  # every CPU busy
    "s": 1 << 32,  # 136 years: the range of Slurm's 32-bit seconds
    "limit_s": 60 << 32,  # 32-bit minutes
    "cpu_time_s": 1 << 60,  # summed over all CPUs
    "gpu_time_s": 1 << 44,  # half a million GPU years
}
# Times span 32 bits of seconds, starting one day before 1970. So the time between any two of them is within MOST.
FIRST_UTC = datetime(1969, 12, 31)
LAST_UTC = FIRST_UTC + timedelta(seconds=MOST["s"])


def most(column: str) -> int | None:
    """Return the upper bound of a column with that name; None without a bound."""
    return MOST.get(column, MOST.get(column.rpartition("_")[2]))


UTC, TEXT, INT, FLOAT, FLAG = "TIMESTAMP", "VARCHAR", "BIGINT", "DOUBLE", "BOOLEAN"


@dataclass(frozen=True)
class Column:
    """One column of a canonical table: DuckDB type, unit ('' for none), meaning, and whether a null is allowed."""

    name: str
    type: str
    unit: str
    meaning: str
    nullable: bool = True


@dataclass(frozen=True)
class Table:
    """One canonical table: its columns in order, and the columns that identify a row."""

    name: str
    meaning: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the columns, in order."""
        return tuple(column.name for column in self.columns)


CLUSTER = Column("cluster", TEXT, "", "cluster name, as declared at ingest", nullable=False)
JOB_KEY = Column(
    "job_key",
    TEXT,
    "",
    "identifies one allocation request in this cluster: the job id, made unique where the cluster reused it",
    nullable=False,
)
JOB_NAME = Column("job_name", TEXT, "", "job name; untrusted user text, escape before use")
FILE = Column("trace_sha256", TEXT, "", "digest of the raw file that the row was read from", nullable=False)
REDUCED = "128 may be missing"  # an exit_code_form
EXIT_CODE_FORM = Column(
    "exit_code_form",
    TEXT,
    "",
    "sacct: whole; restored from DerivedExitCode; or 128 may be missing, because the text of Slurm 22.05 to 24.11 prints 137 as 9; null where it makes no difference or is not known",
)
LINE = Column("line", INT, "", "1-based line of the raw file (record number for JSON)", nullable=False)

# A job id appears several times: for each requeue and resize, in every dump that covers the job, and again when the
# cluster has run out of ids. Records of one id are compared in order of submission. A record belongs to the same job as
# the earlier records if it has the same submission time. It also belongs to it if user and name agree and it was
# submitted at most this long after the latest time of those records (a requeue resets the submission). Otherwise the
# cluster reused the id for another job. SLUIDs and Restarts overrule the times where both records have them.
REQUEUE_WITHIN_S = 7 * 86_400

# The base states of sacct's STATE column; Philly's Pass / Killed / Failed become COMPLETED / CANCELLED / FAILED.
STATES = (
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY",
    "PENDING", "PREEMPTED", "REQUEUED", "RESIZING", "REVOKED", "RUNNING", "SUSPENDED", "TIMEOUT", "UNKNOWN",
)  # fmt: skip

JOBS = Table(
    "jobs",
    "One row per job: the newest record of an allocation, with its first start and last end",
    (
        CLUSTER,
        JOB_KEY,
        Column("job_id", TEXT, "", "the id as the log prints it (123, 123_7, 123_[4-10%2], 123+1, application_...)", nullable=False),
        Column("job_id_raw", INT, "", "sacct's JobIDRaw; null where ids are not numbers"),
        Column("array_job_id", INT, "", "job id of the array that this task belongs to"),
        Column("array_task_id", INT, "", "task number in the array; null for a range of pending tasks"),
        JOB_NAME,
        Column("user_name", TEXT, "", "user name, or the numeric id where the log has no name"),
        Column("account", TEXT, "", "Slurm account"),
        Column("partition", TEXT, "", "Slurm partition, or Philly virtual cluster"),
        Column("qos", TEXT, "", "Slurm quality of service"),
        Column("state", TEXT, "", "base state, one of schema.STATES", nullable=False),
        Column("state_is_inferred", FLAG, "", "true: the log has no state, and it was inferred from times, limit and exit code", nullable=False),
        Column("submit_utc", UTC, "", "submission; for a requeued job that of its first record"),
        Column("eligible_utc", UTC, "", "earliest possible start: when no dependency, begin time or hold remained"),
        Column("start_utc", UTC, "", "first start; null for a job that never ran"),
        Column("end_utc", UTC, "", "last end; null while running or pending"),
        Column("requested_nodes", INT, "nodes", "nodes requested"),
        Column("requested_cpus", INT, "CPUs", "CPUs requested"),
        Column("requested_gpus", INT, "GPUs", "GPUs requested (Philly: GPUs of the first attempt)"),
        Column("requested_mem_mib", INT, "MiB", "memory requested, summed over all nodes"),
        Column("allocated_nodes", INT, "nodes", "nodes held by the last attempt; 0 for a job that never ran"),
        Column("allocated_cpus", INT, "CPUs", "CPUs held by the last attempt"),
        Column("allocated_gpus", INT, "GPUs", "GPUs held by the last attempt"),
        Column("allocated_mem_mib", INT, "MiB", "memory held by the last attempt, summed over all nodes; null where the log does not record it"),
        Column("limit_s", INT, "s", "wall-clock limit; null where unlimited or not in the log"),
        Column("run_s", INT, "s", "run time summed over attempts; excludes suspended time where the log does"),
        Column("wait_s", INT, "s", "first start minus submission; null for a job that never ran"),
        Column("eligible_wait_s", INT, "s", "first start minus eligible time; null for a job that never ran, or where a requeue overwrote the eligible time"),
        Column("gpu_time_s", INT, "GPU s", "GPUs held times run time, summed over attempts"),
        Column("exit_code", INT, "", "exit status of the last attempt"),
        Column("exit_signal", INT, "", "signal that ended the last attempt; 0 for none"),
        EXIT_CODE_FORM,
        Column("priority", INT, "", "priority as the log prints it"),
        Column("started_by", TEXT, "", "scheduler pass that started the job, from sacct's Flags: main, backfill or submit"),
        Column("reason", TEXT, "", "latest reason of waiting other than Priority and Resources: sacct's Reason as printed, None included"),
        Column("features_asked", TEXT, "", "node features requested, as printed: sacct's Constraints, such as a100&ib"),
        Column("gpu_type_asked", TEXT, "", "GPU models requested, joined by |, any of which will do; null if the job named none"),
        Column("other_flags", TEXT, "", "flags of the job or its state that Baton does not know, as printed, joined by commas; null for none"),
        Column("restarts", INT, "", "times that Slurm had requeued the job when its last record was written (Restarts); above attempts - 1 where the dump lacks earlier runs"),
        Column("sluid", TEXT, "", "Slurm's own identifier of the last run (SLUID; 24.11 and later)"),
        Column("original_sluid", TEXT, "", "SLUID of the last run before its first resize (OriginalSLUID; 26.05)"),
        Column("submit_line", TEXT, "", "command that submitted the job (SubmitLine); untrusted user text, escape before use"),
        Column("dependency", TEXT, "", "dependency on other jobs, as printed, where the dump has a column Dependency; sacct itself has no such field"),
        Column("attempts", INT, "attempts", "number of runs; 0 for a job that never ran", nullable=False),
        Column("is_time_ambiguous", FLAG, "", "true: a local time is in the hour of a clock change, and nothing in the log settles it", nullable=False),
        Column("is_end_before_start", FLAG, "", "true: the log prints an end before the start, and the start was set to that end; null where the reader rejects such a record"),
        FILE,
        LINE,
    ),
    key=("cluster", "job_key"),
)  # fmt: skip

ATTEMPTS = Table(
    "attempts",
    "One row per run of a job: Slurm requeues and resizes, Philly attempts",
    (
        CLUSTER,
        JOB_KEY,
        Column("attempt", INT, "", "0-based number of the run, in time order", nullable=False),
        Column("submit_utc", UTC, "", "when this run was queued (a requeue resets it)"),
        Column("start_utc", UTC, "", "start"),
        Column("end_utc", UTC, "", "end; null while running"),
        Column("run_s", INT, "s", "run time"),
        Column(
            "state",
            TEXT,
            "",
            "base state at the end of the run; Philly records none for runs: a run followed by another is FAILED, though it may have been preempted",
            nullable=False,
        ),
        Column("nodes", INT, "nodes", "nodes held"),
        Column("cpus", INT, "CPUs", "CPUs held"),
        Column("gpus", INT, "GPUs", "GPUs held"),
        Column(
            "gpu_part", FLOAT, "", "fraction of each GPU held, 0 to 1, where jobs share GPUs; null means whole GPUs"
        ),
        Column("mem_mib", INT, "MiB", "memory held, summed over all nodes"),
        Column("gpu_time_s", INT, "GPU s", "GPUs held times run time"),
        Column("exit_code", INT, "", "exit status"),
        Column("exit_signal", INT, "", "signal; 0 for none"),
        EXIT_CODE_FORM,
        Column("failed_node", TEXT, "", "node whose failure ended the run (FailedNode)"),
        FILE,
        LINE,
    ),
    key=("cluster", "job_key", "attempt"),
)

STEPS = Table(
    "steps",
    "One row per job step (batch, extern, interactive, 0, 1, ...)",
    (
        CLUSTER,
        JOB_KEY,
        Column("step_id", TEXT, "", "part of the step's id after the dot: batch, extern, interactive, 0, ...", nullable=False),
        Column("step_name", TEXT, "", "step name; untrusted user text, escape before use"),
        Column("state", TEXT, "", "base state", nullable=False),
        Column("start_utc", UTC, "", "start"),
        Column("end_utc", UTC, "", "end"),
        Column("run_s", INT, "s", "run time"),
        Column("cpus", INT, "CPUs", "CPUs held"),
        Column("max_rss_kib", INT, "KiB", "largest resident set of any task"),
        Column("cpu_time_s", FLOAT, "s", "CPU time used (TotalCPU)"),
        Column("exit_code", INT, "", "exit status"),
        Column("exit_signal", INT, "", "signal; 0 for none"),
        EXIT_CODE_FORM,
        Column("gpu_percent", FLOAT, "%", "GPU utilization: last reading of each task, summed over tasks and GPUs (gres/gpuutil of TRESUsageInTot, or of TRESUsageInAve times NTasks). Slurm keeps no mean over time"),
        Column("gpu_max_percent", FLOAT, "%", "GPU utilization: highest reading of any task, summed over its GPUs (TRESUsageInMax)"),
        Column("gpu_mem_max_kib", INT, "KiB", "GPU memory: highest reading of any task (gres/gpumem of TRESUsageInMax)"),
        FILE,
        LINE,
    ),
)  # fmt: skip

PLACEMENTS = Table(
    "placements",
    "One row per attempt and node",
    (
        CLUSTER,
        JOB_KEY,
        Column("attempt", INT, "", "as in attempts", nullable=False),
        Column("node", TEXT, "", "node name", nullable=False),
        Column("gpus", INT, "GPUs", "GPUs held on the node; null where the log gives only a total that does not divide evenly"),
        Column("gpu_numbers", TEXT, "", "0-based numbers of those GPUs in the node, such as 0,1,5; null where the log has none"),
        FILE,
    ),
    key=("cluster", "job_key", "attempt", "node"),
)  # fmt: skip

NODES = Table(
    "nodes",
    "One row per node of a machine list",
    (
        CLUSTER,
        Column("node", TEXT, "", "node name", nullable=False),
        Column("gpus", INT, "GPUs", "GPUs of the node, from the machine list"),
        Column("gpu_type", TEXT, "", "model of the GPUs, as printed in the machine list; null where it has none"),
        Column("gpu_mem_gb", FLOAT, "GB", "memory of one GPU"),
        Column("cpus", INT, "CPUs", "CPUs of the node, from the machine list"),
        Column("memory_mib", INT, "MiB", "memory of the node, from the machine list"),
        Column("partitions", TEXT, "", "Slurm partitions of the node, joined by commas; null where the list has none"),
        Column("features", TEXT, "", "features of the node, joined by commas; null where the list has none"),
        Column(
            "state",
            TEXT,
            "",
            "state of the node when the list was printed, as printed (IDLE+DRAIN, mix*); null where the list has none",
        ),
        FILE,
        LINE,
    ),
    key=("cluster", "node"),
)

_SAMPLE = (
    CLUSTER,
    Column("node", TEXT, "", "node name", nullable=False),
    Column("sample_utc", UTC, "", "minute of the sample", nullable=False),
)

GPU_UTILIZATION = Table(
    "gpu_utilization",
    "One row per GPU and minute",
    (*_SAMPLE, Column("gpu", INT, "", "0-based number of the GPU in its node", nullable=False),
     Column("utilization_percent", FLOAT, "%", "measured utilization; null where the GPU was offline ('NA')"), FILE),
)  # fmt: skip

CPU_UTILIZATION = Table(
    "cpu_utilization",
    "One row per node and minute",
    (*_SAMPLE, Column("utilization_percent", FLOAT, "%", "measured CPU utilization; null where 'NA'"), FILE),
)

MEMORY_UTILIZATION = Table(
    "memory_utilization",
    "One row per node and minute",
    (
        *_SAMPLE,
        Column("total_kib", INT, "KiB", "memory of the node"),
        Column("free_kib", INT, "KiB", "free memory"),
        FILE,
    ),
)

CHAIN = Column(
    "chain", TEXT, "", "id of a chain of jobs that baton-agent runs: eight hexadecimal digits", nullable=False
)
DECISION = (
    Column("score", FLOAT, "", "the policy's score, 0 or more where it submits; null where the policy did not decide"),
    Column("policy", TEXT, "", "name of the released policy"),
    Column("version", TEXT, "", "version of the policy: twelve hexadecimal digits of a digest of its artifact; null where the log lacks it"),
    Column("setting", FLOAT, "", "value of the policy's tunable setting"),
    Column("left_s", INT, "s", "time left of the predecessor until its limit; null where it was not observed"),
    Column("start_estimate_s", INT, "s", "predicted wait of the successor if submitted then, assuming that jobs run to their limits; null where it was not observed"),
    Column("start_expected_s", INT, "s", "predicted wait of the successor if submitted then, assuming expected run times; null where it was not observed"),
    Column("limit_s", INT, "s", "time limit that a plan chose for the next link; null without a plan"),
    Column("expected_interruption_s", INT, "s", "mean interruption before that link in the plan's futures, if submitted when the plan says; null without a plan"),
)  # fmt: skip
DEPENDENCY = Column("dependency", TEXT, "", "dependency given at submission; '' for none")
PREDECESSOR_ID = Column("predecessor_id", TEXT, "", "job id of the previous link, which hands over its work")

AGENT_DECISIONS = Table(
    "agent_decisions",
    "One row per decision of baton-agent: submit the successor of a running link now, or wait",
    (
        CLUSTER,
        CHAIN,
        Column("time_utc", UTC, "", "time of the decision", nullable=False),
        Column("link", INT, "", "number of the running link, from 1", nullable=False),
        Column("predecessor_id", TEXT, "", "job id of the running link", nullable=False),
        Column("submit", FLAG, "", "true: submit now", nullable=False),
        Column("decided_by", TEXT, "", "what decided: policy, plan, start estimate or predecessor's end", nullable=False),
        Column("reason", TEXT, "", "reason in words; untrusted text, escape before use", nullable=False),
        *DECISION,
        Column("hidden", TEXT, "", "features of the observation that the agent cannot observe on this Slurm, joined by commas", nullable=False),
        FILE,
        LINE,
    ),
)  # fmt: skip

AGENT_EVENTS = Table(
    "agent_events",
    "One row per event of a chain that baton-agent runs, in the order in which it learned of them",
    (
        CLUSTER,
        CHAIN,
        Column("time_utc", UTC, "", "when the agent learned of the event", nullable=False),
        Column("event", TEXT, "", "submitted, waits, started, requeued, withdrawn, handed over (the agent ended it because a newer link ran), ended, handover, chain or note", nullable=False),
        Column("link", INT, "", "number of the link, from 1; for a handover that of the later link; null for chain and note"),
        Column("attempt", INT, "", "1-based number of the link's attempt; null for handover, chain and note"),
        Column("job_id", TEXT, "", "job id of the attempt; '' where it never became a job; null for chain and note"),
        JOB_NAME,
        Column("submit_utc", UTC, "", "for submitted and started: submission"),
        DEPENDENCY,
        Column("start_utc", UTC, "", "for started and ended: start"),
        Column("end_utc", UTC, "", "for ended: end"),
        Column("state", TEXT, "", "for ended: Slurm's base state, REFUSED or ABSENT (never became a job), or LOST (its end is unknown); for chain: done, failed or cancelled"),
        Column("exit_code", INT, "", "for ended: exit status"),
        Column("predecessor_link", INT, "", "for a handover: number of the link that handed over, the earlier one that ended last"),
        PREDECESSOR_ID,
        Column("interruption_s", INT, "s", "for a handover: time from the end of that link to the start of the next; 0 where they overlap"),
        Column("overlap_s", INT, "s", "for a handover: time from the start of the next link until either ends; 0 where they do not overlap"),
        Column("text", TEXT, "", "why the link waits, was withdrawn or the chain ended, the job that took over, or the text of a note; untrusted text, escape before use"),
        FILE,
        LINE,
    ),
)  # fmt: skip

TRACE_FILES = Table(
    "trace_files",
    "One row per raw file, with the counts of its records: records = allocations + steps + samples + duplicates + rejects",
    (
        CLUSTER,
        Column("path", TEXT, "", "path given at ingest", nullable=False),
        Column("sha256", TEXT, "", "SHA-256 digest of the file's bytes", nullable=False),
        Column("bytes", INT, "bytes", "size on disk (compressed, if the file is)", nullable=False),
        Column("format", TEXT, "", "name of the reader", nullable=False),
        Column("timezone", TEXT, "", "time zone of the file's local times", nullable=False),
        Column("is_generated", FLAG, "", "true: written by `baton generate`, not recorded on a real cluster", nullable=False),
        Column("records", INT, "records", "records read", nullable=False),
        Column("allocations", INT, "records", "distinct allocation records, each requeue or resize included", nullable=False),
        Column("steps", INT, "records", "job-step records", nullable=False),
        Column("samples", INT, "records", "utilization, machine-list and other records that are not jobs, and lines of the agent's log", nullable=False),
        Column("duplicates", INT, "records", "records of the file that are byte-equal to another or superseded by it", nullable=False),
        Column("rejects", INT, "records", "rejected records; `rejects` holds the reason of each", nullable=False),
        Column("jobs", INT, "jobs", "distinct jobs", nullable=False),
        Column("attempts", INT, "attempts", "runs of jobs", nullable=False),
        Column("superseded", INT, "jobs", "jobs for which another file has a newer record; counted when the warehouse is built", nullable=False),
        Column("seconds", FLOAT, "s", "time taken to read the file", nullable=False),
        Column("reader_version", INT, "", "version of the reader's rules", nullable=False),
    ),
    key=("cluster", "sha256"),
)  # fmt: skip

REJECTS = Table(
    "rejects",
    "One row per record that could not be understood",
    (
        CLUSTER,
        Column("path", TEXT, "", "raw file", nullable=False),
        LINE,
        Column("reason", TEXT, "", "reason, with the offending value", nullable=False),
        Column(
            "raw", TEXT, "", "the record, cut to 2,000 characters; untrusted text, escape before use", nullable=False
        ),
        FILE,
    ),
)

CANONICAL = (
    JOBS, ATTEMPTS, STEPS, PLACEMENTS, NODES,
    GPU_UTILIZATION, CPU_UTILIZATION, MEMORY_UTILIZATION, AGENT_DECISIONS, AGENT_EVENTS, TRACE_FILES, REJECTS,
)  # fmt: skip
TABLES: dict[str, Table] = {table.name: table for table in CANONICAL}
