"""The canonical tables: every name, type, unit and meaning, declared once.

Casts, checks, SQL comments and the column dictionary (docs/columns.md) are all made from `TABLES`.
Times are naive UTC timestamps and end in `_utc`; durations are whole seconds and end in `_s`;
a count says what it counts. A null means that the log does not say.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

SCHEMA_VERSION = 7

# What one record may hold at most, by how its column's name ends or by all of it. No machine comes near: more is a
# fault or an attack, and the record is refused with the value. No product of two of them leaves 64 bits, nor does the
# GPU time of half a million attempts in one sum.
MOST: dict[str, int] = {
    "nodes": 1 << 20,  # six times the nodes of the largest machine yet (Fugaku)
    "cpus": 1 << 28,  # six times its kind's most cores (Sunway)
    "gpus": 1 << 20,
    "mib": 1 << 40,  # an EiB
    "kib": 1 << 50,
    "gb": 1 << 30,
    "percent": 100 << 28,  # every CPU busy
    "s": 1 << 32,  # 136 years: as many seconds as Slurm counts to
    "limit_s": 60 << 32,  # as many minutes
    "cpu_time_s": 1 << 60,  # of all CPUs
    "gpu_time_s": 1 << 44,  # half a million GPU years
}
# Times are the 32 bits of seconds from 1970 on, less a day: what lies between two of them is a time within MOST.
FIRST_UTC = datetime(1969, 12, 31)
LAST_UTC = FIRST_UTC + timedelta(seconds=MOST["s"])


def most(column: str) -> int | None:
    """The most that a column of that name may hold; None where nothing is said."""
    return MOST.get(column, MOST.get(column.rpartition("_")[2]))


UTC, TEXT, INT, FLOAT, FLAG = "TIMESTAMP", "VARCHAR", "BIGINT", "DOUBLE", "BOOLEAN"


@dataclass(frozen=True)
class Column:
    """One column: DuckDB type, unit ('' for none), meaning, and whether a null is allowed."""

    name: str
    type: str
    unit: str
    meaning: str
    nullable: bool = True


@dataclass(frozen=True)
class Table:
    """One table: its columns in order and the columns that identify a row."""

    name: str
    meaning: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns, in order."""
        return tuple(column.name for column in self.columns)


CLUSTER = Column("cluster", TEXT, "", "cluster name, as declared at ingest", nullable=False)
JOB_KEY = Column(
    "job_key",
    TEXT,
    "",
    "one allocation request in this cluster: the job id, made unique where the cluster reused it",
    nullable=False,
)
JOB_NAME = Column("job_name", TEXT, "", "user text: hostile until escaped")
FILE = Column("trace_sha256", TEXT, "", "digest of the raw file that the row was read from", nullable=False)
LINE = Column("line", INT, "", "1-based line of the raw file (record number for JSON)", nullable=False)

# A cluster prints one job id several times: for each requeue and resize, in every dump that covers the job, and again
# when it has run out of ids. In order of submission, a record is of the same job as the records of that id before it if
# it prints the same submission; or if user and name agree and it was submitted at most this long after the latest time
# that those records print (a requeue resets the submission). Otherwise the id was used again, for another job.
REQUEUE_WITHIN_S = 7 * 86_400

# The base states of sacct's STATE column; Philly's Pass / Killed / Failed become COMPLETED / CANCELLED / FAILED.
STATES = (
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY",
    "PENDING", "PREEMPTED", "REQUEUED", "RESIZING", "REVOKED", "RUNNING", "SUSPENDED", "TIMEOUT", "UNKNOWN",
)  # fmt: skip

JOBS = Table(
    "jobs",
    "One row a job: the newest record of an allocation, its first start and its last end",
    (
        CLUSTER,
        JOB_KEY,
        Column("job_id", TEXT, "", "the id as the log prints it (123, 123_7, 123_[4-10%2], 123+1, application_...)", nullable=False),
        Column("job_id_raw", INT, "", "sacct JobIDRaw; null where ids are no numbers"),
        Column("array_job_id", INT, "", "job id of the array that the job is a task of"),
        Column("array_task_id", INT, "", "task number in that array; null for a range of pending tasks"),
        JOB_NAME,
        Column("user_name", TEXT, "", "user name, or the numeric id where the log holds no name"),
        Column("account", TEXT, "", "Slurm account"),
        Column("partition", TEXT, "", "Slurm partition, or Philly virtual cluster"),
        Column("qos", TEXT, "", "Slurm quality of service"),
        Column("state", TEXT, "", "base state, one of schema.STATES", nullable=False),
        Column("state_is_inferred", FLAG, "", "the log holds no state; it was inferred from times, limit and exit code", nullable=False),
        Column("submit_utc", UTC, "", "submission; of the first record for a requeued job"),
        Column("eligible_utc", UTC, "", "when it could first have started (dependencies, begin time and holds gone)"),
        Column("start_utc", UTC, "", "first start; null for a job that never ran"),
        Column("end_utc", UTC, "", "last end; null while running or pending"),
        Column("requested_nodes", INT, "nodes", "nodes asked for"),
        Column("requested_cpus", INT, "CPUs", "CPUs asked for"),
        Column("requested_gpus", INT, "GPUs", "GPUs asked for (Philly: GPUs of the first attempt)"),
        Column("requested_mem_mib", INT, "MiB", "memory asked for, over all nodes"),
        Column("allocated_nodes", INT, "nodes", "nodes held by the last attempt; 0 for a job that never ran"),
        Column("allocated_cpus", INT, "CPUs", "CPUs held by the last attempt"),
        Column("allocated_gpus", INT, "GPUs", "GPUs held by the last attempt"),
        Column("allocated_mem_mib", INT, "MiB", "memory held by the last attempt, over all nodes; null where the log does not record it"),
        Column("limit_s", INT, "s", "wall-clock limit; null where unlimited or not in the log"),
        Column("run_s", INT, "s", "time run, summed over attempts, suspended time left out where the log does"),
        Column("wait_s", INT, "s", "first start minus submission; null for a job that never ran"),
        Column("eligible_wait_s", INT, "s", "first start minus eligible time; null for a job that never ran, or where a requeue has overwritten the time"),
        Column("gpu_time_s", INT, "GPU s", "GPUs held times time run, summed over attempts"),
        Column("exit_code", INT, "", "exit status of the last attempt"),
        Column("exit_signal", INT, "", "signal that ended the last attempt; 0 for none"),
        Column("priority", INT, "", "priority as the log prints it"),
        Column("started_by", TEXT, "", "scheduler pass that started it, from sacct Flags: main, backfill or submit"),
        Column("reason", TEXT, "", "why it last waited, for other than Priority or Resources: sacct's Reason as written, None included"),
        Column("features_asked", TEXT, "", "node features asked for, as written: sacct's Constraints, such as a100&ib"),
        Column("gpu_type_asked", TEXT, "", "models of GPU that it asked for, any of them where several, joined by |; null where it named none"),
        Column("dependency", TEXT, "", "jobs that it waited for, as written, where the dump has a column Dependency; sacct itself prints none"),
        Column("attempts", INT, "attempts", "runs of the job; 0 for one that never ran", nullable=False),
        Column("is_time_ambiguous", FLAG, "", "a local time fell into the hour of a clock change and nothing in the log settles it", nullable=False),
        Column("is_end_before_start", FLAG, "", "the log prints an end before the start, and the start is read as that end; null where the reader refuses such a record"),
        FILE,
        LINE,
    ),
    key=("cluster", "job_key"),
)  # fmt: skip

ATTEMPTS = Table(
    "attempts",
    "One row a run of a job: Slurm requeues and resizes, Philly attempts",
    (
        CLUSTER,
        JOB_KEY,
        Column("attempt", INT, "", "0-based, in time order", nullable=False),
        Column("submit_utc", UTC, "", "when this run was queued (a requeue resets it)"),
        Column("start_utc", UTC, "", "start"),
        Column("end_utc", UTC, "", "end; null while running"),
        Column("run_s", INT, "s", "time run"),
        Column(
            "state",
            TEXT,
            "",
            "base state that the run ended in; Philly gives its runs none: FAILED where another follows, though it may have been preempted",
            nullable=False,
        ),
        Column("nodes", INT, "nodes", "nodes held"),
        Column("cpus", INT, "CPUs", "CPUs held"),
        Column("gpus", INT, "GPUs", "GPUs held"),
        Column(
            "gpu_part", FLOAT, "", "part of each GPU that it holds, 0 to 1, where jobs share GPUs; null: whole GPUs"
        ),
        Column("mem_mib", INT, "MiB", "memory held, over all nodes"),
        Column("gpu_time_s", INT, "GPU s", "GPUs held times time run"),
        Column("exit_code", INT, "", "exit status"),
        Column("exit_signal", INT, "", "signal; 0 for none"),
        FILE,
        LINE,
    ),
    key=("cluster", "job_key", "attempt"),
)

STEPS = Table(
    "steps",
    "One row a job step (batch, extern, interactive, 0, 1, ...)",
    (
        CLUSTER,
        JOB_KEY,
        Column("step_id", TEXT, "", "what follows the dot: batch, extern, interactive, 0, ...", nullable=False),
        Column("step_name", TEXT, "", "user text: hostile until escaped"),
        Column("state", TEXT, "", "base state", nullable=False),
        Column("start_utc", UTC, "", "start"),
        Column("end_utc", UTC, "", "end"),
        Column("run_s", INT, "s", "time run"),
        Column("cpus", INT, "CPUs", "CPUs held"),
        Column("max_rss_kib", INT, "KiB", "largest resident set of any task"),
        Column("cpu_time_s", FLOAT, "s", "CPU time used (TotalCPU)"),
        Column("exit_code", INT, "", "exit status"),
        Column("exit_signal", INT, "", "signal; 0 for none"),
        FILE,
        LINE,
    ),
)

PLACEMENTS = Table(
    "placements",
    "One row an attempt and node",
    (
        CLUSTER,
        JOB_KEY,
        Column("attempt", INT, "", "as in attempts", nullable=False),
        Column("node", TEXT, "", "node name", nullable=False),
        Column("gpus", INT, "GPUs", "GPUs held there; null where the log gives only a total that does not divide"),
        Column("gpu_numbers", TEXT, "", "numbers of those GPUs in their node, 0-based, as 0,1,5; null where the log names none"),
        FILE,
    ),
    key=("cluster", "job_key", "attempt", "node"),
)  # fmt: skip

NODES = Table(
    "nodes",
    "One row a node of a machine list",
    (
        CLUSTER,
        Column("node", TEXT, "", "node name", nullable=False),
        Column("gpus", INT, "GPUs", "GPUs in it, by the machine list"),
        Column("gpu_type", TEXT, "", "model of its GPUs, as the machine list writes it; null where it names none"),
        Column("gpu_mem_gb", FLOAT, "GB", "memory of one GPU"),
        Column("cpus", INT, "CPUs", "CPUs in it, by the machine list"),
        Column("memory_mib", INT, "MiB", "memory in it, by the machine list"),
        Column(
            "partitions", TEXT, "", "names of its Slurm partitions, joined by commas; null where the list names none"
        ),
        Column("features", TEXT, "", "its features, joined by commas; null where the list names none"),
        Column(
            "state",
            TEXT,
            "",
            "its state when the list was printed, as printed (IDLE+DRAIN, mix*); null where the list has none",
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
    "One row a GPU and minute",
    (*_SAMPLE, Column("gpu", INT, "", "0-based number in its node", nullable=False),
     Column("utilization_percent", FLOAT, "%", "measured utilization; null where the GPU was offline ('NA')"), FILE),
)  # fmt: skip

CPU_UTILIZATION = Table(
    "cpu_utilization",
    "One row a node and minute",
    (*_SAMPLE, Column("utilization_percent", FLOAT, "%", "measured CPU utilization; null where 'NA'"), FILE),
)

MEMORY_UTILIZATION = Table(
    "memory_utilization",
    "One row a node and minute",
    (
        *_SAMPLE,
        Column("total_kib", INT, "KiB", "memory in the node"),
        Column("free_kib", INT, "KiB", "memory free"),
        FILE,
    ),
)

CHAIN = Column("chain", TEXT, "", "a chain of jobs that baton-agent keeps: eight hexadecimal digits", nullable=False)
DECISION = (
    Column("score", FLOAT, "", "the policy's score, not negative where it submits; null where the policy did not decide"),
    Column("policy", TEXT, "", "name of the released policy that was asked"),
    Column("version", TEXT, "", "of that policy: twelve hexadecimal digits of what the artifact is made of; null where the log lacks it"),
    Column("setting", FLOAT, "", "value of its knob"),
    Column("left_s", INT, "s", "time left of the predecessor by its limit; null where it was not seen"),
    Column("start_estimate_s", INT, "s", "predicted wait of the successor if submitted then, by time limits; null where it was not seen"),
    Column("start_expected_s", INT, "s", "the same by expected run times"),
)  # fmt: skip
DEPENDENCY = Column("dependency", TEXT, "", "dependency that it was submitted with; '' for none")
PREDECESSOR_ID = Column("predecessor_id", TEXT, "", "job id of the link before, from which work passed on")

AGENT_DECISIONS = Table(
    "agent_decisions",
    "One row a decision of baton-agent: submit the successor of a running link now, or wait",
    (
        CLUSTER,
        CHAIN,
        Column("time_utc", UTC, "", "when it was decided", nullable=False),
        Column("link", INT, "", "number of the running link, from 1", nullable=False),
        Column("predecessor_id", TEXT, "", "its job id", nullable=False),
        Column("submit", FLAG, "", "true: submit now", nullable=False),
        Column("decided_by", TEXT, "", "policy, start estimate or predecessor's end", nullable=False),
        Column("reason", TEXT, "", "why, in words: hostile until escaped", nullable=False),
        *DECISION,
        Column("hidden", TEXT, "", "features of the observation that this Slurm does not show, with commas", nullable=False),
        FILE,
        LINE,
    ),
)  # fmt: skip

AGENT_EVENTS = Table(
    "agent_events",
    "One row an event of a chain that baton-agent keeps, in the order in which they became known to it",
    (
        CLUSTER,
        CHAIN,
        Column("time_utc", UTC, "", "when the agent knew it", nullable=False),
        Column("event", TEXT, "", "submitted, waits, started, requeued, withdrawn, ended, handover, chain or note", nullable=False),
        Column("link", INT, "", "number of the link, from 1; of a handover the later one; null for chain and note"),
        Column("attempt", INT, "", "1-based number of the link's attempt; null for handover, chain and note"),
        Column("job_id", TEXT, "", "its job id; '' where it never became a job; null for chain and note"),
        JOB_NAME,
        Column("submit_utc", UTC, "", "of submitted and started: submission"),
        DEPENDENCY,
        Column("start_utc", UTC, "", "of started and ended: start"),
        Column("end_utc", UTC, "", "of ended: end"),
        Column("state", TEXT, "", "of ended: Slurm's base state, REFUSED or ABSENT (never a job), LOST (no source knows its end); of chain: done, failed or cancelled"),
        Column("exit_code", INT, "", "of ended: exit status"),
        Column("predecessor_link", INT, "", "of a handover: number of the link before"),
        PREDECESSOR_ID,
        Column("interruption_s", INT, "s", "of a handover: from the end of the link before to the start, 0 where they overlap"),
        Column("overlap_s", INT, "s", "of a handover: from the start to the end of the link before, 0 where they do not overlap"),
        Column("text", TEXT, "", "why it waits, was withdrawn or the chain ended; what a note says: hostile until escaped"),
        FILE,
        LINE,
    ),
)  # fmt: skip

TRACE_FILES = Table(
    "trace_files",
    "One row a raw file and what became of each record in it: records = allocations + steps + samples + duplicates + rejects",
    (
        CLUSTER,
        Column("path", TEXT, "", "path as given at ingest", nullable=False),
        Column("sha256", TEXT, "", "digest of its bytes", nullable=False),
        Column("bytes", INT, "bytes", "size as stored (compressed where it is)", nullable=False),
        Column("format", TEXT, "", "reader that read it", nullable=False),
        Column("timezone", TEXT, "", "zone in which its local times were read", nullable=False),
        Column("is_generated", FLAG, "", "made by `baton generate`: no record of a real cluster", nullable=False),
        Column("records", INT, "records", "records read", nullable=False),
        Column("allocations", INT, "records", "distinct allocation records, each requeue or resize included", nullable=False),
        Column("steps", INT, "records", "job-step records", nullable=False),
        Column("samples", INT, "records", "utilization, machine-list and other records that are no jobs, and lines of the agent's log", nullable=False),
        Column("duplicates", INT, "records", "byte-equal or superseded records in the file", nullable=False),
        Column("rejects", INT, "records", "records refused, each with its reason in `rejects`", nullable=False),
        Column("jobs", INT, "jobs", "distinct jobs", nullable=False),
        Column("attempts", INT, "attempts", "runs of jobs", nullable=False),
        Column("superseded", INT, "jobs", "jobs of which a newer record stands in another file; settled when the warehouse is built", nullable=False),
        Column("seconds", FLOAT, "s", "time that reading took", nullable=False),
        Column("reader_version", INT, "", "version of the reader's rules", nullable=False),
    ),
    key=("cluster", "sha256"),
)  # fmt: skip

REJECTS = Table(
    "rejects",
    "One row a record that could not be understood",
    (
        CLUSTER,
        Column("path", TEXT, "", "raw file", nullable=False),
        LINE,
        Column("reason", TEXT, "", "why, with the offending value", nullable=False),
        Column("raw", TEXT, "", "the record, cut to 2,000 characters: hostile until escaped", nullable=False),
        FILE,
    ),
)

CANONICAL = (
    JOBS, ATTEMPTS, STEPS, PLACEMENTS, NODES,
    GPU_UTILIZATION, CPU_UTILIZATION, MEMORY_UTILIZATION, AGENT_DECISIONS, AGENT_EVENTS, TRACE_FILES, REJECTS,
)  # fmt: skip
TABLES: dict[str, Table] = {table.name: table for table in CANONICAL}
