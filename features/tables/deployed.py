# ruff: noqa: E501  (one table of data: a column a line)
"""Tables of `features.deployed`."""

from __future__ import annotations

from traces.schema import (
    CHAIN,
    CLUSTER,
    DECISION,
    DEPENDENCY,
    FLAG,
    FLOAT,
    INT,
    JOB_NAME,
    PREDECESSOR_ID,
    TEXT,
    UTC,
    Column,
    Table,
)

DECIDED_BY = "policy, start estimate or predecessor's end, as agent_decisions says; none: submitted without a decision (the first link, the last moment, a retry)"

DEPLOYED_LINKS = Table(
    "deployed_links",
    "One row a job that baton-agent kept in a chain: what was predicted when it was submitted, and what happened",
    (
        CLUSTER,
        CHAIN,
        Column("link", INT, "", "number of the link, from 1", nullable=False),
        Column("attempt", INT, "", "1-based number of the link's attempt", nullable=False),
        Column("job_id", TEXT, "", "job id", nullable=False),
        JOB_NAME,
        Column("submit_utc", UTC, "", "submission, the first one of a requeued job"),
        Column("start_utc", UTC, "", "first start; null where none is known"),
        Column("end_utc", UTC, "", "end; null while it runs or waits"),
        Column("state", TEXT, "", "Slurm's base state at its end, or LOST; null before"),
        Column("exit_code", INT, "", "exit status"),
        DEPENDENCY,
        Column("requeues", INT, "", "times that Slurm put it back into the queue", nullable=False),
        Column("is_withdrawn", FLAG, "", "the agent cancelled it", nullable=False),
        Column("wait_s", INT, "s", "first start minus submission"),
        PREDECESSOR_ID,
        Column("interruption_s", INT, "s", "from the predecessor's end to the start, 0 where they overlap; null without a predecessor that has ended"),
        Column("overlap_s", INT, "s", "from the start to the predecessor's end, 0 where they do not overlap"),
        Column("handover_utc", UTC, "", "when the agent knew both"),
        Column("decided_by", TEXT, "", DECIDED_BY, nullable=False),
        *DECISION,
        Column("band", TEXT, "", "the wait against both predictions: within them or less than 10 minutes outside, before or after; null where it was not predicted, waited for a dependency too, or has not started"),
    ),
    key=("cluster", "chain", "link", "attempt"),
)  # fmt: skip


def _ends(figure: str, unit: str) -> tuple[Column, Column]:
    return (
        Column(f"{figure.replace('_h', '')}_low{'_h' * figure.endswith('_h')}", FLOAT, unit, "lower end of its 95 % interval, moving-block bootstrap over handovers in blocks of 7 days; null for a record of no more than one block"),
        Column(f"{figure.replace('_h', '')}_high{'_h' * figure.endswith('_h')}", FLOAT, unit, "upper end"),
    )  # fmt: skip


DEPLOYED_POLICIES = Table(
    "deployed_policies",
    "One row a version of a policy that decided live, and one for all: what its handovers came to, and its predictions against the waits",
    (
        CLUSTER,
        Column("decided_by", TEXT, "", f"all; or {DECIDED_BY}", nullable=False),
        Column("policy", TEXT, "", "name of the released policy"),
        Column("version", TEXT, "", "of that policy, as in agent_decisions"),
        Column("setting", FLOAT, "", "value of its knob"),
        Column("decisions", INT, "", "decisions made, to submit or to wait", nullable=False),
        Column("submissions", INT, "jobs", "jobs submitted on them", nullable=False),
        Column("started", INT, "jobs", "of these, jobs with a start", nullable=False),
        Column("handovers", INT, "", "of these, jobs that took over from a predecessor which has ended", nullable=False),
        Column("blocks", INT, "", "blocks of 7 days that hold a handover", nullable=False),
        Column("indicative", FLAG, "", "under 8 blocks: the intervals are indicative", nullable=False),
        Column("interruption_h", FLOAT, "h", "mean interruption a handover"),
        *_ends("interruption_h", "h"),
        Column("overlap_h", FLOAT, "h", "mean overlap a handover"),
        *_ends("overlap_h", "h"),
        Column("zero_share", FLOAT, "", "share of handovers without interruption"),
        *_ends("zero_share", ""),
        Column("predicted", INT, "jobs", "started jobs with a predicted wait and no dependency", nullable=False),
        Column("wait_mean_s", FLOAT, "s", "mean real wait of these, from their submission"),
        Column("estimate_mean_s", FLOAT, "s", "mean predicted wait by time limits"),
        Column("estimate_error_s", FLOAT, "s", "mean of real wait minus that"),
        Column("estimate_absolute_error_s", FLOAT, "s", "mean of its absolute value"),
        Column("expected_mean_s", FLOAT, "s", "mean predicted wait by expected run times"),
        Column("expected_error_s", FLOAT, "s", "mean of real wait minus that"),
        Column("expected_absolute_error_s", FLOAT, "s", "mean of its absolute value"),
        Column("within_share", FLOAT, "", "share of waits within both predictions or less than 10 minutes outside"),
        Column("before_share", FLOAT, "", "share shorter than that"),
        Column("after_share", FLOAT, "", "share longer"),
    ),
    key=("cluster", "decided_by", "policy", "version", "setting"),
)  # fmt: skip
