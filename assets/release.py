"""Release: the best policy of the select window becomes the cluster's champion if it passes the gate."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
import polars as pl

from agent.artifact import Artifact
from assets.shared.metadata import materialization, numbers, table
from assets.shared.promises import computed_by
from assets.shared.resources import CLUSTERS, OWNERS, Baton
from features.conventions import BY_HAND, PASSED
from models.provisioning import registry
from models.release.policies import publish
from models.study.support import Refusal, headline_study
from models.tables import RELEASE_LOG
from traces.store import derived
from traces.store.folder import DataFolder

Yielded = dg.MaterializeResult[None] | dg.AssetCheckResult
KEY = "provisioning_policy"
MOST_LOAD_S, MOST_BYTES = 1.0, 64 << 20  # limits for an agent on a login node
DECISIONS = 200  # timed decisions, one observation each
PROMISED = {  # columns of the manifest's promises, as the check shows them
    "risk": pl.Float64,
    "is_kept": pl.Boolean,
    "interrupted_share": pl.Float64,
    "promised_pairs": pl.Int64,
    "overlap_h": pl.Float64,
    "at_once_share": pl.Float64,
    "next_setting": pl.Float64,
    "is_next_promised": pl.Boolean,
}
CHECKS = {
    "gate": "The newest candidate passed the gate or was promoted by hand; otherwise the previous champion stays.",
    "promise": "The champion kept its promise in evaluation: the interrupted share is not above the promised risk.",
    "artifact": f"The champion loads and decides within {MOST_LOAD_S:g} s, and takes at most {MOST_BYTES >> 20} MiB.",
}


@dg.asset(
    deps=["policy_comparison"],
    group_name="release",
    partitions_def=CLUSTERS,
    kinds={"mlflow"},
    owners=OWNERS,
    check_specs=[dg.AssetCheckSpec(name, asset=KEY, description=words) for name, words in CHECKS.items()],
    metadata=computed_by(*publish.RELEASED_BY, but=(registry.__name__,)),
    description="The cluster's registered model and its folder. A new version must be shown to be no worse.",
)
def provisioning_policy(context: dg.AssetExecutionContext, baton: Baton) -> Iterator[Yielded]:
    data, cluster = baton.folder, context.partition_key
    study = headline_study(data, baton.settings(cluster))
    if isinstance(study, Refusal):
        nothing = {"why": dg.MetadataValue.text(study.why)}
        yield materialization(rows=0, why=study.why)
        yield from (dg.AssetCheckResult(check_name=name, passed=True, metadata=nothing) for name in CHECKS)
        return
    log, reused = publish.publish(study)
    columns = ("released_utc", "registered_version", "policy", "verdict", "reason")
    yield materialization(
        rows=len(log),
        reused=reused,
        version=derived.made_from(data, RELEASE_LOG.name, cluster),
        **_decision(data, cluster, log),
        decisions=table(log.reverse().select(columns), length=300),
    )
    yield from checked(data, cluster, log)


def checked(data: DataFolder, cluster: str, log: pl.DataFrame) -> Iterator[dg.AssetCheckResult]:
    """Yield the checks of `CHECKS`: on the newest decision, and on the folder that agents read."""
    from models.tracking import registered

    newest = log.row(-1, named=True)
    figures = ("pairs", "losing_pairs", "blocks", *(f"cost_difference{end}_h" for end in ("", "_low", "_high")))
    yield dg.AssetCheckResult(
        check_name="gate",
        passed=newest["verdict"] in (PASSED, BY_HAND),
        severity=dg.AssetCheckSeverity.WARN,
        metadata={
            "verdict": newest["verdict"],
            "reason": newest["reason"],
            **numbers(**{name: newest[name] for name in figures}),
        },
    )
    folder = registered.folder(data, cluster) / registered.CHAMPION
    yield _promise_check(folder)
    yield _artifact_check(folder)


def _promise_check(folder: Path) -> dg.AssetCheckResult:
    """Check that each promise in the champion's manifest was kept; a promise that was never made counts as kept."""
    try:
        promises = Artifact.load(folder).promises
    except ValueError as error:
        why = {"why": dg.MetadataValue.text(str(error))}
        return dg.AssetCheckResult(check_name="promise", passed=not os.path.lexists(folder), metadata=why)
    rows = [{name: promise.get(name) for name in PROMISED} for promise in promises]
    return dg.AssetCheckResult(
        check_name="promise",
        passed=all(promise.get("is_kept") is not False for promise in promises),
        severity=dg.AssetCheckSeverity.WARN,
        metadata={"promises": table(pl.DataFrame(rows, schema=PROMISED))} if rows else {"why": "it makes no promise"},
    )


def _artifact_check(folder: Path) -> dg.AssetCheckResult:
    """Measure the load time, decision time and size of the champion's folder."""
    began = time.perf_counter()
    try:
        artifact = Artifact.load(folder)
    except ValueError as error:
        return dg.AssetCheckResult(
            check_name="artifact", passed=not os.path.lexists(folder), metadata={"why": str(error)}
        )
    row = np.zeros((1, len(artifact.manifest["features"])), np.float32)
    artifact.decide(row)
    first_s = time.perf_counter() - began
    began = time.perf_counter()
    for _ in range(DECISIONS):
        artifact.decide(row)
    decision_ms = (time.perf_counter() - began) / DECISIONS * 1e3
    size = sum(path.stat().st_size for path in folder.iterdir())
    return dg.AssetCheckResult(
        check_name="artifact",
        passed=first_s <= MOST_LOAD_S and size <= MOST_BYTES,
        severity=dg.AssetCheckSeverity.WARN,
        metadata=numbers(load_and_decide_s=first_s, decision_ms=decision_ms, artifact_bytes=size),
    )


def _decision(data: DataFolder, cluster: str, log: pl.DataFrame) -> dict[str, Any]:
    """Return the newest decision: figures, the reason, and the link to the current champion in the registry."""
    from models.tracking.versions import version_url

    newest = log.row(-1, named=True)
    version = newest["registered_version"]
    link = {} if version is None else {"mlflow": dg.MetadataValue.url(version_url(data, cluster, version))}
    return {
        "decision": newest["reason"],
        "verdict": newest["verdict"],
        **numbers(
            champion_version=version,
            gate_pairs=newest["pairs"],
            gate_blocks=newest["blocks"],
            cost_difference_low_h=newest["cost_difference_low_h"],
            cost_difference_high_h=newest["cost_difference_high_h"],
        ),
        **link,
    }
