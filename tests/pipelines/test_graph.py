"""The asset graph against a golden file, so that a change of it shows in review.

BATON_GOLDEN=write writes the file anew.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.freshness import TimeWindowFreshnessPolicy

from assets import checks, rules
from pipelines.definitions import build_defs
from traces import schema

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "asset_graph.json"


@pytest.fixture(scope="module")
def defs() -> dg.Definitions:
    return build_defs()


def described(defs: dg.Definitions) -> dict[str, Any]:
    graph: dict[str, dict[str, Any]] = {
        spec.key.to_user_string(): {
            "group": spec.group_name,
            "kinds": sorted(spec.kinds),
            "owners": sorted(spec.owners),
            "partitioned_by": getattr(spec.partitions_def, "name", None),
            "deps": sorted(dep.asset_key.to_user_string() for dep in spec.deps),
            "checks": [],
        }
        for spec in defs.resolve_all_asset_specs()
    }
    for check in (
        *checks.canonical_checks.check_specs,
        *checks.derived_checks.check_specs,
        *checks.policy_checks.check_specs,
    ):
        graph[check.asset_key.to_user_string()]["checks"].append(check.name)
    return graph


def test_graph_is_as_it_was(defs: dg.Definitions) -> None:
    found = described(defs)
    if os.environ.get("BATON_GOLDEN") == "write":
        GOLDEN.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    assert found == json.loads(GOLDEN.read_text())


def test_definitions_load(defs: dg.Definitions) -> None:
    dg.Definitions.validate_loadable(defs)


def test_every_asset_says_what_it_is(defs: dg.Definitions) -> None:
    for spec in defs.resolve_all_asset_specs():
        assert spec.description and len(spec.description) > 20, spec.key
        assert spec.group_name not in (None, "default"), spec.key
        assert spec.kinds and spec.owners, spec.key


def test_every_asset_knows_the_code_that_makes_it(defs: dg.Definitions) -> None:
    versions = {spec.key.to_user_string(): spec.code_version for spec in defs.resolve_all_asset_specs()}
    assert all(versions.values())
    assert versions["queueing_delay"] != versions["warehouse/jobs"] == versions["warehouse/policy_tables"]


def test_what_the_weekly_schedule_makes_says_when_it_is_late(defs: dg.Definitions) -> None:
    late = {
        spec.key.to_user_string(): spec.freshness_policy
        for spec in defs.resolve_all_asset_specs()
        if spec.freshness_policy is not None
    }
    assert set(late) == {"provisioning_policy", "report", "report_with_policies"}
    for policy in late.values():
        assert isinstance(policy, TimeWindowFreshnessPolicy)
        assert policy.fail_window.to_timedelta() > timedelta(weeks=1)


def test_every_table_has_a_check() -> None:
    declared = {table.name for table in (*schema.CANONICAL, *checks.ANALYTICS, *checks.POLICIES)}
    assert {rule.table for rule in (*rules.CANONICAL, *checks.ANALYTICS_RULES, *checks.POLICY_RULES)} == declared


def test_importing_the_definitions_is_light() -> None:
    program = (
        "import sys, pipelines.definitions\n"
        "heavy = ('torch', 'mlflow', 'xgboost', 'lightgbm', 'sklearn', 'matplotlib', 'numba')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
