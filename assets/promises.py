"""What assets promise beside their content: the version of the code that made them, and how old they may become.

Both are set for all assets at one place. Each asset names in its metadata the modules that compute it (`computed_by`);
its code version is the digest of their import closure, the same that is part of the fingerprint of what it keeps, so
that the UI marks as out of date what the next run makes again. What runs assets (assets, pipelines) changes no result
and is in no closure.
"""

from datetime import timedelta

import dagster as dg

from traces.cache.closure import code_digest

COMPUTED_BY, NOT_BY, SEPARATOR = "computed_by", "apart_from", ", "  # in an asset's metadata
DIGITS = 12
# The weekly schedule makes these again; a day late is late.
WEEKLY = dg.FreshnessPolicy.time_window(fail_window=timedelta(days=8), warn_window=timedelta(days=7, hours=12))
MADE_WEEKLY = ("provisioning_policy", "report", "report_with_policies")


def computed_by(*modules: str, but: tuple[str, ...] = ()) -> dict[str, str]:
    """Metadata of an asset: the modules that compute it, by dotted name, and those at which their closure ends."""
    ends = {NOT_BY: SEPARATOR.join(but)} if but else {}
    return {COMPUTED_BY: SEPARATOR.join(modules), **ends}


def promised(spec: dg.AssetSpec) -> dg.AssetSpec:
    """The asset with its code version and, where the schedule makes it every week, its freshness policy."""
    modules, ends = (tuple(filter(None, spec.metadata.get(key, "").split(SEPARATOR))) for key in (COMPUTED_BY, NOT_BY))
    version = code_digest(*modules, but=ends)[:DIGITS]
    if spec.key.to_user_string() in MADE_WEEKLY:
        return spec.replace_attributes(code_version=version, freshness_policy=WEEKLY)
    return spec.replace_attributes(code_version=version)
