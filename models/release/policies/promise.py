"""The notes in a released artifact: its origin, its results where it was judged, and checks.

`release.promises` of the manifest has an entry for each risk. It holds how the promise "interrupted with probability at
most r" was kept on the report window (`models.provisioning.comparison.promises`), at what overlap, and by which setting
it is kept next. `release.results` holds interruption, overlap and cost there with intervals, and the cost of hiding
each group of features. Both are those of the candidate, which did not see the report window; the released artifact is
its refit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from agent.artifact import Artifact
from features.bootstrap import block_count, interval, start_weights
from features.conventions import interruption_h, overlap_h
from features.observe import HIDDEN_TOGETHER
from models.provisioning.comparison.masked import cost_of_hiding
from models.provisioning.comparison.outcomes import stopping_rows
from models.provisioning.comparison.promises import promises_of
from models.provisioning.protocol import PairTable, TrainedPolicy
from models.provisioning.scenario import Context
from models.release.policies.candidate import Candidate
from models.release.policies.gate import GateVerdict

CHECKS = 48  # observations with their answers; half of them submit, if enough do
WEIGHT = 1.0  # of overlap, in the cost that picks settings and that the gate compares


PROMISED = (  # columns of `models.provisioning.comparison.promises` in a manifest
    "risk", "n", "blocks", "weeks", "promised_weeks", "promised_pairs", "interrupted_share", "ci95", "is_kept",
    "interruption_h", "overlap_h", "at_once_share", "next_setting", "is_next_promised",
)  # fmt: skip


def promised(
    artifact: Artifact,
    candidate: Candidate,
    judged: GateVerdict,
    context: Context,
    checked_on: PairTable,
    origin: Mapping[str, Any],
    measured: Mapping[str, Any] | None = None,
) -> Artifact:
    """Add `selected_on` and `release` to the artifact's manifest, and checks from these pairs.

    measured: the result of `measured_on` for the candidate.
    """
    scenario = context.scenario
    selected = {} if candidate.selected is None else asdict(candidate.selected)
    selected |= {"cluster": scenario.cluster, "until_s": context.until_s, "cost_h": candidate.cost_h}
    release = {
        "cluster": scenario.cluster,
        "capacity_nodes": scenario.capacity,
        "scenario": scenario.brief,
        "overlap_weight": WEIGHT,
        "trace_digest": context.trace_digest,
        "code_version": context.code_version,
        "gate": judged.figures(),
        **(measured or {}),
        **origin,
    }
    noted = replace(artifact, manifest={**artifact.manifest, "selected_on": selected, "release": release})
    return noted.with_checks(checked_on.inputs_of(noted)[_checked_rows(noted, checked_on)])


def measured_on(report: PairTable, artifact: Artifact, earlier: PairTable | None, kind: str) -> dict[str, Any]:
    """`promises` and `results` of an artifact at its default setting, as in its manifest; {} without a pair.

    earlier: pairs of the select window, whose outcomes count as they become known. kind: `Scenario.pairs`.
    """
    if not len(report):
        return {}
    rows = promises_of(report, artifact, earlier)
    promises = [{name: row[name] for name in PROMISED} for row in rows]
    return {"promises": promises, "results": {**_figures(report, artifact), "hidden": _hidden(report, artifact, kind)}}


def _figures(report: PairTable, artifact: Artifact) -> dict[str, Any]:
    """Means over all pairs at the default setting, hours, with 95 % intervals by 7-day blocks."""
    gap_h = report.gap_h[stopping_rows(report, artifact.decide(report.inputs_of(artifact)))]
    values = {"interruption_h": interruption_h(gap_h), "overlap_h": overlap_h(gap_h), "cost_h": np.abs(gap_h)}
    starts, ci95 = start_weights(report.submit_s), {}
    if starts is not None:
        ci95 = {name: interval(starts @ one / starts.sum(axis=1)) for name, one in values.items()}
    blocks = block_count(report.submit_s, int(report.submit_s.min()))
    means = {name: float(one.mean()) for name, one in values.items()}
    return {"n": len(report), "blocks": blocks, "setting": artifact.manifest["default_setting"], **means, "ci95": ci95}


def _hidden(report: PairTable, artifact: Artifact, kind: str) -> dict[str, dict[str, Any]]:
    """For each group of features, hidden alone: n, cost with and without it, and their difference, hours a pair.

    Means are over all pairs at the default setting. `ci95` is of the difference, None if all pairs are of one block.
    """
    only = replace(artifact, manifest={**artifact.manifest, "settings": [artifact.manifest["default_setting"]]})
    costs = {}
    for group in HIDDEN_TOGETHER:
        rows = cost_of_hiding(report, [TrainedPolicy("it", 0, only, "", 0.0)], [group], kind=kind, every_size=True)
        costs[group] = {name: rows[0][name] for name in ("n", "cost_w1", "cost_w1_hidden", "difference_h", "ci95")}
    return costs


def _checked_rows(artifact: Artifact, pairs: PairTable) -> list[int]:
    """Rows of the table's decisions, evenly spread over those that submit and over those that wait."""
    submit = artifact.decide(pairs.inputs_of(artifact))
    chosen: set[int] = set()
    for rows in (np.flatnonzero(submit), np.flatnonzero(~submit)):
        if len(rows):
            at = np.unique(np.linspace(0, len(rows) - 1, CHECKS // 2).astype(np.int64))
            chosen |= set(rows[at].tolist())
    return sorted(chosen)
