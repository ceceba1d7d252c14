"""One cluster's release: the candidate of its comparison is offered to the registry; the decision goes to the log."""

from __future__ import annotations

import polars as pl

from models import registry
from models.protocol import concatenate
from models.release import champion
from models.release import log as release_log
from models.release.candidate import choose_candidate
from models.release.decision import release
from models.study import comparisons, fits
from models.study.cluster import Study
from traces.cache.closure import code_digest
from traces.cache.digests import digest

RELEASED_BY = ("models.release.candidate", "models.release.decision")


def publish(study: Study) -> tuple[pl.DataFrame, bool]:
    """Release the best policy of the select window if it passes the gate. One process at a time for a data folder.

    Returns the cluster's rows of `release_log`, the newest decision last, and whether that decision had been taken
    before on the same comparison and with the same champion.
    """
    data, cluster, windows = study.data, study.scenario.cluster, study.windows
    policies = registry.every_policy()
    fingerprint = comparisons.comparison_fingerprint(study, policies)
    made_from = digest(fingerprint, code_digest(*RELEASED_BY, but=(registry.__name__,)))
    with champion.alone(data):
        if release_log.stands(data, cluster, made_from):
            return release_log.read(data, cluster), True
        trained, _ = fits.fit(study, policies, windows.fit)
        select, report = study.pairs(windows.select), study.pairs(windows.report)
        context = study.context(windows.select.until_s)
        known = select.known_before(windows.select.until_s)
        candidate = choose_candidate(known, trained, context.scenario.pairs)
        pairs = concatenate([select, report])
        decision = release(data, candidate, pairs, context=context, made_from=made_from)
        return release_log.add(data, decision.log_row(), made_from), False
