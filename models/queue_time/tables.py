"""Derived tables of queue-time prediction: scores of methods, predictions by job, release decisions, and drift."""

from __future__ import annotations

from features.conventions import BLOCK_DAYS, INDICATIVE_BELOW_BLOCKS
from traces.schema import CLUSTER, FLAG, FLOAT, INT, TEXT, UTC, Column, Table

_METHOD = Column("method", TEXT, "", "name in the registry of methods (docs/queue-time.md)", nullable=False)
_LESS = "less that of the best naive method on the same jobs"

QUEUE_TIME_SCORES = Table(
    "queue_time_scores",
    "One row a method of queue-time prediction: the scores of its forecasts for the report window's jobs",
    (
        CLUSTER,
        _METHOD,
        Column("is_naive", FLAG, "", "learns nothing but a table of past waits", nullable=False),
        Column("from_utc", UTC, "", "begin of the window, by submission", nullable=False),
        Column("to_utc", UTC, "", "end of it", nullable=False),
        Column("fitted_on", INT, "jobs", "jobs of the fit, all known at the begin of the window", nullable=False),
        Column("n", INT, "jobs", "jobs judged: submitted in the window, started", nullable=False),
        Column("n_over_10min", INT, "jobs", "judged jobs that waited ten minutes or more", nullable=False),
        Column("never_started", INT, "jobs", "submitted in the window, no start known: not judged", nullable=False),
        Column("blocks", INT, "blocks", f"{BLOCK_DAYS}-day blocks that hold these jobs", nullable=False),
        Column(
            "indicative", FLAG, "", f"fewer than {INDICATIVE_BELOW_BLOCKS} blocks: intervals are only indicative",
            nullable=False,
        ),
        Column("mean_wait_h", FLOAT, "h", "mean wait of the jobs judged", nullable=False),
        Column("crps_h", FLOAT, "h", "mean continuous ranked probability score; less is better", nullable=False),
        Column("crps_low_h", FLOAT, "h", "lower end of its 95 % interval; null where all jobs are of one block"),
        Column("crps_high_h", FLOAT, "h", "upper end of it"),
        Column("best_naive", TEXT, "", "the naive method of the least crps_h on these jobs"),
        Column("difference_h", FLOAT, "h", f"crps_h {_LESS}"),
        Column("difference_low_h", FLOAT, "h", "lower end of its paired 95 % interval"),
        Column("difference_high_h", FLOAT, "h", "upper end of it"),
        Column("balanced_accuracy", FLOAT, "", "of 'under ten minutes'; null if all waits are short, or none"),
        Column("brier", FLOAT, "", "Brier score of the probability of a wait under ten minutes", nullable=False),
        Column("median_ae_h", FLOAT, "h", "median absolute error of the median, of waits over ten minutes"),
        Column("within_factor_2", FLOAT, "", "of waits over ten minutes, share whose median is within a factor of two"),
        Column("spearman", FLOAT, "", "rank correlation of the median with the wait"),
        Column("coverage_50", FLOAT, "", "share of waits in the central 50 % interval", nullable=False),
        Column("coverage_80", FLOAT, "", "likewise of 80 %", nullable=False),
        Column("coverage_95", FLOAT, "", "likewise of 95 %", nullable=False),
        Column("width_95_h", FLOAT, "h", "mean width of the 95 % interval", nullable=False),
        Column("fit_s", FLOAT, "s", "wall-clock time of its fits and forecasts", nullable=False),
        Column("weeks", TEXT, "", "JSON: by week jobs, crps_h, 95 % coverage, waits, predicted median", nullable=False),
        Column("sizes", TEXT, "", "JSON: the same by class of size", nullable=False),
    ),
    key=("cluster", "method"),
)  # fmt: skip

QUEUE_TIME_PREDICTIONS = Table(
    "queue_time_predictions",
    "One row a job of the report window and method: the wait predicted at its submission, and its actual wait",
    (
        CLUSTER,
        _METHOD,
        Column("job_key", TEXT, "", "key of the job, as in jobs", nullable=False),
        Column("submit_utc", UTC, "", "its submission", nullable=False),
        Column("partition", TEXT, "", "its partition", nullable=False),
        Column("size", INT, "", "requested nodes, or CPUs in a log without nodes", nullable=False),
        Column("limit_s", INT, "s", "wall-clock limit", nullable=False),
        Column("wait_s", INT, "s", "actual wait", nullable=False),
        Column("p025_s", FLOAT, "s", "quantile .025 of the wait, as predicted", nullable=False),
        Column("p10_s", FLOAT, "s", "quantile .1", nullable=False),
        Column("p50_s", FLOAT, "s", "median", nullable=False),
        Column("p90_s", FLOAT, "s", "quantile .9", nullable=False),
        Column("p975_s", FLOAT, "s", "quantile .975", nullable=False),
        Column("p_under_600s", FLOAT, "", "probability of a wait under ten minutes", nullable=False),
        Column("crps_h", FLOAT, "h", "continuous ranked probability score of the job", nullable=False),
    ),
    key=("cluster", "method", "job_key"),
)

QUEUE_TIME_RELEASES = Table(
    "queue_time_releases",
    "One row a decision about a release of a cluster's queue-time model",
    (
        CLUSTER,
        Column("decided_utc", UTC, "", "when it was decided", nullable=False),
        Column("registered_version", INT, "", "version with the champion alias afterwards", nullable=False),
        Column("champion_method", TEXT, "", "method of that version", nullable=False),
        Column("candidate_version", INT, "", "version that the candidate is registered as", nullable=False),
        Column("method", TEXT, "", "method of the candidate: of the least crps_h on the select window", nullable=False),
        Column("verdict", TEXT, "", "of the gate: better, cannot tell or worse", nullable=False),
        Column("provisional", FLAG, "", "first champion, not shown better than the best naive method", nullable=False),
        Column("reason", TEXT, "", "the decision in one sentence", nullable=False),
        Column("opponent", TEXT, "", "the model that the candidate was compared with", nullable=False),
        Column("jobs", INT, "jobs", "jobs compared, none of them used to fit either", nullable=False),
        Column("blocks", INT, "blocks", f"{BLOCK_DAYS}-day blocks that hold them", nullable=False),
        Column("crps_difference_h", FLOAT, "h", "crps_h of the candidate less that of the opponent"),
        Column("crps_difference_low_h", FLOAT, "h", "lower end of its paired 95 % interval"),
        Column("crps_difference_high_h", FLOAT, "h", "upper end of it"),
    ),
    key=("cluster", "decided_utc"),
)

QUEUE_TIME_DRIFT = Table(
    "queue_time_drift",
    "One row a whole week since the queue-time champion was released, and score: its value against the promised one",
    (
        CLUSTER,
        Column("week_utc", UTC, "", "Monday 00:00 UTC; the outcomes of the week are known", nullable=False),
        Column(
            "score",
            TEXT,
            "",
            "crps_h; missed_95: (waits outside 95 % intervals + 1) / (n + 1)",
            nullable=False,
        ),
        Column("champion_version", INT, "", "registered version that was champion", nullable=False),
        Column("weeks", INT, "weeks", "weeks on which it was judged before its release", nullable=False),
        Column("n", INT, "jobs", "jobs of this week that started", nullable=False),
        Column("value", FLOAT, "", "of this week; less is better", nullable=False),
        Column("promised", FLOAT, "", "median of the weeks before the release", nullable=False),
        Column("bound", FLOAT, "", "of the value, from the spread between those weeks", nullable=False),
        Column("chance", FLOAT, "", "share of weeks like those with either score over its bound", nullable=False),
        Column("is_beyond", FLAG, "", "value over the bound: requests training", nullable=False),
    ),
    key=("cluster", "week_utc", "score"),
)

TABLES: tuple[Table, ...] = (QUEUE_TIME_SCORES, QUEUE_TIME_PREDICTIONS, QUEUE_TIME_RELEASES, QUEUE_TIME_DRIFT)
