"""Section `study`: the published figures of Microsoft's Philly cluster, compared with the same figures of this log.

The section applies only to Philly logs. Published figures: Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU
Clusters for DNN Training Workloads", USENIX ATC 2019 (75 days, 96,260 jobs); and of the trace that was released with
it, the summary in Hu et al., "Characterization of Large Language Model Development in the Datacenter", NSDI 2024
(112,956 jobs). Idle time held: the case study of affinode.io on the same logs. The study and the released trace differ
in window and in jobs, so a log will differ from both.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from reports.layout import Section, TableView, columns
from reports.source import Source

ATC19, RELEASED, CASE = "ATC'19", "released trace", "affinode.io"
# jobs of the study (of the released trace), GPU time of the study
OUTCOMES = {
    "COMPLETED": ("passed", "69.3 % (60.4 %)", "44.53 %"),
    "CANCELLED": ("killed", "13.5 % (9.0 %)", "37.69 %"),
    "FAILED": ("unsuccessful", "17.2 % (30.5 %)", "17.76 %"),
}
BUSY = (0.60, 0.73)  # "two thirds of the GPUs in use"


@dataclass(frozen=True)
class _Figure:
    """One published figure; `here` is None if this log does not provide it."""

    what: str
    published: str
    source: str
    here: float | None
    kind: str  # percent, seconds or number
    n: int


def study(source: Source) -> Section:
    """Return the table of published figures and this log's, or a sentence that the log is not one of Philly's."""
    section = Section("study", "Comparison with the Philly study")
    formats = [] if source.files.is_empty() else source.files["format"].to_list()
    if not any(name.startswith("philly") for name in formats) or source.jobs.is_empty():
        section.applies = False
        section.missing.append("The published study is about Microsoft's Philly logs; this log is not one of them.")
        return section
    figures = [*_outcomes(source), *_times(source), *_hardware(source), *_failures(source)]
    known = [figure for figure in figures if figure.here is not None]
    log = "this generated log, which was made to resemble Philly" if source.is_generated else "this log"
    section.sentences.append(f"The table compares {len(known)} published figures of Philly with those of {log}.")
    section.tables.append(
        TableView(
            "study",
            "Published and here",
            "ATC'19: Jeon et al., 75 days of 2017; released trace: as summarised by Hu et al., NSDI'24; affinode.io: "
            "its case study. The study's tables (waits by cause, utilization by size and status, reasons of failures) "
            "are rebuilt in the sections above. "
            f"{source.caption(source.jobs.height, 'jobs')}",
            columns("what|figure", "published|published", "source|where", "percent|share here|percent",
                    "seconds|time here|duration", "number|here|number", "n|n|count"),
            [
                {"what": f.what, "published": f.published, "source": f.source, "n": f.n,
                 "percent": f.here if f.kind == "percent" else None,
                 "seconds": f.here if f.kind == "seconds" else None,
                 "number": f.here if f.kind == "number" else None}
                for f in known
            ],
        )
    )  # fmt: skip
    unknown = ", ".join(figure.what for figure in figures if figure.here is None)
    if unknown:
        section.missing.append(f"The log does not provide: {unknown}.")
    return section


def _outcomes(source: Source) -> list[_Figure]:
    """Status shares by jobs and by GPU time (section 2.3 of the study)."""
    jobs = source.jobs.filter(~pl.col("state").is_in(["RUNNING", "PENDING", "UNKNOWN"]))
    if source.read("SELECT count(*) AS n FROM jobs WHERE cluster = ? AND state_is_inferred")["n"][0]:
        jobs = jobs.clear()  # an inferred state is no recorded outcome
    time = float(jobs["gpu_time_s"].sum() or 0)
    figures = []
    for state, (name, jobs_published, time_published) in OUTCOMES.items():
        ended = jobs.filter(pl.col("state") == state)
        share_of_jobs = ended.height / jobs.height if jobs.height else None
        share_of_gpu_time = float(ended["gpu_time_s"].sum() or 0) / time if time else None
        figures.append(
            _Figure(f"jobs {name}", jobs_published, f"{ATC19} ({RELEASED})", share_of_jobs, "percent", jobs.height)
        )
        figures.append(
            _Figure(f"GPU time of jobs {name}", time_published, ATC19, share_of_gpu_time, "percent", jobs.height)
        )
    return figures


def _times(source: Source) -> list[_Figure]:
    """Return waits and run times of jobs that ran; run times include gaps between attempts."""
    figures = []
    for what, column, mean, median in (
        ("wait", "wait_s", "1 h 3 min", "3 min 9 s"),
        ("run time", "run_s", "5 h 0 min", "14 min 34 s"),
    ):
        values = source.jobs.filter(pl.col("start_utc").is_not_null())[column].drop_nulls()
        here = (values.mean(), values.median()) if len(values) else (None, None)
        for kind, published, value in (("mean", mean, here[0]), ("median", median, here[1])):
            seconds = float(str(value)) if value is not None else None
            figures.append(_Figure(f"{kind} {what}", published, RELEASED, seconds, "seconds", len(values)))
    return figures


def _failures(source: Source) -> list[_Figure]:
    """Return the repetition of failures, and how many match no signature (section 4 of the study)."""
    by = source.rows("failures_by")
    bad = by.filter(pl.col("dimension") == "reason") if not by.is_empty() else by
    attempts = int(bad["attempts"].sum()) if not bad.is_empty() else 0
    unsigned = None
    repeated: dict[str, float | None] = {"job": None, "user": None}
    if attempts:
        unsigned = (
            float(bad.filter(pl.col("value").is_in(["no signature", "failed or preempted"]))["attempts"].sum())
            / attempts
        )
        whole = source.read(
            "SELECT count(DISTINCT job_key) AS job, count(DISTINCT user_name) AS user FROM failures WHERE cluster = ?"
        ).to_dicts()[0]
        repeated = {of: attempts / n if n else None for of, n in whole.items()}
    return [
        _Figure("failed attempts per failing job", "2.3", ATC19, repeated["job"], "number", attempts),
        _Figure("failed attempts per failing user", "38.8", ATC19, repeated["user"], "number", attempts),
        _Figure("failures without a signature", "4.2 %", ATC19, unsigned, "percent", attempts),
    ]


def _hardware(source: Source) -> list[_Figure]:
    """Return measured utilization of held GPUs, idle time, and empty servers with two thirds of the GPUs in use."""
    by, free, held = source.rows("utilization_by"), source.rows("fragmentation"), source.rows("idle_gpu_time")
    whole = held.filter(pl.col("dimension") == "all").to_dicts() if not held.is_empty() else []
    idle, measured_s = (whole[0]["idle_share"], int(whole[0]["measured_gpu_time_s"])) if whole else (None, 0)
    mean, minutes = None, 0
    if not by.is_empty() and (minutes := int(by["samples"].sum() or 0)):
        mean = float((by["utilization_mean_percent"] * by["samples"]).sum()) / minutes / 100
    empty, instants = None, 0
    if not free.is_empty() and free["capacity_gpus"].null_count() < free.height:
        at = free.filter((pl.col("busy_gpus") / pl.col("capacity_gpus")).is_between(*BUSY))
        instants = at.height
        empty = float(str(at["empty_node_share"].mean())) if instants else None
    return [
        _Figure("mean utilization of held GPUs", "52 %", ATC19, mean, "percent", minutes),
        _Figure("GPU time held with every GPU at 0", "a quarter to a half", CASE, idle, "percent", measured_s // 60),
        _Figure("empty servers at 60 to 73 % of GPUs in use", "under 4.5 %", ATC19, empty, "percent", instants),
    ]
