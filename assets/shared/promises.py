"""Code versions and freshness policies of assets, both set for all assets in one place.

Each asset names in its metadata the modules that compute it (`computed_by`). Its code version is the digest of their
import closure, which is also part of the fingerprint of its results. So the UI marks as outdated exactly what the next
run recomputes. The packages that run assets (assets, pipelines) change no result and are in no closure.
"""

from datetime import timedelta

import dagster as dg

from traces.cache.closure import code_digest

COMPUTED_BY, NOT_BY, SEPARATOR = "computed_by", "apart_from", ", "  # in an asset's metadata
DIGITS = 12
# The weekly schedule remakes these; one day late counts as late.
WEEKLY = dg.FreshnessPolicy.time_window(fail_window=timedelta(days=8), warn_window=timedelta(days=7, hours=12))
MADE_WEEKLY = ("provisioning_policy", "report", "report_with_policies")


def computed_by(*modules: str, but: tuple[str, ...] = ()) -> dict[str, str]:
    """Return metadata of an asset: the modules that compute it, and those where their import closure ends (`but`)."""
    ends = {NOT_BY: SEPARATOR.join(but)} if but else {}
    return {COMPUTED_BY: SEPARATOR.join(modules), **ends}


def promised(spec: dg.AssetSpec) -> dg.AssetSpec:
    """Return the asset with its code version and, if the schedule makes it every week, its freshness policy."""
    modules, ends = (tuple(filter(None, spec.metadata.get(key, "").split(SEPARATOR))) for key in (COMPUTED_BY, NOT_BY))
    version = code_digest(*modules, but=ends)[:DIGITS]
    if spec.key.to_user_string() in MADE_WEEKLY:
        return spec.replace_attributes(code_version=version, freshness_policy=WEEKLY)
    return spec.replace_attributes(code_version=version)
