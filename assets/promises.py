"""What assets promise beside their content: the version of the code that made them, and how old they may become.

Both are set for all assets at one place. Each asset names in its metadata the modules that compute it (`computed_by`);
its code version is the digest of their import closure, the same that is part of the fingerprint of what it keeps, so
that the UI marks as out of date what the next run makes again. What runs assets (assets, pipelines) changes no result
and is in no closure.
"""

from datetime import timedelta

import dagster as dg

from traces.cache.closure import code_digest

COMPUTED_BY, SEPARATOR = "computed_by", ", "  # in an asset's metadata
DIGITS = 12
# The weekly schedule makes these again (it is off until a person turns it on; then a day late is late).
WEEKLY = dg.FreshnessPolicy.time_window(fail_window=timedelta(days=8), warn_window=timedelta(days=7, hours=12))
MADE_WEEKLY = ("provisioning_policy", "report", "report_with_policies")


def computed_by(*modules: str) -> dict[str, str]:
    """Metadata of an asset: the dotted names of the modules that compute it."""
    return {COMPUTED_BY: SEPARATOR.join(modules)}


def promised(spec: dg.AssetSpec) -> dg.AssetSpec:
    """The asset with its code version and, where the schedule makes it every week, its freshness policy."""
    version = code_digest(*spec.metadata[COMPUTED_BY].split(SEPARATOR))[:DIGITS]
    if spec.key.to_user_string() in MADE_WEEKLY:
        return spec.replace_attributes(code_version=version, freshness_policy=WEEKLY)
    return spec.replace_attributes(code_version=version)
