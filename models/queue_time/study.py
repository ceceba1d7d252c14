"""Fit every method on what was known at one instant, and score it on the jobs of one window."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from features.submission.log import why_not_rebuilt
from models.engine.engines import engine_of
from models.engine.local import each_here
from models.engine.work import Engine, Task, Work
from models.provisioning.futures.revealed import RevealedTruth
from models.queue_time import scores
from models.queue_time.conformal import Calibrated
from models.queue_time.futures import LOOKS, rows_with_futures
from models.queue_time.ground import LEAST_FIT, SubmittedJobs, read_log, submitted_jobs
from models.queue_time.protocol import SHORT_S, Forecast, Method, Rows
from models.queue_time.registry import METHODS, make_method
from models.queue_time.rolling import Rolling, rolled
from models.queue_time.scores import Judged
from models.study.inputs import declared_dates
from traces import instants
from traces.arrays import Bools
from traces.clusters import ClusterSettings
from traces.counted import counted
from traces.errors import InputError
from traces.progress import say
from traces.store.folder import DataFolder
from traces.units import HOUR_S

RIVALS = ("limits",)  # methods that every other is compared with, as well as the best naive one
LEAST_JUDGED = 20
ROW_S = 5e-4  # rough time of a learner's fits for each row; a naive method takes no time
MOST_PROCESSES = 8  # each holds the rows of all fits


def score_window(
    data: DataFolder,
    settings: ClusterSettings,
    from_s: int,
    to_s: int,
    *,
    known_s: int | None = None,
    refit_s: int | None = None,
    methods: list[str] | None = None,
    rolling: bool = False,
    seed: int = 0,
) -> dict[str, Any]:
    """Score every method on the jobs submitted in [from_s, to_s), epoch s, for `baton wait --from --to`.

    `methods`: names; None means all that the log allows. `rolling`: add each method once more, with forecasts corrected
    as outcomes become known. The other arguments and the errors are those of `judge_window`.
    """
    known_s = from_s if known_s is None else known_s
    chosen = [make_method(name) for name in (methods or METHODS)]
    found = judge_window(
        data, settings, from_s, to_s, chosen, known_s=known_s, refit_s=refit_s, leave_out=not methods, seed=seed,
        engine=engine_of(data.root),
    )  # fmt: skip
    return {
        "cluster": settings.name,
        "from_utc": instants.text(from_s),
        "to_utc": instants.text(to_s),
        "known_utc": instants.text(known_s),
        "refitted_utc": [instants.text(at_s) for at_s in _refits_s(from_s, to_s, refit_s)],
        **figures_of(with_rolling(found) if rolling else found),
    }


def judge_window(
    data: DataFolder,
    settings: ClusterSettings,
    from_s: int,
    to_s: int,
    methods: list[Method],
    *,
    known_s: int | None = None,
    refit_s: int | None = None,
    leave_out: bool = False,
    seed: int = 0,
    engine: Engine = each_here,
) -> Judgement:
    """Fit `methods` and forecast the jobs submitted in [from_s, to_s), epoch s.

    Methods are fitted on what was known at `known_s` (default: from_s), and again every `refit_s` from then on. Each
    fit is judged on the jobs until the next (a rolling origin: Tashman, International Journal of Forecasting 16(4),
    2000). The judgement covers all jobs together. Raises InputError for a window or a fit without enough jobs. If the
    log has no queue, `leave_out` skips methods that need one; otherwise they raise InputError.
    """
    known_s = from_s if known_s is None else known_s
    if to_s <= from_s:
        raise InputError(f"--to {instants.text(to_s)} is not after --from {instants.text(from_s)}")
    if known_s > from_s:
        raise InputError(
            f"--until {instants.text(known_s)} is after --from {instants.text(from_s)}: a fit must not know the "
            "outcomes that it is judged on; give an earlier --until"
        )
    log, fit_from_s = read_log(data, settings.name), declared_dates(settings).fit_from_s
    why_request_only = why_not_rebuilt(log)
    if why_request_only is not None:
        if not leave_out and (needy := [method.name for method in methods if method.needs_queue]):
            raise InputError(f"cluster {settings.name!r}: {', '.join(needy)} cannot be judged: {why_request_only}")
        methods = [method for method in methods if not method.needs_queue]
    again_s = _refits_s(from_s, to_s, refit_s)
    origins = [
        origin_of(submitted_jobs(log, at_s, fit_from_s), settings.name, begin, end, at_s)
        for begin, end, at_s in zip([from_s, *again_s], [*again_s, to_s], [known_s, *again_s], strict=True)
    ]
    return pooled(judge_origins(origins, methods, seed, engine))


def _refits_s(from_s: int, to_s: int, refit_s: int | None) -> list[int]:
    """The instants of the refits within the window, epoch s."""
    return [] if refit_s is None else list(range(from_s + refit_s, to_s, refit_s))


@dataclass(frozen=True)
class Judgement:
    """The forecasts of fitted methods for the jobs of one window."""

    jobs: SubmittedJobs
    window_s: tuple[int, int]  # from, to: epoch s
    fitted_on: int  # rows
    rows: Rows  # the n judged jobs
    judged: Judged
    methods: list[Method]
    forecasts: dict[str, Forecast]  # by method, n rows each
    seconds: dict[str, float]

    def best(self, names: list[str]) -> str | None:
        """The method of `names` with the least CRPS; None without names."""
        if not names:
            return None
        return min(names, key=lambda name: float(scores.crps_h(self.forecasts[name], self.rows.wait_s).mean()))


def pooled(parts: list[Judgement]) -> Judgement:
    """Join judgements of one log and the same methods on consecutive windows; the fit is that of the last.

    A job is called short by the share of short waits in the fit that it was judged with.
    """
    if len(parts) == 1:
        return parts[0]
    last, names = parts[-1], [method.name for method in parts[-1].methods]
    window_s = parts[0].window_s[0], last.window_s[1]
    rows = last.jobs.rows.take(last.jobs.within(*window_s))
    threshold = np.concatenate([np.broadcast_to(part.judged.threshold, len(part.rows)) for part in parts])
    forecasts = {
        name: Forecast(
            np.concatenate([part.forecasts[name].quantiles_s for part in parts]),
            np.concatenate([part.forecasts[name].p_under_600s for part in parts]),
        )
        for name in names
    }
    return replace(
        last,
        window_s=window_s,
        rows=rows,
        judged=Judged.of(rows.submit_s, rows.wait_s, rows.size_class, threshold),
        forecasts=forecasts,
        seconds={name: sum(part.seconds[name] for part in parts) for name in names},
    )


def with_rolling(found: Judgement) -> Judgement:
    """Add a second row for each method: its forecasts corrected by the outcomes known at each submission."""
    rows, forecasts, seconds = found.rows, dict(found.forecasts), dict(found.seconds)
    methods: list[Method] = []
    for method in found.methods:
        corrected, began = Rolling(method), time.monotonic()
        forecasts[corrected.name] = rolled(forecasts[method.name], rows.submit_s, rows.wait_s)
        seconds[corrected.name] = time.monotonic() - began
        methods += [method, corrected]
    return replace(found, methods=methods, forecasts=forecasts, seconds=seconds)


class Origin(NamedTuple):
    """One fit of a rolling origin: the rows known at an instant, and those of the jobs to judge."""

    jobs: SubmittedJobs
    window_s: tuple[int, int]  # from, to: epoch s
    fit_on: Bools
    judge: Bools


def origin_of(jobs: SubmittedJobs, cluster: str, from_s: int, to_s: int, known_s: int) -> Origin:
    """Fit on what was known at `known_s`, and judge the jobs of the window.

    Raises InputError if there are too few jobs to fit on or to judge.
    """
    fit_on, judge = jobs.known(known_s), jobs.within(from_s, to_s)
    if fit_on.sum() < LEAST_FIT:
        raise InputError(
            f"cluster {cluster!r}: {counted(fit_on.sum(), 'job')} that started before {instants.text(known_s)} can "
            f"be used to fit; at least {LEAST_FIT} are needed: give a later --until, or a longer log"
        )
    if judge.sum() < LEAST_JUDGED:
        raise InputError(
            f"cluster {cluster!r}: {counted(judge.sum(), 'job')} that started were submitted from "
            f"{instants.text(from_s)} to {instants.text(to_s)}; at least {LEAST_JUDGED} are needed: "
            "give a longer window"
        )
    return Origin(jobs, (from_s, to_s), fit_on, judge)


def judge_jobs(
    jobs: SubmittedJobs,
    cluster: str,
    from_s: int,
    to_s: int,
    known_s: int,
    methods: list[Method],
    seed: int,
    engine: Engine = each_here,
) -> Judgement:
    """Judge one fit. Raises InputError as `origin_of` does."""
    return judge_origins([origin_of(jobs, cluster, from_s, to_s, known_s)], methods, seed, engine)[0]


class _Fit(NamedTuple):
    """A task: fit the method on the first rows of a pair, and forecast the second."""

    method: Method
    at: int  # position of the pair
    is_ready: bool  # its quantiles are not calibrated again
    seed: int


def judge_origins(
    origins: Sequence[Origin], methods: list[Method], seed: int, engine: Engine = each_here
) -> list[Judgement]:
    """Fit `methods` at each origin and forecast its jobs; futures are simulated first."""
    fits, pairs, seconds = _asked(origins, methods, seed, engine)
    forecasts: dict[int, Forecast] = {}
    tasks = [Task(f"the fit of {fit.method.name!r}", fit, fit.method.name) for fit in fits]
    modules = sorted({type(method).__module__ for method in methods})
    about_s = ROW_S * sum(len(pairs[fit.at][0]) for fit in fits if not fit.method.is_naive)
    for at, (forecast, wall_s) in engine(Work(forecast_one, tasks, pairs, modules, about_s=about_s), MOST_PROCESSES):
        forecasts[at], seconds[at] = forecast, seconds[at] + wall_s
        say(f"{methods[at % len(methods)].name}: {counted(len(forecast), 'job')}, {seconds[at]:.1f} s")
    found = []
    for first, origin in zip(range(0, len(fits), len(methods)), origins, strict=True):
        fitted_on, rows = (origin.jobs.rows.take(mask) for mask in (origin.fit_on, origin.judge))
        judged = Judged.of(rows.submit_s, rows.wait_s, rows.size_class, float((fitted_on.wait_s < SHORT_S).mean()))
        places = {method.name: at for at, method in enumerate(methods, first)}
        found.append(
            Judgement(
                origin.jobs, origin.window_s, len(fitted_on), rows, judged, methods,
                {name: forecasts[at] for name, at in places.items()},
                {name: seconds[at] for name, at in places.items()},
            )
        )  # fmt: skip
    return found


def _asked(
    origins: Sequence[Origin], methods: list[Method], seed: int, engine: Engine
) -> tuple[list[_Fit], list[tuple[Rows, Rows]], list[float]]:
    """The fits of all methods, origin by origin; the pairs of rows that they name; seconds spent on their futures."""
    fits, pairs, seconds = list[_Fit](), list[tuple[Rows, Rows]](), list[float]()
    for origin in origins:
        places: dict[RevealedTruth | None, int] = {}
        for method in methods:
            revealed, began = LOOKS.get(method.name), time.monotonic()
            if revealed not in places:
                places[revealed] = len(pairs)
                pairs.append(_rows_of(origin, revealed, engine))
            fits.append(_Fit(method, places[revealed], revealed is not None, seed))
            seconds.append(time.monotonic() - began)
    return fits, pairs, seconds


def _rows_of(origin: Origin, revealed: RevealedTruth | None, engine: Engine) -> tuple[Rows, Rows]:
    """The rows to fit on and those to judge, with futures if some truth is revealed to them."""
    if revealed is not None:
        return rows_with_futures(origin.jobs, origin.fit_on, origin.judge, revealed, engine)
    return origin.jobs.rows.take(origin.fit_on), origin.jobs.rows.take(origin.judge)


def forecast_one(pairs: Sequence[tuple[Rows, Rows]], fit: _Fit) -> tuple[Forecast, float]:
    """Make one fit and forecast with it; returns the time it took as well, s."""
    began = time.monotonic()
    method = fit.method if fit.is_ready else Calibrated(fit.method)
    of_fit, of_window = pairs[fit.at]
    forecast = method.fit(of_fit, fit.seed).forecast(of_window)
    return forecast, time.monotonic() - began


def figures_of(found: Judgement) -> dict[str, Any]:
    """The figures of every method, and of the jobs that it was judged on, as plain values."""
    jobs, rows, judged = found.jobs, found.rows, found.judged
    best = found.best([method.name for method in found.methods if method.is_naive])
    results = [
        {**_scored(method, judged, found.forecasts, best), "wall_s": round(found.seconds[method.name], 3)}
        for method in found.methods
    ]
    return {
        "jobs": len(rows),
        "never_started": jobs.never_started(*found.window_s),
        "fitted_on": found.fitted_on,
        "unit": jobs.log.unit,
        "request_only": jobs.why_request_only,
        "short_share": float(np.mean(judged.is_short)),
        "threshold": float(np.mean(judged.threshold)),
        "mean_wait_h": float(rows.wait_s.mean() / HOUR_S),
        "results": results,
    }


def _scored(method: Method, judged: Judged, forecasts: dict[str, Forecast], best: str | None) -> dict[str, Any]:
    """The figures of one method, and its differences to others; `best` is the best naive one, if there is any."""
    forecast = forecasts[method.name]
    rivals = [name for name in RIVALS if name in forecasts and name != method.name]
    naive = None if best is None else {"method": best, **scores.difference(judged, forecast, forecasts[best])}
    return {
        "method": method.name,
        "is_naive": method.is_naive,
        **scores.figures(judged, forecast),
        "difference_to_best_naive": naive,
        "differences": {name: scores.difference(judged, forecast, forecasts[name]) for name in rivals},
        "weeks": scores.by_week(judged, forecast),
        "sizes": scores.by_size(judged, forecast),
        "reliability": scores.reliability(judged, forecast),
    }
