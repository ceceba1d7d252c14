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

DECIDED_BY = "policy, plan, start estimate or predecessor's end, as in `agent_decisions`; none for a job submitted without a decision (the first link, the last moment, a retry)"

DEPLOYED_LINKS = Table(
    "deployed_links",
    "One row per job that baton-agent kept in a chain: the prediction at its submission, and what happened",
    (
        CLUSTER,
        CHAIN,
        Column("link", INT, "", "number of the link, from 1", nullable=False),
        Column("attempt", INT, "", "1-based number of the link's attempt", nullable=False),
        Column("job_id", TEXT, "", "job id", nullable=False),
        JOB_NAME,
        Column("submit_utc", UTC, "", "submission; of a requeued job, the first one"),
        Column("start_utc", UTC, "", "first start; null where none is known"),
        Column("end_utc", UTC, "", "end; null while it runs or waits"),
        Column("state", TEXT, "", "Slurm's base state at the job's end, or LOST; null before the end"),
        Column("exit_code", INT, "", "exit status"),
        DEPENDENCY,
        Column("requeues", INT, "", "times that Slurm requeued it", nullable=False),
        Column("is_withdrawn", FLAG, "", "whether the agent cancelled it", nullable=False),
        Column("wait_s", INT, "s", "first start minus submission"),
        PREDECESSOR_ID,
        Column("interruption_s", INT, "s", "time from the predecessor's end to this job's start, 0 where they overlap; null without a predecessor that has ended. The predecessor is the earlier run that ended last"),
        Column("overlap_s", INT, "s", "time from this job's start until it or the predecessor ends, 0 where they do not overlap"),
        Column("handover_utc", UTC, "", "when the agent knew both the predecessor's end and this job's start"),
        Column("decided_by", TEXT, "", DECIDED_BY, nullable=False),
        *DECISION,
        Column("band", TEXT, "", "position of the wait relative to both predictions: 'within' (between them, or less than 10 minutes outside), 'before' or 'after'; null where the wait was not predicted, where the job also waited for a dependency, or before it has started"),
    ),
    key=("cluster", "chain", "link", "attempt"),
)  # fmt: skip


def _ends(figure: str, unit: str) -> tuple[Column, Column]:
    return (
        Column(f"{figure.replace('_h', '')}_low{'_h' * figure.endswith('_h')}", FLOAT, unit, "lower end of the 95 % interval of the mean, by a moving-block bootstrap over handovers in blocks of 7 days; null where the record is no longer than one block"),
        Column(f"{figure.replace('_h', '')}_high{'_h' * figure.endswith('_h')}", FLOAT, unit, "upper end of the same interval"),
    )  # fmt: skip


DEPLOYED_POLICIES = Table(
    "deployed_policies",
    "One row per policy version that decided live, and one for all: results of its handovers, and its predictions compared with the waits",
    (
        CLUSTER,
        Column("decided_by", TEXT, "", f"all; or {DECIDED_BY}", nullable=False),
        Column("policy", TEXT, "", "name of the released policy"),
        Column("version", TEXT, "", "version of that policy, as in `agent_decisions`"),
        Column("setting", FLOAT, "", "value of the policy's setting"),
        Column("limit_s", INT, "s", "time limit that a plan chose; null without a plan"),
        Column("decisions", INT, "", "decisions to submit or to wait", nullable=False),
        Column("submissions", INT, "jobs", "jobs submitted on these decisions", nullable=False),
        Column("started", INT, "jobs", "submitted jobs that have started", nullable=False),
        Column("handovers", INT, "", "submitted jobs that took over from a predecessor that has ended", nullable=False),
        Column("blocks", INT, "", "blocks of 7 days that hold a handover", nullable=False),
        Column("indicative", FLAG, "", "whether there are fewer than 8 blocks, so that the intervals are only indicative", nullable=False),
        Column("interruption_h", FLOAT, "h", "mean interruption per handover"),
        *_ends("interruption_h", "h"),
        Column("overlap_h", FLOAT, "h", "mean overlap per handover"),
        *_ends("overlap_h", "h"),
        Column("zero_share", FLOAT, "", "share of handovers without interruption"),
        *_ends("zero_share", ""),
        Column("planned", INT, "", "handovers before which a plan predicted the interruption", nullable=False),
        Column("expected_interruption_h", FLOAT, "h", "mean predicted interruption of these handovers"),
        Column("planned_interruption_h", FLOAT, "h", "mean actual interruption of these handovers"),
        Column("predicted", INT, "jobs", "started jobs with a predicted wait and no dependency", nullable=False),
        Column("wait_mean_s", FLOAT, "s", "mean actual wait of these jobs, from submission"),
        Column("estimate_mean_s", FLOAT, "s", "mean wait predicted from time limits"),
        Column("estimate_error_s", FLOAT, "s", "mean of actual wait minus the wait predicted from time limits"),
        Column("estimate_absolute_error_s", FLOAT, "s", "mean absolute value of that difference"),
        Column("expected_mean_s", FLOAT, "s", "mean wait predicted from expected run times"),
        Column("expected_error_s", FLOAT, "s", "mean of actual wait minus the wait predicted from expected run times"),
        Column("expected_absolute_error_s", FLOAT, "s", "mean absolute value of that difference"),
        Column("within_share", FLOAT, "", "share of waits between both predictions or less than 10 minutes outside"),
        Column("before_share", FLOAT, "", "share of waits shorter than that"),
        Column("after_share", FLOAT, "", "share of waits longer than that"),
    ),
    key=("cluster", "decided_by", "policy", "version", "setting", "limit_s"),
)  # fmt: skip
