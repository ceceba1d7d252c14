"""One cluster's release: the candidate of its comparison is offered to the registry; the decision goes to the log."""

from __future__ import annotations

import polars as pl

from models import release, study, tracking
from models.experiment import join
from models.fingerprint import code_digest, digest
from models.study import Study
from models.tables import RELEASE_LOG, release_log_frame
from traces import store
from traces.errors import InputError


def publish(ours: Study) -> tuple[pl.DataFrame, bool]:
    """Release the best policy of the select window if it passes the gate.

    Returns the cluster's rows of `release_log`, the newest decision last, and whether that decision had been taken
    before on the same comparison and with the same champion.
    """
    data, cluster = ours.data, ours.scenario.cluster
    policies = study.every_policy()
    if store.derived_fingerprint(data, RELEASE_LOG.name, cluster) == _fingerprint(ours, policies):
        return _log(ours), True
    trained, _ = study.fit(ours, policies, ours.windows.fit)
    select, report = ours.pairs(ours.windows.select), ours.pairs(ours.windows.report)
    candidate = release.choose_candidate(select.known_before(ours.windows.select.until_s), trained)
    decision = release.release(
        data, candidate, join([select, report]), context=ours.context(ours.windows.select.until_s)
    )
    log = pl.concat([_log(ours), release_log_frame([decision.log_row()])])
    log = log.unique(["cluster", "released_utc"], keep="last", maintain_order=True)
    store.write_derived(data, RELEASE_LOG, cluster, log, _fingerprint(ours, policies))
    return log, False


def _fingerprint(ours: Study, policies: list[str]) -> str:
    """Of the comparison, the rules, and the champion there is now: a promotion by hand asks for a new decision."""
    champion = tracking.champion(ours.data)
    version = None if champion is None else champion.version
    return digest(study.comparison_fingerprint(ours, policies), code_digest("models/release.py"), version)


def _log(ours: Study) -> pl.DataFrame:
    try:
        return store.read_derived(ours.data, RELEASE_LOG.name, ours.scenario.cluster)
    except InputError:
        return release_log_frame([])
