"""The description of a released version in the registry, and its model card, for readers who did not train it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agent.artifact import DECIDE_EVERY_S
from models.provisioning.registry import POLICIES, make_policy
from models.provisioning.scenario import RECORDED
from models.provisioning.worlds import PAIRS
from simulator.metrics import NOTICED_WAIT_S
from traces import instants
from traces.counted import counted

if TYPE_CHECKING:
    from agent.artifact import Artifact
    from models.release.policies.candidate import Candidate
    from models.release.policies.gate import GateVerdict


# When each policy of the registry submits the successor, for a person; a policy without an entry has only its name.
WORDS = {
    "reactive": ("submits when the predecessor ends.",),
    "average-wait": ("submits when the mean wait of the last 100 started jobs is as long as the time left.",),
    "start-estimate": ("submits when the wait estimated from running and queued jobs is as long as the time left.",),
    "start-expected": (
        "submits when the wait estimated from running and queued jobs, at their expected run times, "
        "is as long as the time left.",
    ),
    "forest": ("submits when the wait that a random forest predicts is as long as the time left.",),
    "xgboost": ("submits when the mean wait that boosted trees predict is as long as the time left.",),
    "lightgbm": ("submits when a high quantile of the wait, by boosted trees, is as long as the time left.",),
    "fitted-q": ("submits when boosted trees predict that waiting costs more than submitting, by optimal stopping.",),
    "dqn": ("decides when to submit with a neural network trained by double deep Q-learning.",),
    "policy-gradient": ("decides when to submit with a neural network trained by proximal policy optimisation.",),
}


def release_note(candidate: Candidate, released: Artifact, gate: GateVerdict) -> str:
    """Describe a version in Markdown: its policy, training, cost, and the gate's verdict."""
    return "\n\n".join(part for part in _parts(candidate, released, gate) if part)


def model_card(candidate: Candidate, released: Artifact, gate: GateVerdict) -> str:
    """The note with the policy's origin, its requirements and the limits of its use; Markdown.

    released: an artifact with the notes of `models.release.policies.promise`.
    """
    manifest, release = released.manifest, released.manifest["release"]
    heading = f"# {manifest['policy']} for cluster `{release['cluster']}`"
    judged = [_promises(release), _results(release)]
    parts = [heading, *_parts(candidate, released, gate), *judged, _windows(release), _world(release)]
    parts.append(_use(manifest, release))
    return "\n\n".join(part for part in parts if part) + "\n"


def _parts(candidate: Candidate, released: Artifact, gate: GateVerdict) -> list[str]:
    verdict = f"**Gate**, {gate.verdict}: {gate.reason}."
    return [_policy(candidate), _training(candidate, released), _cost(candidate), verdict]


def _promises(release: Mapping[str, Any]) -> str:
    """How the promise of each risk was kept where the candidate was judged, a line each."""
    rows = [_promise(promise) for promise in release.get("promises", [])]
    title = (
        f"**Promises** of an interruption over {NOTICED_WAIT_S // 60} minutes with at most this probability, with the "
        "knob set each week by the outcomes known by then, as kept where the candidate was judged:"
    )
    return "\n".join([title, *rows] if rows else [])


def _promise(promise: Mapping[str, Any]) -> str:
    risk, weeks = f"{promise['risk']:.0%}", f"{promise['promised_weeks']} of {counted(promise['weeks'], 'week')}"
    after = "no setting keeps it, not even submitting at once"
    if promise["is_next_promised"]:
        setting = promise["next_setting"]
        after = "submit at once" if setting is None else f"knob = {setting:g}"
    if promise["interrupted_share"] is None:
        kept = f"no promise: submitting at once interrupts {promise['at_once_share']:.1%}"
    else:
        ends = promise["ci95"]
        spread = "no interval" if ends is None else f"95 % [{ends[0]:.1%}, {ends[1]:.1%}]"
        kept = (
            f"{'kept' if promise['is_kept'] else 'not kept'}, {promise['interrupted_share']:.1%} ({spread}) of "
            f"{counted(promise['promised_pairs'], 'pair')} at {promise['overlap_h']:.2f} h of overlap, promised for "
            f"{weeks}"
        )
    return f"- {risk}: {kept}; next: {after}"


def _results(release: Mapping[str, Any]) -> str:
    """Its results on the report window, and the cost of hiding each group of features."""
    results = release.get("results")
    if not results:
        return ""
    figures = "; ".join(
        f"{words} {results[name]:.2f} h" + ("" if (ends := results["ci95"].get(name)) is None else f" {_ends(ends)}")
        for name, words in (("interruption_h", "interruption"), ("overlap_h", "overlap"), ("cost_h", "cost"))
    )
    hidden = ", ".join(f"{group} {row['difference_h']:+.2f} h" for group, row in results["hidden"].items())
    blocks = f"{counted(results['n'], 'pair')} in {counted(results['blocks'], 'block')} of 7 days"
    return f"**Results** where it was judged, a pair: {figures}; {blocks}. Extra cost if hidden: {hidden}."


def _ends(ends: Sequence[float]) -> str:
    return f"[{ends[0]:.2f}, {ends[1]:.2f}]"


def _windows(release: Mapping[str, Any]) -> str:
    """The three parts of the trace, a line each."""
    rows = [
        f"- {name}: {window['from_utc']} to {window['until_utc']} UTC, pairs `{window['digest'][:12]}`"
        for name, window in release.get("windows", {}).items()
    ]
    return "\n".join(
        ["**Windows** (fitted on, setting picked on, judged on before it was fitted on all):", *rows] if rows else []
    )


def _world(release: Mapping[str, Any]) -> str:
    """The simulated cluster in which the policy was judged, and the error of its waits."""
    error = release.get("world_error")
    if not error:
        return ""
    figures = ", ".join(
        f"{words} {error[name]:.2f}"
        for name, words in (
            ("spearman", "rank correlation"), ("error_over_mean", "mean absolute error over mean wait"),
            ("mean_wait_h", "mean wait, h,"), ("recorded_mean_wait_h", "recorded"),
        )
        if error.get(name) is not None
    )  # fmt: skip
    return (
        f"**World** `{release['world']}`, waits compared with the recorded ones over {counted(error['jobs'], 'job')}: "
        f"{figures}."
    )


def _use(manifest: Mapping[str, Any], release: Mapping[str, Any]) -> str:
    """How an agent must do with it, and what it was never tried on."""
    every = f" every {manifest.get('decide_every_s', DECIDE_EVERY_S)} s"
    return (
        f"**Use**: query it{every} while the predecessor runs, with the "
        f"{counted(len(manifest['features']), 'feature')} of the "
        f"manifest, observation version {manifest.get('observe_version', 'unknown')}; it needs only numpy. "
        f"It was judged on {counted(release['capacity_nodes'], 'node')} of this cluster, not on another cluster, size "
        "or set of rules. It does not handle anything after the submission."
    )


def _policy(candidate: Candidate) -> str:
    """The policy's name, its behaviour in one sentence, and its knob with setting and range."""
    is_rule = candidate.policy in POLICIES and not make_policy(candidate.policy).is_learned
    learned = ("A rule, without learning.",) if is_rule else ()
    settings = candidate.artifact.settings
    range_ = f" (declared from {settings[0]:g} to {settings[-1]:g}, least to most overlap)" if len(settings) > 1 else ""
    knob = f"Knob “{candidate.artifact.manifest['knob']}” = {candidate.setting:g}{range_}."
    return " ".join([f"**{candidate.policy}**:", *WORDS.get(candidate.policy, ()), *learned, knob])


def _training(candidate: Candidate, released: Artifact) -> str:
    note = released.manifest.get("trained_on")
    if not note:
        return ""
    return (
        f"**Trained on** cluster `{note['cluster']}`: {counted(note['pairs'], 'pair')} whose outcome was known before "
        f"{note['until_utc']} UTC, {_origin(note)}. Seed {candidate.seed}: the learner's seed of "
        "median cost."
    )


def _origin(note: Mapping[str, Any]) -> str:
    trace = f"the trace `{note['trace_digest'][:12]}`"
    if PAIRS.get(note["world"]) == RECORDED:
        return f"jobs that {trace} shows cut by their limit, in its recorded cluster (world {note['world']})"
    return f"from replays of {trace} by the scheduler {note['scheduler']} on {counted(note['capacity'], 'node')}"


def _cost(candidate: Candidate) -> str:
    selected = candidate.selected
    if selected is None:
        return ""
    spread = "no interval, all within one block of 7 days"
    if selected.ci95 is not None:
        spread = f"95 % [{selected.ci95[0]:.2f}, {selected.ci95[1]:.2f}]"
    figure = f"**Cost**, interruption + overlap, where it was selected: {candidate.cost_h:.2f} h a pair"
    window = f"from {instants.text(selected.from_s)} to {instants.text(selected.until_s)} UTC"
    return f"{figure}, {spread}; {counted(selected.n, 'pair')} {window}."
