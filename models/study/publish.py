"""One cluster's release: the candidate of its comparison is offered to the registry; the decision goes to the log."""

from __future__ import annotations

import polars as pl

from models.fingerprint import code_digest, digest
from models.release import champion
from models.release import gate as release
from models.release import log as release_log
from models.study import fits as study
from models.study.experiment import join
from models.study.fits import Study


def publish(ours: Study) -> tuple[pl.DataFrame, bool]:
    """Release the best policy of the select window if it passes the gate. One process at a time for a data folder.

    Returns the cluster's rows of `release_log`, the newest decision last, and whether that decision had been taken
    before on the same comparison and with the same champion.
    """
    data, cluster = ours.data, ours.scenario.cluster
    policies = study.every_policy()
    made_from = digest(study.comparison_fingerprint(ours, policies), code_digest("models/release/gate.py"))
    with champion.alone(data):
        if release_log.stands(data, cluster, made_from):
            return release_log.read(data, cluster), True
        trained, _ = study.fit(ours, policies, ours.windows.fit)
        select, report = ours.pairs(ours.windows.select), ours.pairs(ours.windows.report)
        candidate = release.choose_candidate(select.known_before(ours.windows.select.until_s), trained)
        context = ours.context(ours.windows.select.until_s)
        decision = release.release(data, candidate, join([select, report]), context=context, made_from=made_from)
        return release_log.add(data, decision.log_row(), made_from), False
