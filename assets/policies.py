"""Policies: every policy of the registry, fitted on what is known before the select window."""

from collections.abc import Sequence
from typing import Any

import dagster as dg
import polars as pl

from assets.shared.metadata import materialization, numbers, table
from assets.shared.promises import computed_by
from assets.shared.resources import CLUSTERS, OWNERS, Baton
from models.study import fits
from models.study.support import Refusal, headline_study
from traces.cache.digests import digest
from traces.store.folder import DataFolder


@dg.asset(
    deps=["pair_tables"],
    group_name="policies",
    partitions_def=CLUSTERS,
    kinds={"pytorch", "mlflow"},
    owners=OWNERS,
    metadata=computed_by(*fits.FITTED_BY),
    description="Every provisioning policy of the registry (learners once per seed); each fit is a run in MLflow.",
)
def trained_policies(context: dg.AssetExecutionContext, baton: Baton) -> dg.MaterializeResult[None]:
    data, cluster = baton.folder, context.partition_key
    study = headline_study(data, baton.settings(cluster))
    if isinstance(study, Refusal):
        return materialization(rows=0, why=study.why)
    policies, window = study.policies, study.windows.fit
    made_from = [fits.fit_fingerprint(study, name, window, study.seeds) for name in policies]
    trained, kept = fits.fit(study, policies, window)
    frame = pl.DataFrame(
        [
            {
                "policy": fit.name,
                "seed": fit.seed,
                "fit_s": fit.wall_s,
                "kept": fit.name in kept,
                "mlflow run": fit.run_id,
            }
            for fit in trained
        ]
    )
    return materialization(
        rows=len(trained),
        reused=len(kept) == frame["policy"].n_unique(),
        version=digest(made_from),
        **numbers(policies=frame["policy"].n_unique(), fit_s=float(frame["fit_s"].sum())),
        **training_link(data, [fit.run_id for fit in trained]),
        fits=table(frame, rows=60),
    )


def training_link(data: DataFolder, run_ids: Sequence[str]) -> dict[str, Any]:
    """Return a link to the MLflow training of the first of these fits; {} if none was tracked."""
    from models.tracking.runs import training_url

    url = training_url(data, run_ids)
    return {} if url is None else {"mlflow": dg.MetadataValue.url(url)}
