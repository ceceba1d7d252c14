"""What a released artifact carries beside the policy: how it came about, and checks of what it must answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from agent.artifact import Artifact
from models.protocol import PairTable
from models.release.candidate import Candidate
from models.release.gate import Gate
from models.scenario import Context

CHECKS = 48  # observations with their answers; half of them submit, where so many do
WEIGHT = 1.0  # of overlap, in the cost that settings are picked by and the gate compares


def promised(
    artifact: Artifact,
    candidate: Candidate,
    judged: Gate,
    context: Context,
    checked_on: PairTable,
    origin: Mapping[str, Any],
) -> Artifact:
    """The artifact with `selected_on` and `release` in its manifest, and with checks from those pairs."""
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
        **origin,
    }
    noted = replace(artifact, manifest={**artifact.manifest, "selected_on": selected, "release": release})
    return noted.with_checks(checked_on.inputs_of(noted)[_checked_rows(noted, checked_on)])


def _checked_rows(artifact: Artifact, pairs: PairTable) -> list[int]:
    """Rows of the table's decisions, evenly spread over those that submit and over those that wait."""
    submit = artifact.decide(pairs.inputs_of(artifact))
    chosen: set[int] = set()
    for rows in (np.flatnonzero(submit), np.flatnonzero(~submit)):
        if len(rows):
            at = np.unique(np.linspace(0, len(rows) - 1, CHECKS // 2).astype(np.int64))
            chosen |= set(rows[at].tolist())
    return sorted(chosen)
