"""Predict the wait of one job: quantiles, reasons, and changes that would start it sooner. Needs only numpy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from features.submission.index import FEATURES, GROUPS, TALLIED, TALLIED_AT, SubmissionRequest, fill_submission
from features.submission.numbers import write
from features.submission.shape import shapes
from models.queue_time.protocol import COLUMN, LEVELS, Forecast, forecast_of
from models.queue_time.rolling import classes
from models.queue_time.stored import Stored
from traces.arrays import Float32s
from traces.counted import counted
from traces.units import HOUR_S

LONG_HISTORY_DAYS = 28.0  # a forecast from a shorter fit is widened
WIDER = 1.5  # factor on the spread of the wait's logarithm
SOONER = 0.9  # of the median wait: suggest a change only if its median is at most this
QUANTILES = {"0.1": 3, "0.25": 9, "0.5": 19, "0.75": 29, "0.9": 35, "0.95": 37}  # positions among LEVELS
REASONS = 3
LEAST_EFFECT_S = 60.0


@dataclass(frozen=True)
class WaitRequest:
    """The job's request. An empty text means not given."""

    nodes: int
    limit_s: int
    partition: str = ""
    user: str = ""
    account: str = ""
    qos: str = ""


def answer(stored: Stored, request: WaitRequest) -> dict[str, Any]:
    """`quantiles_s, p_under_600s, reasons, sooner, notes, outcomes`; `never`: why it cannot start, else None."""
    request, notes = _known(stored, request)
    if why := why_never(stored, request):
        empty = dict.fromkeys(QUANTILES)
        nothing = {"quantiles_s": empty, "p_under_600s": 0.0, "never": why, "reasons": [why], "sooner": []}
        return {**nothing, "notes": notes, "outcomes": 0}
    observed = observed_of(stored, request)
    uncorrected = _uncorrected(stored, request, observed)
    forecast = _corrected(stored, uncorrected)
    outcomes = int(stored.correction.outcomes[classes(uncorrected)[0]])
    if outcomes:
        notes.append(f"corrected by the outcomes of {counted(outcomes, 'job')} since the model was fitted")
    days = float(stored.manifest["fitted_days"])
    if days < LONG_HISTORY_DAYS:
        notes.append(f"fitted on {days:.0f} days of history: the interval is widened for it")
    return {
        "quantiles_s": {name: float(forecast.quantiles_s[0, at]) for name, at in QUANTILES.items()},
        "p_under_600s": float(forecast.p_under_600s[0]),
        "never": None,
        "reasons": reasons(stored, request, observed),
        "sooner": sooner(stored, request, float(forecast.median_s[0])),
        "notes": notes,
        "outcomes": outcomes,
    }


def _known(stored: Stored, request: WaitRequest) -> tuple[WaitRequest, list[str]]:
    """Fill missing parts of the request with the usual values; returns it and notes on the fallbacks."""
    notes = []
    groups, most = stored.manifest["groups"], stored.manifest["usual"]
    if not request.partition:
        request = replace(request, partition=most["partition"])
    if not request.qos:
        request = replace(request, qos=most["qos"])
    if not request.account and request.user in stored.manifest["accounts"]:
        request = replace(request, account=stored.manifest["accounts"][request.user])
    for name in ("user", "account", "partition", "qos"):
        value = getattr(request, name)
        if value and value not in groups[name]:
            notes.append(f"{name} {value!r} is not in the log: the waits of all jobs are used instead")
    if "live_since_utc" in stored.manifest:
        log_end = stored.manifest["live_since_utc"]
        notes.append(f"live: the outcomes of earlier jobs are from the log, which ends at {log_end} UTC")
    hidden = stored.manifest.get("hidden", {})
    for why in dict.fromkeys(hidden.values()):
        count = sum(one == why for one in hidden.values())
        notes.append(f"{count} of {len(FEATURES)} numbers have their usual values: {why}")
    return request, notes


def why_never(stored: Stored, request: WaitRequest) -> str | None:
    """Why no node can ever run the job, in one sentence; None without such a reason."""
    most, unit = int(stored.manifest["most_size"]), stored.manifest["unit"]
    if request.nodes > most:
        return f"never: it asks for {request.nodes:,} {unit}, and the cluster has {most:,}"
    partitions = stored.manifest["partitions"]
    longest_s = partitions.get(request.partition)
    if longest_s is not None and request.limit_s > longest_s:
        where = f"partition {request.partition!r}" if request.partition else "the cluster"
        excess = f"a limit of {_hours(request.limit_s)} is above {_hours(longest_s)}"
        return f"never: {excess}, the longest limit of any job in {where}"
    return None


def observed_of(stored: Stored, request: WaitRequest) -> Float32s:
    """(1, features) the observation of the job, submitted now."""
    m = stored.manifest
    out = np.zeros(len(FEATURES), np.float32)
    user = m["users"].get(request.user, len(m["users"]))
    submission = SubmissionRequest(
        request.nodes * m["cpus_a_unit"], request.nodes * m["gpus_a_unit"], 0.0, float(m["usual_priority"]), 0.0
    )
    key = -(m["now_s"] - m["origin_s"])
    if m["points_per_hour"] is not None:
        key = 3600 * m["usual_priority"] + m["points_per_hour"] * key
    place = int((stored.pending_key >= key).sum())
    fill_submission(out, stored.snapshot(request.nodes, request.limit_s, user, place), submission)
    shape = str(int(shapes(np.array([request.nodes]), np.array([request.limit_s]))[0]))
    names = {
        "user": request.user, "account": request.account, "partition": request.partition, "qos": request.qos,
        "shape": shape, "user_shape": f"{request.user}\n{shape}", "everybody": "",
    }  # fmt: skip
    nobody = len(stored.group_state)  # row of a group without history
    state = np.vstack([stored.group_state, np.zeros(stored.group_state.shape[1])])
    state[nobody, 4:6] = -np.inf
    everybody = int(stored.group_first[len(GROUPS) - 1])
    for k, group in enumerate(GROUPS):
        at = m["groups"][group].get(names[group])
        code = nobody if at is None else int(stored.group_first[k]) + at
        oldest_s = 0 if code == nobody else int(stored.group_oldest_s[code])
        age_s = m["now_s"] - oldest_s if oldest_s else 0
        write(state, code, everybody, m["now_s"], age_s, out, TALLIED_AT + k * len(TALLIED))
    unknown = [COLUMN[name] for name in m.get("hidden", ())]
    out[unknown] = stored.typical[unknown]
    return out[None]


def _forecast(stored: Stored, request: WaitRequest, observed: Float32s) -> Forecast:
    return _corrected(stored, _uncorrected(stored, request, observed))


def _uncorrected(stored: Stored, request: WaitRequest, observed: Float32s) -> Forecast:
    """The model's own forecast."""
    return Forecast(*stored.model.forecast(observed, [request.partition] * len(observed)))


def _corrected(stored: Stored, forecast: Forecast) -> Forecast:
    """Correct the forecast by the outcomes since the fit, and widen it if the history is short."""
    moved = stored.correction(forecast)
    if float(stored.manifest["fitted_days"]) >= LONG_HISTORY_DAYS:
        return moved
    log = np.log1p(moved.quantiles_s)
    middle = log[:, len(LEVELS) // 2][:, None]
    return forecast_of(np.expm1(middle + WIDER * (log - middle)), moved.p_under_600s)


def _begins(*names: str) -> list[int]:
    return [COLUMN[name] for name in FEATURES if name.startswith(names)]


# The features behind each reason: resetting them to their usual values shows their effect.
GROUPS_OF_REASONS: dict[str, list[int]] = {
    "ahead": _begins("ahead_", "behind_", "pending_", "held_", "arrived_", "everybody_pending", "partition_pending"),
    "free": _begins("free_", "fits_now", "release_", "running_", "usable", "capacity"),
    "place": _begins("start_estimate", "headroom", "own_pending"),
    "request": _begins("size", "limit_h", "cpus", "gpus", "shape_"),
    "user": _begins("user_", "account_"),
    "recent": _begins("recent_", "started_6h", "limit_use", "everybody_last", "everybody_mean", "partition_", "qos_"),
    "time": _begins("hour_", "weekday_"),
}


def reasons(stored: Stored, request: WaitRequest, observed: Float32s) -> list[str]:
    """Up to REASONS sentences: the groups of features that move the median most compared with their usual values."""
    rows = np.repeat(observed, len(GROUPS_OF_REASONS) + 1, axis=0)
    for k, columns in enumerate(GROUPS_OF_REASONS.values(), 1):
        rows[k, columns] = stored.typical[columns]
    median = _forecast(stored, request, rows).median_s
    effect = median[0] - median[1:]
    order = np.argsort(-np.abs(np.log1p(median[0]) - np.log1p(median[1:])), kind="stable")
    row = dict(zip(FEATURES, observed[0].tolist(), strict=True))
    sentences = []
    for k in order[:REASONS]:
        if abs(effect[k]) >= LEAST_EFFECT_S:
            name = list(GROUPS_OF_REASONS)[k]
            by = f"{'longer' if effect[k] > 0 else 'shorter'} by {_hours(abs(effect[k]))}"
            sentences.append(f"{_words(stored, name, row, request)} ({by} than usual)")
    return sentences or ["no unusual feature: the queue, the cluster and the request are as usual"]


def _words(stored: Stored, name: str, row: dict[str, float], request: WaitRequest) -> str:
    unit = stored.manifest["unit"]
    return {
        "ahead": f"{row['ahead_jobs']:,.0f} jobs for {row['ahead_size']:,.0f} {unit} are ahead of it",
        "free": f"{max(row['free_nodes'], 0):,.0f} of {row['usable_nodes']:,.0f} {unit} are free, "
        f"{row['release_4h_nodes']:,.0f} come free within 4 h by their limits",
        "place": f"its place in the queue comes in {_hours(row['start_estimate_expected_h'] * HOUR_S)} by expected run "
        f"times, in {_hours(row['start_estimate_h'] * HOUR_S)} by limits",
        "request": f"it asks for {request.nodes:,} {unit} for {_hours(request.limit_s)}",
        "user": f"its user has {row['user_running_jobs']:.0f} jobs running and {row['user_pending_jobs']:.0f} pending",
        "recent": f"half of the jobs that started last had waited {_hours(row['recent_wait_p50_h'] * HOUR_S)}, "
        f"a tenth {_hours(row['recent_wait_p90_h'] * HOUR_S)}",
        "time": "the hour of the day and the day of the week",
    }[name]


def sooner(stored: Stored, request: WaitRequest, median_s: float) -> list[dict[str, Any]]:
    """Changes of the request that shorten the model's median to at most SOONER of it, the best first."""
    changes = {}
    if request.nodes > 3:
        changes[f"with {request.nodes // 2} {stored.manifest['unit']}"] = replace(request, nodes=request.nodes // 2)
    if request.nodes > 1:
        changes[f"with 1 of the {stored.manifest['unit']}"] = replace(request, nodes=1)
    for part in (2, 4):
        if request.limit_s // part >= 600:
            limit_s = request.limit_s // part
            changes[f"with a limit of {_hours(limit_s)}"] = replace(request, limit_s=limit_s)
    for name in list(stored.manifest["partitions"])[:8]:
        if name != request.partition:
            changes[f"in partition {name!r}"] = replace(request, partition=name)
    found = []
    for words, change in changes.items():
        if why_never(stored, change) is None:
            found.append((words, _forecast(stored, change, observed_of(stored, change))))
    found.append((later := "submitted at 22:00 UTC, with the queue as now", _at_night(stored, request)))
    most_s = SOONER * median_s - LEAST_EFFECT_S
    better = [(words, forecast) for words, forecast in found if forecast.median_s[0] <= most_s]
    better.sort(key=lambda one: float(one[1].median_s[0]))
    return [
        {
            "change": words,
            "median_s": float(forecast.median_s[0]),
            "p_under_600s": float(forecast.p_under_600s[0]),
            "is_later": words == later,
        }
        for words, forecast in better
    ]


def _at_night(stored: Stored, request: WaitRequest) -> Forecast:
    row = observed_of(stored, request)
    angle = 2 * np.pi * 22 / 24
    row[0, COLUMN["hour_sin"]], row[0, COLUMN["hour_cos"]] = np.sin(angle), np.cos(angle)
    return _forecast(stored, request, row)


def _hours(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 172_800 * 2 else f"{seconds / 86_400:.0f} days"
