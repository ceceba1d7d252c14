"""Compare what an advice predicted with what the log shows since the changes were made, adjusted for the load.

The jobs since then are replayed under the rules of before. The record less this replay is the effect of the changes,
plus the error of the replay, which the weeks before the changes show: it is taken away (a difference in differences).
"""

from __future__ import annotations

from typing import Any

from models.what_if.advice.objectives import Objective, difference_ci95, objective, value_of
from models.what_if.recorded.answer import read_recorded_log
from models.what_if.recorded.changes import changed_recorded
from models.what_if.recorded.outcomes import RecordedOutcome, outcome_of, recorded_wait_s
from models.what_if.recorded.scene import LEAST_WINDOW_S, RecordedScene, follow_window
from traces import instants
from traces.clusters import ClusterSettings
from traces.errors import InputError
from traces.store.folder import DataFolder
from traces.units import WEEK_S

BEFORE_S = 6 * WEEK_S  # of the log before the changes, on which the replay's own error is measured
KEEP, UNDO, CANNOT_TELL = "keep", "undo", "cannot tell"


def verify(
    data: DataFolder, settings: ClusterSettings, changes: str, objective_name: str, applied_s: int, span_s: int = WEEK_S
) -> dict[str, Any]:
    """Return the output of `baton advise --verify DATE --json`.

    Raises InputError for an unknown objective or change, and with less than a week of log before or after the date.
    """
    of, log = objective(objective_name), read_recorded_log(data, settings)
    first, last = int(log.record.submit_s[0]), int(log.record.submit_s[-1]) + 1
    from_s = max(first, applied_s - BEFORE_S)
    for name, length_s in (("before", applied_s - from_s), ("since", last - applied_s)):
        if length_s < LEAST_WINDOW_S:
            raise InputError(
                f"the log holds less than a week {name} {instants.text(applied_s)}; it has jobs from "
                f"{instants.text(first)} to {instants.text(last)}"
            )
    before = outcome_of(follow_window(log.record, log.about, from_s, applied_s, span_s, also_whole=False))
    scene = follow_window(log.record, log.about, applied_s, last, span_s, also_whole=False, is_frozen=True)
    since = outcome_of(scene)
    changed = changed_recorded(scene, changes)
    if not changed.present.all():
        raise InputError(f"change {changes[:80]!r} leaves jobs out, which no setting does; name what was changed")
    predicted = outcome_of(changed)
    error, raw = _distance(of, before), _distance(of, since)
    ci95 = _apart(_ends(of, since), _ends(of, before))
    return {
        "cluster": settings.name,
        "objective": of.name,
        "minimised": of.words,
        "changes": changes,
        "applied_utc": instants.text(applied_s),
        "from_utc": instants.text(from_s),
        "until_utc": instants.text(last),
        "jobs_before": int(before.scene.judged.sum()),
        "jobs_since": int(scene.judged.sum()),
        "recorded_before": value_of(of, _recorded(before.scene, before)),
        "recorded_since": value_of(of, _recorded(scene, since)),
        "replayed_since": value_of(of, since),
        "replay_error": error,
        "predicted": value_of(of, predicted) - value_of(of, since),
        "predicted_ci95": difference_ci95(of, since, predicted),
        "observed": raw - error,
        "observed_ci95": ci95,
        "verdict": _verdict(ci95),
    }


def _recorded(scene: RecordedScene, outcome: RecordedOutcome) -> RecordedOutcome:
    """The record in the form of a replay."""
    return outcome._replace(wait_s=recorded_wait_s(scene))


def _distance(of: Objective, outcome: RecordedOutcome) -> float:
    """The record's objective less the replay's."""
    return value_of(of, _recorded(outcome.scene, outcome)) - value_of(of, outcome)


def _ends(of: Objective, outcome: RecordedOutcome) -> tuple[float, list[float] | None]:
    return _distance(of, outcome), difference_ci95(of, outcome, _recorded(outcome.scene, outcome))


def _apart(since: tuple[float, list[float] | None], before: tuple[float, list[float] | None]) -> list[float] | None:
    """95 % interval of the difference of two distances of different weeks, which vary independently."""
    (later, ends), (earlier, earlier_ends) = since, before
    if ends is None or earlier_ends is None:
        return None
    low = ((later - ends[0]) ** 2 + (earlier_ends[1] - earlier) ** 2) ** 0.5
    high = ((ends[1] - later) ** 2 + (earlier - earlier_ends[0]) ** 2) ** 0.5
    return [later - earlier - low, later - earlier + high]


def _verdict(ci95: list[float] | None) -> str:
    if ci95 is None or ci95[0] <= 0.0 <= ci95[1]:
        return CANNOT_TELL
    return KEEP if ci95[1] < 0.0 else UNDO
