"""Release one cluster's queue-time model: fit and score the methods, choose a candidate, and judge it at the gate.

The log has three chronological parts, as for policies (`models.study.windows`). The candidate is the learner of least
CRPS on the select window, fitted on what was known before it. It is fitted anew on what was known before the report
window. There it is compared with the champion; without one, with the best naive method of the select window. The
released model is the winner's recipe fitted on all data. Only methods in a releasable form
(`models.queue_time.artifact`) qualify.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import polars as pl

from agent.distribution import Distribution
from agent.model_folder import digests, pack_arrays
from features.submission.log import SubmissionLog, why_not_rebuilt
from models.engine.engines import engine_of
from models.queue_time import scores
from models.queue_time.artifact import RELEASABLE, describe_log, distribution, released, with_checks
from models.queue_time.conformal import Calibrated
from models.queue_time.futures import LOOKS
from models.queue_time.ground import LEAST_FIT, SubmittedJobs, read_log, submitted_jobs
from models.queue_time.protocol import Forecast
from models.queue_time.registry import METHODS, make_method
from models.queue_time.rows import predictions_frame, scores_frame
from models.queue_time.study import Judgement, figures_of, judge_jobs
from models.queue_time.tables import QUEUE_TIME_PREDICTIONS, QUEUE_TIME_RELEASES, QUEUE_TIME_SCORES
from models.release import line
from models.release.champion import alone
from models.release.log import QUEUE_TIME_DECISIONS
from models.release.queue_time.gate import BETTER, LEAST_JOBS, QueueTimeOffer, judge
from models.release.queue_time.note import card
from models.release.queue_time.promise import WeekScores, by_week
from models.study.inputs import declared_dates
from models.study.windows import COOL_DOWN_S, WARM_UP_S, Window, Windows, split_trace
from models.tracking import versions as tracking
from models.tracking.kinds import QUEUE_TIME
from traces import instants
from traces.arrays import Float64s
from traces.cache.closure import code_digest
from traces.cache.digests import digest
from traces.clusters import ClusterSettings
from traces.counted import counted
from traces.store import derived, warehouse
from traces.store.folder import DataFolder
from traces.units import HOUR_S

RELEASED_BY = "models.release.queue_time.publish"
SEED = 0


@dataclass(frozen=True)
class Published:
    """The cluster's tables after a release (`models.queue_time.tables`), and whether they existed already."""

    scores: pl.DataFrame
    predictions: pl.DataFrame
    releases: pl.DataFrame  # the newest decision last
    reused: bool


def publish(data: DataFolder, settings: ClusterSettings) -> Published | str:
    """Score every method, and release the winner if the gate lets it through; one process at a time for a cluster.

    Returns a reason, in a sentence, if the log allows no release. Running again with the same tables, code and champion
    computes nothing. Raises WorkError if there is a champion that cannot be compared with.
    """
    cluster = settings.name
    with alone(data, cluster, QUEUE_TIME_DECISIONS):
        made_from = digest(
            warehouse.made_from(data, cluster), declared_dates(settings), settings.nodes, code_digest(RELEASED_BY)
        )
        kept = _kept(data, cluster, made_from)
        if kept is not None:
            return kept
        log, engine = read_log(data, cluster), engine_of(data.root)
        if (windows := _windows(log, settings)) is None or (why := why_not_rebuilt(log)) is not None:
            return "the log is too short for three windows" if windows is None else f"its queue is unknown: {why}"
        fit_from_s = declared_dates(settings).fit_from_s
        judged = []
        for window, names in ((windows.select, _offered()), (windows.report, _judged())):
            jobs = submitted_jobs(log, window.from_s, fit_from_s)
            if why := _too_few(jobs, window):
                return why
            methods = [make_method(name) for name in names]
            bounds_s = window.from_s, window.until_s, window.from_s
            judged.append(judge_jobs(jobs, cluster, *bounds_s, methods, SEED, engine))
        select, report = judged
        row = None
        if not QUEUE_TIME_DECISIONS.is_current(data, cluster, made_from):  # else a killed process had decided
            version = tracking.champion(data, cluster, QUEUE_TIME)
            champion = None if version is None else released(data, cluster, version.version)
            offer = decide(select, report, champion)
            promises = {name: _promise(select, report, name) for name in (offer.candidate, offer.released) if name}
            row = _release(data, settings, log, windows, offer, report, promises, made_from)
        derived.write(
            data, QUEUE_TIME_SCORES, cluster, scores_frame(cluster, windows.report, figures_of(report)), made_from
        )
        derived.write(data, QUEUE_TIME_PREDICTIONS, cluster, predictions_frame(cluster, report), made_from)
        if row is not None:
            QUEUE_TIME_DECISIONS.add(data, row, made_from)
        kept = _kept(data, cluster, made_from)
        assert kept is not None
        return Published(kept.scores, kept.predictions, kept.releases, reused=False)


def decide(select: Judgement, report: Judgement, champion: Distribution | None) -> QueueTimeOffer:
    """Choose the candidate on the select window; judge it on the report window's jobs that no model was fitted on."""
    naive = [method.name for method in select.methods if method.is_naive]
    learners = [method.name for method in select.methods if not method.is_naive and method.name in RELEASABLE]
    candidate, best = select.best(learners), select.best(naive)
    fallback = select.best([name for name in naive if name in RELEASABLE])
    assert candidate is not None and best is not None and fallback is not None
    rows = report.rows
    own = scores.crps_h(report.forecasts[candidate], rows.wait_s)
    if champion is None:
        theirs = scores.crps_h(report.forecasts[best], rows.wait_s)
        judged = judge(own, theirs, rows.submit_s, f"the best naive method, {best}")
        is_better = judged.verdict == BETTER
        return QueueTimeOffer(candidate, judged, candidate if is_better else fallback, not is_better)
    fresh = rows.submit_s >= int(champion.manifest["trained_on"]["until_s"])
    held, champion_crps = rows.take(fresh), _crps_of(champion, report, fresh)
    judged = judge(own[fresh], champion_crps, held.submit_s, f"the champion, {champion.manifest['method']}")
    return QueueTimeOffer(candidate, judged, candidate if judged.verdict == BETTER else None)


def _crps_of(champion: Distribution, report: Judgement, fresh: Any) -> Float64s:
    held = report.rows.take(fresh)
    if not len(held):
        return held.wait_s.astype(float)
    names = describe_log(report.jobs).partitions
    forecast = champion.forecast(held.observed, [names[one] for one in held.partition.tolist()])
    return scores.crps_h(Forecast(*forecast), held.wait_s)


def _promise(select: Judgement, report: Judgement, method: str) -> list[WeekScores]:
    """The method's scores by week on both windows; each window's jobs are later than those of its fit."""
    return [week for one in (select, report) for week in by_week(one.forecasts[method], one.rows, *one.window_s)]


def _offered() -> list[str]:
    """The methods scored on the select window: all releasable ones, and all naive ones."""
    return [name for name in METHODS if name in RELEASABLE or make_method(name).is_naive]


def _judged() -> list[str]:
    """The methods scored on the report window: all but those whose futures take minutes, and the bound."""
    return [name for name in METHODS if name not in LOOKS]


def _windows(log: SubmissionLog, settings: ClusterSettings) -> Windows | None:
    """The three parts of the log; None if it is too short."""
    declared, submit_s = declared_dates(settings), log.record.submit_s
    from_s = max(int(submit_s.min()), declared.fit_from_s or 0) + WARM_UP_S
    usable = Window(-(-from_s // HOUR_S) * HOUR_S, (int(submit_s.max()) - COOL_DOWN_S) // HOUR_S * HOUR_S)
    return None if usable.until_s <= usable.from_s else split_trace(usable, declared, settings.name)


def _too_few(jobs: SubmittedJobs, window: Window) -> str | None:
    known, judged = int(jobs.known(window.from_s).sum()), int(jobs.within(window.from_s, window.until_s).sum())
    if known >= LEAST_FIT and judged >= LEAST_JOBS:
        return None
    needed = f"at least {LEAST_FIT} and {LEAST_JOBS} are needed"
    return f"{counted(known, 'job')} to fit on and {judged} to judge from {window}: {needed}"


def _kept(data: DataFolder, cluster: str, made_from: str) -> Published | None:
    """The existing tables, if their inputs are the same and the newest decision's champion is still champion."""
    own = (QUEUE_TIME_SCORES, QUEUE_TIME_PREDICTIONS)
    if any(derived.made_from(data, table.name, cluster) != made_from for table in own):
        return None
    if not QUEUE_TIME_DECISIONS.is_current(data, cluster, made_from):
        return None
    scored, predicted, log = (derived.read(data, table.name, cluster) for table in (*own, QUEUE_TIME_RELEASES))
    return Published(scored, predicted, log, reused=True)


def _release(
    data: DataFolder, settings: ClusterSettings, log: SubmissionLog, windows: Windows, offer: QueueTimeOffer,
    report: Judgement, promises: dict[str, list[WeekScores]], made_from: str,
) -> dict[str, Any]:  # fmt: skip
    """Register the candidate and, if different, the new champion; returns the row of the decision.

    The version gets its decision as a tag before the alias moves, so that the next run can finish after a kill.
    """
    cluster, now = settings.name, datetime.now(UTC).replace(tzinfo=None)
    judged_at = {"windows": _stated(windows), "gate": offer.judged.figures(), "results": _results(report)}
    note: dict[str, Any] = {
        "cluster": cluster,
        "unit": log.unit,
        "made_from": made_from,
        "release": {**judged_at, "verdict": offer.judged.verdict, "decided_utc": now.isoformat()},
    }
    present = tracking.champion(data, cluster, QUEUE_TIME)
    versions: dict[str, int] = {}
    for method in dict.fromkeys(filter(None, (offer.candidate, offer.released))):
        known_s = int(log.record.submit_s[-1]) + 1 if method == offer.released else windows.report.from_s
        promised = [one._asdict() for one in promises[method]]
        own = {**note, "release": {**note["release"], "weeks": promised}}
        made = _fitted(log, settings, method, own, known_s)
        versions[method] = _registered(data, cluster, made, offer)
    if offer.released is not None:
        version, champion_method = versions[offer.released], offer.released
    else:
        assert present is not None
        version, champion_method = present.version, str(present.tags.get("method", "unknown"))
    row = _row(cluster, now, offer, version, champion_method, versions[offer.candidate])
    if offer.released is not None:
        opponent = None if present is None else present.version
        line.make_champion(data, QUEUE_TIME_DECISIONS, row, made_from, opponent)
    if offer.candidate != offer.released:
        line.make_challenger(data, cluster, versions[offer.candidate], QUEUE_TIME)
    return row


def _fitted(
    log: SubmissionLog, settings: ClusterSettings, method: str, note: dict[str, Any], known_s: int
) -> Distribution:
    """Fit the method on what was known at an instant, and add checks."""
    jobs = submitted_jobs(log, known_s, declared_dates(settings).fit_from_s)
    rows = jobs.rows.take(jobs.known(known_s))
    names = describe_log(jobs)
    trained_on = {"cluster": settings.name, "jobs": len(rows), "until_s": known_s, "until_utc": instants.text(known_s)}
    fitted = Calibrated(make_method(method)).fit(rows, SEED)
    return with_checks(distribution(method, fitted, names, {**note, "trained_on": trained_on}), rows, names.partitions)


def _registered(data: DataFolder, cluster: str, made: Distribution, offer: QueueTimeOffer) -> int:
    """Register the model. A version with the same content, left by a killed process, is reused."""
    content = digest(
        digests({"arrays": pack_arrays(made.arrays)})["arrays"], made.manifest["parts"], made.manifest["features"]
    )
    judged, text = offer.judged, card(made)
    verdict = {line.VERDICT_TAG: judged.verdict}
    tags = {"method": str(made.manifest["method"]), line.CONTENT_TAG: content, **verdict}
    figures = {"crps_difference_h": judged.difference_h, "gate_jobs": float(judged.n)}
    metrics = {name: value for name, value in figures.items() if value is not None}

    def register() -> int:
        return tracking.register(
            data, cluster, made, tags=tags, description=text, metrics=metrics, card=text, model=QUEUE_TIME
        )

    return line.registered_once(data, cluster, QUEUE_TIME, content, register, verdict=verdict)[0]


def _row(
    cluster: str, now: datetime, offer: QueueTimeOffer, version: int, champion_method: str, candidate_version: int
) -> dict[str, Any]:
    """Make a row of `queue_time_releases`."""
    judged, reason = offer.judged, offer.judged.reason
    if offer.is_provisional:
        reason += f"; there is no champion, so the naive method {offer.released} becomes provisional champion"
    return {
        "cluster": cluster,
        "decided_utc": now,
        "registered_version": version,
        "champion_method": champion_method,
        "candidate_version": candidate_version,
        "method": offer.candidate,
        "verdict": judged.verdict,
        "provisional": offer.is_provisional,
        "reason": reason,
        "opponent": judged.opponent,
        "jobs": judged.n,
        "blocks": judged.blocks,
        "crps_difference_h": judged.difference_h,
        "crps_difference_low_h": judged.low_h,
        "crps_difference_high_h": judged.high_h,
    }


def _stated(windows: Windows) -> dict[str, dict[str, str]]:
    parts = {"fit": windows.fit, "select": windows.select, "report": windows.report}
    return {
        name: {"from_utc": instants.text(part.from_s), "until_utc": instants.text(part.until_s)}
        for name, part in parts.items()
    }


def _results(report: Judgement) -> list[dict[str, Any]]:
    """The figures and intervals of each method on the report window, for the manifest."""
    names = (
        "method",
        "n",
        "blocks",
        "crps_h",
        "balanced_accuracy",
        "brier",
        "median_ae_h",
        "coverage",
        "width_h",
        "ci95",
    )
    return [{name: row[name] for name in names} for row in figures_of(report)["results"]]
