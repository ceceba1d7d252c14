"""Make the state of `models.queue_time.stored`: the champion, or boosting fitted now, and the cluster."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from agent.distribution import Distribution
from features.submission.index import GROUPS
from features.submission.log import SubmissionLog
from models.queue_time.artifact import describe_log, distribution, released
from models.queue_time.conformal import Calibrated
from models.queue_time.ground import LEAST_FIT, SubmittedJobs, read_log, submitted_jobs
from models.queue_time.methods.boosting import Boosting
from models.queue_time.protocol import Forecast
from models.queue_time.rolling import Correction
from models.queue_time.stored import Stored
from models.study.inputs import declared_dates
from models.tracking import registered
from models.tracking.address import registry_key
from models.tracking.kinds import QUEUE_TIME
from traces.cache.closure import code_digest
from traces.cache.digests import digest
from traces.clusters import ClusterSettings
from traces.counted import counted
from traces.errors import InputError
from traces.files.locks import locked
from traces.progress import say
from traces.store import warehouse
from traces.store.folder import DataFolder
from traces.units import DAY_S

NOW = "now"  # folder next to the released versions


def stored_for(data: DataFolder, settings: ClusterSettings) -> Stored:
    """Load the cluster's stored state; make it if it is missing, or if its tables or this code changed since.

    Raises InputError if the queue cannot be rebuilt or too few jobs are known.
    """
    place = registered.folder(data, settings.name, QUEUE_TIME)
    folder = place / NOW
    version = registered.champion_version(data, settings.name, QUEUE_TIME)
    logged = warehouse.made_from(data, settings.name), declared_dates(settings), settings.nodes
    made_from = digest(*logged, version, *registry_key(data))
    code = code_digest("models.queue_time.ask")
    if (found := _kept(folder, made_from, code)) is not None:
        return found
    data.ensure_writable()
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder, NOW):
        if (found := _kept(folder, made_from, code)) is None:
            say(f"{settings.name}: reading its log, which is needed once until the log or its champion changes")
            model = None if version is None else released(data, settings.name, version)
            note = {"made_from": made_from, "code": code, "champion": version}
            found = make(read_log(data, settings.name), settings, note, model)
            found.save(folder)
    return found


def _kept(folder: Path, made_from: str, code: str) -> Stored | None:
    try:
        found = Stored.load(folder)
    except ValueError:
        return None
    is_same = found.manifest.get("made_from") == made_from and found.manifest.get("code") == code
    return found if is_same else None


def make(
    log: SubmissionLog, settings: ClusterSettings, note: dict[str, Any], model: Distribution | None = None
) -> Stored:
    """Store the cluster at its log's last submission, with `model`; None means boosting, fitted on all known jobs."""
    from features.submission.observed import present_cluster
    from features.submission.tally import last_tally
    from simulator.recorded.parameters import infer_parameters, known_before
    from simulator.recorded.record import events

    record, cluster = log.record, settings.name
    fit_from_s = declared_dates(settings).fit_from_s
    now_s = int(record.submit_s[-1]) + 1
    jobs = submitted_jobs(log, now_s, fit_from_s)
    if jobs.why_request_only is not None:
        raise InputError(f"cluster {cluster!r}: its queue cannot be rebuilt: {jobs.why_request_only}")
    known = jobs.known(now_s)
    if known.sum() < LEAST_FIT:
        raise InputError(
            f"cluster {cluster!r}: {counted(known.sum(), 'job')} to fit on; at least {LEAST_FIT} are needed: "
            "ingest a longer log"
        )
    rows = jobs.rows.take(known)
    if model is None:
        fitted = Calibrated(Boosting()).fit(rows, 0)
        model = distribution("boosting", fitted, describe_log(jobs), {"cluster": cluster})
    learned = record if fit_from_s is None else record.take(record.submit_s >= fit_from_s)
    here = present_cluster(log, infer_parameters(learned, now_s))
    then = known_before(record, now_s)
    tally = last_tally(then, events(then), log.group_codes)
    seen = {name: column for name, column in here.seen._asdict().items() if isinstance(column, np.ndarray)}
    days = (int(rows.submit_s[-1]) - int(rows.submit_s[0])) / DAY_S
    manifest = {
        **note, "cluster": cluster, "unit": log.unit, "now_s": here.now_s, "fitted_on": len(rows),
        "fitted_days": days, "capacity": here.seen.capacity, "usable": here.seen.usable,
        "user_max_jobs": here.seen.user_max_jobs, "user_max_nodes": here.seen.user_max_nodes,
        "origin_s": here.origin_s, "points_per_hour": here.points_per_hour, **_described(log, settings),
    }  # fmt: skip
    return Stored(
        manifest, model, seen, here.pending_key, tally.first, tally.state, tally.oldest_submit_s,
        np.median(rows.observed, axis=0).astype(np.float32), _correction(jobs, model, now_s),
    )  # fmt: skip


def _correction(jobs: SubmittedJobs, model: Distribution, now_s: int) -> Correction:
    """The correction by the outcomes, before `now_s`, of the jobs submitted since the model was fitted."""
    fitted_s = int(model.manifest.get("trained_on", {}).get("until_s", now_s))
    since = jobs.rows.take(jobs.within(fitted_s, now_s))
    names = describe_log(jobs).partitions
    forecast = model.forecast(since.observed, [names[one] for one in since.partition.tolist()])
    return Correction.at(now_s, Forecast(*forecast), since.submit_s, since.wait_s)


def _described(log: SubmissionLog, settings: ClusterSettings) -> dict[str, Any]:
    """Names, usual values and bounds of the log's jobs, as `Stored.manifest` holds them."""
    record, names = log.record, log.names
    longest: dict[str, int] = {}
    for name, limit_s in zip(names["partition"], record.limit_s.tolist(), strict=True):
        longest[name] = max(longest.get(name, 0), limit_s)
    counts = Counter(names["partition"])
    groups = {
        group: {str(name): at for at, name in enumerate(np.unique(np.asarray(group_names, dtype=str)))}
        for group, group_names in log.group_names.items()
    }
    ran = record.size[record.ran]
    per_unit = np.median(log.asked[:, :2] / record.size[:, None], axis=0)
    return {
        "users": dict(zip(names["user"], record.user.tolist(), strict=True)),
        "accounts": dict(zip(names["user"], names["account"], strict=True)),
        "usual": {name: Counter(names[name]).most_common(1)[0][0] for name in ("partition", "qos")},
        "partitions": {name: longest[name] for name, _ in counts.most_common()},
        "usual_priority": float(np.median(record.priority[-1000:])),
        "most_size": max(int(ran.max()), settings.nodes or 0) if log.unit == "nodes" else int(ran.max()),
        "groups": {group: groups[group] for group in GROUPS},
        "cpus_a_unit": float(per_unit[0]),
        "gpus_a_unit": float(per_unit[1]),
    }
