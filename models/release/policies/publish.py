"""Publish one cluster's release: offer the candidate of its comparison to the registry, and log the decision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from agent.artifact import Artifact
from features.conventions import RULES
from models.engine.engines import engine_of
from models.provisioning import registry
from models.provisioning.protocol import PairTable, TrainedPolicy
from models.provisioning.registry import make_policy
from models.provisioning.training.train import train
from models.release import champion
from models.release.log import POLICY_DECISIONS
from models.release.policies.candidate import Candidate, choose_candidate
from models.release.policies.decision import ReleaseOffer, release
from models.study import comparisons, fits
from models.study.cluster import Study
from models.study.pair_tables import pair_fingerprint
from models.study.windows import Window
from models.study.world_error import world_error
from traces import instants
from traces.cache.closure import code_digest
from traces.cache.digests import digest
from traces.errors import InputError, WorkError

RELEASED_BY = ("models.release.policies.candidate", "models.release.policies.decision")


def publish(study: Study) -> tuple[pl.DataFrame, bool]:
    """Release the best policy of the select window if it passes the gate. One process at a time for a cluster.

    Returns the cluster's rows of `release_log`, the newest decision last, and whether that decision already existed for
    the same comparison and champion. Raises WorkError if there is a champion that cannot be compared with.
    """
    data, cluster, windows = study.data, study.scenario.cluster, study.windows
    policies = study.policies
    fingerprint = comparisons.comparison_fingerprint(study, policies)
    made_from = digest(fingerprint, code_digest(*RELEASED_BY, but=(registry.__name__,)))
    with champion.alone(data, cluster):
        if POLICY_DECISIONS.is_current(data, cluster, made_from):
            return POLICY_DECISIONS.read(data, cluster), True
        trained, _ = fits.fit(study, policies, windows.fit)
        study = study.seeing([*policies, *_champion(study)])
        select, report = study.pairs(windows.select), study.pairs(windows.report)
        context = study.context(windows.select.until_s)
        known = select.known_before(windows.select.until_s)
        candidate = choose_candidate(known, trained, context.scenario.pairs)
        offer = ReleaseOffer(
            candidate=candidate,
            pairs=report,
            checked_on=known,
            context=context,
            refit=lambda: refitted(study, candidate),
            origin=origin(study),
            made_from=made_from,
            fallback=best_rule(known, trained, candidate, context.scenario.pairs),
            earlier=select,
        )
        decision = release(data, offer)
        return POLICY_DECISIONS.add(data, decision.log_row(), made_from), False


def _champion(study: Study) -> list[str]:
    """Registry name of the cluster's champion, the candidate's opponent; empty without one."""
    try:
        return [fits.champion_policy(study.data, study.scenario.cluster)]
    except (InputError, WorkError):  # no champion, or an unreadable one, which `release` reports
        return []


def best_rule(select: PairTable, trained: Sequence[TrainedPolicy], candidate: Candidate, kind: str) -> Candidate | None:
    """Apply the candidate rule to the policies without learning; None if the candidate is one of them."""
    rules = [one for one in trained if one.name in RULES]
    if candidate.policy in RULES or not rules:
        return None
    return choose_candidate(select, rules, kind)


def refitted(study: Study, candidate: Candidate) -> Artifact:
    """Fit the candidate's recipe on all data known at the end of the report window, at the setting picked.

    A rule without learning does not change. The stored fits of the comparison are not changed.
    """
    from models.tracking.training_runs import MlflowTracker

    if not make_policy(candidate.policy).is_learned:
        return candidate.artifact
    windows = study.windows
    window = Window(windows.fit.from_s, windows.report.until_s, windows.fit.decision_s)
    known = study.seeing([candidate.policy]).known_before(window.until_s)
    (fitted,) = train(
        known.fit_pairs(window),
        [candidate.policy],
        context=known.context(window.until_s),
        seeds=[candidate.seed],
        tracker=MlflowTracker(study.data),
        hyperparameters=study.settings.hyperparameters,
        engine=engine_of(study.data.root),
    )
    return fitted.artifact.with_setting(candidate.setting)


def origin(study: Study) -> dict[str, Any]:
    """The origin of a release for its manifest: the study's windows with digests, its world and that world's error."""
    parts = {"fit": study.windows.fit, "select": study.windows.select, "report": study.windows.report}
    return {
        "world": study.scenario.world,
        "world_error": world_error(study, study.windows.report),
        "windows": {name: _window(study, window) for name, window in parts.items()},
    }


def _window(study: Study, window: Window) -> dict[str, str]:
    return {
        "from_utc": instants.text(window.from_s),
        "until_utc": instants.text(window.until_s),
        "digest": pair_fingerprint(study.data, study.scenario, window),
    }
