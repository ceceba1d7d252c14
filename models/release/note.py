"""The description of a released version: the text on its page in the registry, for a person who did not train it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from models.scenario import RECORDED
from models.worlds import PAIRS
from traces import instants

if TYPE_CHECKING:
    from models.release.candidate import Candidate
    from models.release.gate import Gate


# When each policy of the registry submits the successor, for a person; one that is not here has its name alone.
WORDS = {
    "reactive": ("submits when the predecessor ends.",),
    "average-wait": ("submits when the mean wait of the last 100 jobs started is as long as the time left.",),
    "start-estimate": ("submits when the wait that running and queued jobs leave is as long as the time left.",),
    "start-expected": (
        "submits when the wait that running and queued jobs leave, at the run times that one may expect, "
        "is as long as the time left.",
    ),
    "forest": ("submits when the wait that a random forest predicts is as long as the time left.",),
    "xgboost": ("submits when the mean wait that boosted trees predict is as long as the time left.",),
    "lightgbm": ("submits when a high quantile of the wait, by boosted trees, is as long as the time left.",),
    "dqn": ("a neural network that learned by double deep Q-learning says when to submit.",),
    "policy-gradient": ("a neural network that learned by advantage actor-critic says when to submit.",),
}


def release_note(candidate: Candidate, gate: Gate) -> str:
    """Which policy a version is, what it was trained on, what it costs, and why it was let through; Markdown."""
    parts = [_policy(candidate), _training(candidate), _cost(candidate), f"**Gate**: {gate.reason}."]
    return "\n\n".join(part for part in parts if part)


def _policy(candidate: Candidate) -> str:
    """Its name, what it does in one sentence, and its knob with the setting and where it could be turned."""
    settings = candidate.artifact.settings
    range_ = f" (declared from {settings[0]:g} to {settings[-1]:g}, least to most overlap)" if len(settings) > 1 else ""
    knob = f"Knob “{candidate.artifact.manifest['knob']}” = {candidate.setting:g}{range_}."
    return " ".join([f"**{candidate.policy}**:", *WORDS.get(candidate.policy, ()), knob])


def _training(candidate: Candidate) -> str:
    note = candidate.artifact.manifest.get("trained_on")
    if not note:
        return ""
    return (
        f"**Trained on** cluster `{note['cluster']}`: {note['pairs']:,} pairs whose outcome was known before "
        f"{note['until_utc']} UTC, {_origin(note)}. Seed {candidate.seed}: of a learner's seeds the one of "
        "median cost."
    )


def _origin(note: Mapping[str, Any]) -> str:
    trace = f"the trace `{note['trace_digest'][:12]}`"
    if PAIRS.get(note["world"]) == RECORDED:
        return f"jobs that {trace} shows cut by their limit, in its recorded cluster (world {note['world']})"
    return f"from replays of {trace} by the scheduler {note['scheduler']} on {note['capacity']} nodes"


def _cost(candidate: Candidate) -> str:
    on = candidate.selected
    if on is None:
        return ""
    spread = "no interval, all within one block of 7 days"
    if on.ci95 is not None:
        spread = f"95 % [{on.ci95[0]:.2f}, {on.ci95[1]:.2f}]"
    figure = f"**Cost**, interruption + overlap, where it was selected: {candidate.cost_h:.2f} h a pair"
    return f"{figure}, {spread}; {on.n} pairs from {instants.text(on.from_s)} to {instants.text(on.until_s)} UTC."
