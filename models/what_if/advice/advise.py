"""Advise an administrator: the best changes that a search found, judged on later weeks that it never saw.

`advice_on` reads the log, searches its older half and reports on the newer one. The advice is kept for `verify`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from models.engine.engines import engine_of
from models.what_if.advice.curves import curves
from models.what_if.advice.objectives import Objective, difference_ci95, losers, objective, recorded_error, value_of
from models.what_if.advice.search import NO_MORE_THAN_A_TENTH, Fairness, TriedChanges, pruned, search_changes
from models.what_if.advice.space import choices
from models.what_if.advice.to_do import to_do
from models.what_if.recorded.answer import read_recorded_log
from models.what_if.recorded.changes import TOGETHER, changed_recorded
from models.what_if.recorded.outcomes import RecordedOutcome, base_beside, outcome_of
from models.what_if.recorded.scene import LEAST_WINDOW_S, RecordedScene, follow_window
from models.what_if.trust import CANNOT_TELL, LESS, MORE, SAME, verdict
from traces import instants
from traces.cache.closure import code_digest
from traces.cache.digests import digest
from traces.clusters import ClusterSettings
from traces.counted import counted
from traces.errors import InputError
from traces.files.whole import whole_file
from traces.store import warehouse
from traces.store.folder import DataFolder
from traces.units import DAY_S, WEEK_S

FOLDER = "advice"  # under artifacts
SHOWN = 3  # candidates that are judged on the later weeks
NO_GAIN = {
    CANNOT_TELL: "its effect on the later weeks is within chance or the base's own error",
    MORE: "it is worse than no change on the later weeks",
    SAME: "it changes nothing on the later weeks",
}


@dataclass(frozen=True)
class AdviceQuestion:
    """What to minimise, which changes are allowed, who must not lose, and how long to search."""

    objective: str = "p90-wait"
    may: tuple[str, ...] = ("weights", "backfill", "limits", "qos")
    fair: Fairness = NO_MORE_THAN_A_TENTH
    candidates: int = 200
    budget_s: float = 600.0
    span_s: int = WEEK_S  # replay anew from the record this often
    seed: int = 0


def advice_on(
    data: DataFolder,
    settings: ClusterSettings,
    question: AdviceQuestion,
    window: tuple[int | None, int | None] = (None, None),
) -> dict[str, Any]:
    """Search and judge; return the output of `baton advise --json`, and keep it under artifacts.

    Raises InputError for an unknown objective or area, and for a log of less than two weeks.
    """
    of, engine = objective(question.objective), engine_of(data.root)
    log = read_recorded_log(data, settings)
    from_s, until_s = log.window(window)
    middle_s = from_s + (until_s - from_s) // (2 * DAY_S) * DAY_S
    if middle_s - from_s < LEAST_WINDOW_S:
        raise InputError(
            f"the log from {instants.text(from_s)} to {instants.text(until_s)} is shorter than two weeks: one week is "
            "needed to search and one to judge what was found"
        )
    older = follow_window(log.record, log.about, from_s, middle_s, question.span_s, also_whole=False)
    journal = _journal(data, settings, question, (from_s, middle_s))
    tried = search_changes(
        older, of, choices(older, question.may), question.fair,
        candidates=question.candidates, budget_s=question.budget_s, journal=journal, seed=question.seed, engine=engine,
    )  # fmt: skip
    best = pruned(older, of, tried, question.fair, SHOWN)
    newer = follow_window(log.record, log.about, middle_s, until_s, question.span_s)
    found = judged(newer, of, best, question.fair)
    result = {
        "cluster": settings.name,
        "objective": of.name,
        "minimised": of.words,
        "searched_from_utc": instants.text(from_s),
        "from_utc": instants.text(middle_s),
        "until_utc": instants.text(until_s),
        "may": list(question.may),
        "fair": {
            "dimension": question.fair.dimension or "account, else user",
            "most_longer": question.fair.share,
        },
        "tried": len(tried),
        "said": list(dict.fromkeys([*older.assumptions, *newer.assumptions])),
        **found,
        **_typed(data, settings, of, found, (middle_s, until_s)),
    }
    _keep(data, settings.name, result)
    return result


def _typed(
    data: DataFolder, settings: ClusterSettings, of: Objective, found: dict[str, Any], window: tuple[int, int]
) -> dict[str, Any]:
    """What to type for the recommended candidate, with its figures as a comment; nothing without one."""
    if found["recommended"] is None:
        return {"slurm_conf": [], "commands": [], "declared": None}
    one = next(row for row in found["candidates"] if row["changes"] == found["recommended"])
    low, high = one["ci95"]
    evidence = (
        f"{of.words}: {of.text(one['value'])} in place of {of.text(found['base']['value'])} on weeks that the search "
        f"never saw; 95 % interval of the difference {of.text(low)} to {of.text(high)}"
    )
    return to_do(data, settings, found["recommended"], evidence, window)


def judged(scene: RecordedScene, of: Objective, best: Sequence[TriedChanges], fair: Fairness) -> dict[str, Any]:
    """Judge the best candidates of a search on another scene: `base`, `candidates`, `recommended`, `curves`."""
    bases = {horizon: outcome_of(scene, is_whole=horizon == "whole") for horizon in ("daily", "whole")}
    beside = base_beside(bases["daily"])
    rows = [_judged(scene, of, one, bases, fair, beside["trust"]) for one in best]
    recommended = next((row["changes"] for row in rows if row["why_not"] is None), None)
    return {
        "base": {
            **{name: beside[name] for name in ("jobs", "recorded", "replayed", "spearman", "held_share", "trust")},
            "value": value_of(of, bases["daily"]),
            "error": recorded_error(of, bases["daily"]),
        },
        "candidates": rows,
        "recommended": recommended,
        "curves": _curves(scene, bases["daily"], rows, recommended),
    }


def _curves(
    scene: RecordedScene, base: RecordedOutcome, rows: Sequence[dict[str, Any]], recommended: list[str] | None
) -> dict[str, Any] | None:
    """The `curves` of the recommended candidate, else of the first, with its place; None without any."""
    if not rows:
        return None
    place = next((at for at, row in enumerate(rows) if row["changes"] == recommended), 0)
    changed = outcome_of(changed_recorded(scene, TOGETHER.join(rows[place]["changes"])))
    return {"place": place + 1, **curves(base, changed)}


def _judged(
    scene: RecordedScene,
    of: Objective,
    one: TriedChanges,
    bases: dict[str, RecordedOutcome],
    fair: Fairness,
    trusted: dict[str, str],
) -> dict[str, Any]:
    """Describe one candidate on the later weeks: effect, losers, the share of each change, and whether to make it."""
    changed = changed_recorded(scene, one.changes)
    outcome, whole = outcome_of(changed), outcome_of(changed, is_whole=True)
    base, error = value_of(of, bases["daily"]), recorded_error(of, bases["daily"])
    value, ci95 = value_of(of, outcome), difference_ci95(of, bases["daily"], outcome)
    outcome_verdict = verdict(value - base, ci95, error, is_sampled=True)
    lost = losers(bases["daily"], outcome, *fair)
    in_one_piece = value_of(of, whole) - value_of(of, bases["whole"])
    why_not = None
    if trusted["level"] != "figures":
        why_not = f"the base is too far from the record: {trusted['why']}"
    elif outcome_verdict != LESS:
        why_not = NO_GAIN[outcome_verdict]
    elif lost:
        why_not = f"{counted(len(lost), 'group')} would wait too much longer"
    elif in_one_piece >= 0:
        why_not = "replayed in one piece, the change gains nothing"
    parts = one.changes.split(TOGETHER)
    return {
        "changes": parts,
        "objective": of.name,
        "searched_value": one.value,
        "value": value,
        "difference": value - base,
        "ci95": ci95,
        "verdict": outcome_verdict,
        "whole_difference": in_one_piece,
        "error_share": min(error / abs(value - base), 1.0) if value != base else 1.0,
        "losers": [
            {"name": name, "jobs": jobs, "mean_wait_s": was, "changed_mean_wait_s": now}
            for name, jobs, was, now in lost
        ],
        "parts": [{"change": part, "difference_without": _without(scene, of, parts, part) - base} for part in parts],
        "trust": trusted,
        "why_not": why_not,
    }


def _without(scene: RecordedScene, of: Objective, parts: Sequence[str], part: str) -> float:
    """The objective with all changes but one."""
    rest = TOGETHER.join(one for one in parts if one != part)
    return value_of(of, outcome_of(changed_recorded(scene, rest) if rest else scene))


def _journal(data: DataFolder, settings: ClusterSettings, question: AdviceQuestion, window: tuple[int, int]) -> Path:
    """The file of the search; its name holds the digest of what the search depends on, without its length."""
    asked = {name: value for name, value in asdict(question).items() if name not in ("candidates", "budget_s")}
    made_from = digest(warehouse.made_from(data, settings.name), window, sorted(asked.items()), code_digest(__name__))
    return data.artifacts / FOLDER / settings.name / f"{question.objective}-{made_from[:12]}.journal"


def kept_advice(data: DataFolder, cluster: str) -> dict[str, Any]:
    """Return the newest advice about a cluster. Raises InputError if there is none, or if it cannot be read."""
    path = data.artifacts / FOLDER / cluster / "advice.json"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"there is no advice about cluster {cluster!r}: run `baton advise` for it first") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: {error}; run `baton advise` again") from error
    if not isinstance(found, dict) or "candidates" not in found:
        raise InputError(f"{path}: not an advice; run `baton advise` again")
    return found


def _keep(data: DataFolder, cluster: str, result: dict[str, Any]) -> None:
    path = data.artifacts / FOLDER / cluster / "advice.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as part:
        part.write_text(json.dumps(result, indent=1), encoding="utf-8")
