"""What assets promise beside their content: the version of the code that made them, and how old they may become.

Both are set for all assets at one place. A code version is the digest of the packages that compute an asset's group, so
that the UI marks as out of date what an older version of the program made; comments count, since they are in the files.
"""

from datetime import timedelta

import dagster as dg

from models.fingerprint import code_digest

# Packages whose code an asset of the group is computed by; what runs it (assets, pipelines) changes no result.
CODE = {
    "ingest": ("traces",),
    "warehouse": ("traces",),
    "features": ("traces", "features"),
    "simulation": ("traces", "features", "simulator", "models"),
    "policies": ("traces", "features", "simulator", "agent", "models"),
    "evaluation": ("traces", "features", "simulator", "agent", "models"),
    "release": ("traces", "features", "simulator", "agent", "models"),
    "reports": ("traces", "reports"),
}
DIGITS = 12
# The weekly schedule makes these again (it is off until a person turns it on; then a day late is late).
WEEKLY = dg.FreshnessPolicy.time_window(fail_window=timedelta(days=8), warn_window=timedelta(days=7, hours=12))
MADE_WEEKLY = ("provisioning_policy", "report", "report_with_policies")


def promised(spec: dg.AssetSpec) -> dg.AssetSpec:
    """The asset with its code version and, where the schedule makes it every week, its freshness policy."""
    version = code_digest(*CODE[str(spec.group_name)])[:DIGITS]
    if spec.key.to_user_string() in MADE_WEEKLY:
        return spec.replace_attributes(code_version=version, freshness_policy=WEEKLY)
    return spec.replace_attributes(code_version=version)
