"""Section `study`: the published figures of Microsoft's Philly cluster beside the same figures of this log.

Only where the log is one of Philly's. Published figures: Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU
Clusters for DNN Training Workloads", USENIX ATC 2019 (75 days, 96,260 jobs); and of the trace that was released with
it, the summary in Hu et al., "Characterization of Large Language Model Development in the Datacenter", NSDI 2024
(112,956 jobs). The two differ in window and in jobs: so will a log.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from reports.layout import Section, TableView, columns
from reports.source import Source

ATC19, RELEASED = "ATC'19", "released trace"
# jobs of the study (of the released trace), GPU time of the study
OUTCOMES = {
    "COMPLETED": ("passed", "69.3 % (60.4 %)", "44.53 %"),
    "CANCELLED": ("killed", "13.5 % (9.0 %)", "37.69 %"),
    "FAILED": ("unsuccessful", "17.2 % (30.5 %)", "17.76 %"),
}
BUSY = (0.60, 0.73)  # "two thirds of the GPUs in use"


@dataclass(frozen=True)
class _Figure:
    """One published figure; `here` is None where this log cannot tell."""

    what: str
    published: str
    source: str
    here: float | None
    kind: str  # percent or seconds
    n: int


def study(source: Source) -> Section:
    """The table of published against this log, or a sentence that says that the log is not Philly's."""
    section = Section("study", "Beside the Philly study")
    formats = [] if source.files.is_empty() else source.files["format"].to_list()
    if not any(name.startswith("philly") for name in formats) or source.jobs.is_empty():
        section.applies = False
        section.missing.append("The published study is about Microsoft's Philly logs; this log is not one of them.")
        return section
    figures = [*_outcomes(source), *_times(source), *_hardware(source)]
    known = [figure for figure in figures if figure.here is not None]
    whose = "of this generated log, which was made to resemble them" if source.is_generated else "of this log"
    section.sentences.append(f"{len(known)} published figures of Philly stand beside those {whose}.")
    section.tables.append(
        TableView(
            "study",
            "Published and here",
            "ATC'19: Jeon et al., 75 days of 2017; released trace: as summarised by Hu et al., NSDI'24. "
            f"{source.caption(source.jobs.height, 'jobs')}",
            columns("what|figure", "published|published", "source|where", "percent|share here|percent",
                    "seconds|time here|duration", "n|n|count"),
            [
                {"what": f.what, "published": f.published, "source": f.source, "n": f.n,
                 "percent": f.here if f.kind == "percent" else None,
                 "seconds": f.here if f.kind == "seconds" else None}
                for f in known
            ],
        )
    )  # fmt: skip
    unknown = ", ".join(figure.what for figure in figures if figure.here is None)
    if unknown:
        section.missing.append(f"The log does not tell: {unknown}.")
    return section


def _outcomes(source: Source) -> list[_Figure]:
    """Status shares by jobs and by GPU time (section 2.3 of the study)."""
    jobs = source.jobs.filter(~pl.col("state").is_in(["RUNNING", "PENDING"]))
    if source.read("SELECT count(*) AS n FROM jobs WHERE cluster = ? AND state_is_inferred")["n"][0]:
        jobs = jobs.clear()  # a state made up from times is no outcome
    time = float(jobs["gpu_time_s"].sum() or 0)
    figures = []
    for state, (name, jobs_published, time_published) in OUTCOMES.items():
        ended = jobs.filter(pl.col("state") == state)
        of_jobs = ended.height / jobs.height if jobs.height else None
        of_time = float(ended["gpu_time_s"].sum() or 0) / time if time else None
        figures.append(
            _Figure(f"jobs {name}", jobs_published, f"{ATC19} ({RELEASED})", of_jobs, "percent", jobs.height)
        )
        figures.append(_Figure(f"GPU time of jobs {name}", time_published, ATC19, of_time, "percent", jobs.height))
    return figures


def _times(source: Source) -> list[_Figure]:
    """Waits and run times of jobs that ran, gaps between attempts included in the latter."""
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


def _hardware(source: Source) -> list[_Figure]:
    """Measured utilization of held GPUs, idle time, and empty servers at two thirds in use."""
    by, free = source.rows("utilization_by"), source.rows("fragmentation")
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
        _Figure("empty servers at 60 to 73 % of GPUs in use", "under 4.5 %", ATC19, empty, "percent", instants),
    ]
