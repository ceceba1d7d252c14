"""Asset checks: every rule of `assets.rules`, run when the warehouse is built and again with derived tables."""

from collections.abc import Iterable, Iterator, Mapping

import dagster as dg
import polars as pl

from assets import rules, warehouse
from assets.reports import derived_tables, policy_tables
from assets.rules import Rule
from assets.shared.metadata import table
from assets.shared.resources import Baton
from features.catalog import FEATURES
from models.queue_time.tables import TABLES as QUEUE_TIME
from models.tables import (
    CHAMPION_DRIFT,
    POLICY_CURVES,
    POLICY_PROMISES,
    POLICY_RESULTS,
    RELEASE_LOG,
    WHAT_IF,
    WHAT_IF_GROUPS,
    WHAT_IF_SCHEDULERS,
)
from models.what_if.advice.table import TABLES as ADVICE
from simulator.tables import CALIBRATION, SIMULATED_STARTS
from traces import clusters, schema
from traces.store.folder import DataFolder
from traces.store.quoting import sql_text
from traces.store.warehouse import read

SHOWN = 10
ANALYTICS = (
    *(declared for analysis in FEATURES.values() for declared in analysis.TABLES),
    SIMULATED_STARTS,
    WHAT_IF,
    *ADVICE,
    WHAT_IF_SCHEDULERS,
    WHAT_IF_GROUPS,
)
POLICIES = (*CALIBRATION, POLICY_RESULTS, POLICY_CURVES, POLICY_PROMISES, RELEASE_LOG, CHAMPION_DRIFT, *QUEUE_TIME)
NAMES = {declared.name: declared.names for declared in (*schema.CANONICAL, *ANALYTICS, *POLICIES)}
# The asset that writes a derived table, if the asset has another name.
WRITTEN_BY = {
    "simulated_starts": "simulation_replay",
    "what_if": "simulation_what_if",
    "advice": "simulation_advice",
    "advice_curves": "simulation_advice",
    "what_if_schedulers": "simulation_what_if_schedulers",
    "what_if_groups": "simulation_what_if_schedulers",
    "calibration_figures": "simulation_calibration",
    "calibrated_starts": "simulation_calibration",
    "calibration_parameters": "simulation_calibration",
    "policy_results": "policy_comparison",
    "policy_curves": "policy_comparison",
    "policy_promises": "policy_comparison",
    "release_log": "provisioning_policy",
    **dict.fromkeys((declared.name for declared in QUEUE_TIME), "queue_time_model"),
    "queue_time_drift": "queue_time_drift",
}


def _name(rule: Rule) -> str:
    return f"{rule.table}_{rule.name}"


def violations(data: DataFolder, rule: Rule) -> pl.DataFrame:
    """Return the rows that break the rule. Raises InputError if there is no warehouse."""
    return read(data, statement(data, rule))


def statement(data: DataFolder, rule: Rule) -> str:
    """Return the SELECT of the rows that break the rule, with the node counts that clusters declare."""
    declared = {name: settings.nodes for name, settings in clusters.load(data).items() if settings.nodes}
    values = ", ".join(f"({sql_text(name)}, {nodes})" for name, nodes in declared.items()) or "(NULL, NULL)"
    capacities = f"capacities(cluster, capacity) AS (VALUES {values})"
    return rule.sql.replace("WITH ", f"WITH {capacities}, ", 1) if "capacities" in rule.sql else rule.sql


def specs(
    checked: Iterable[Rule], keys: Mapping[str, dg.AssetKey], after: list[dg.AssetKey]
) -> list[dg.AssetCheckSpec]:
    """Return one Dagster check per rule."""
    return [
        dg.AssetCheckSpec(
            name=_name(rule),
            asset=keys[rule.table],
            description=rule.description,
            additional_deps=[key for key in after if key != keys[rule.table]],
        )
        for rule in checked
    ]


def results(
    data: DataFolder, checked: Iterable[Rule], keys: Mapping[str, dg.AssetKey]
) -> Iterator[dg.AssetCheckResult]:
    """Check every rule against the warehouse; a table that no cluster has yet passes.

    A table from an older version that lacks a declared column fails, and the metadata names the column.
    """
    columns = read(data, "SELECT table_name, column_name FROM information_schema.columns")
    present = {str(name): set(part["column_name"]) for (name,), part in columns.group_by("table_name")}
    rules_here = list(checked)
    complete = [rule for rule in rules_here if rule.table in present and set(NAMES[rule.table]) <= present[rule.table]]
    counts = _counts(data, complete)
    for rule in rules_here:
        columns_here = present.get(rule.table)
        missing = [] if columns_here is None else [name for name in NAMES[rule.table] if name not in columns_here]
        broken = counts.get(_name(rule), 0)
        yield dg.AssetCheckResult(
            check_name=_name(rule),
            asset_key=keys[rule.table],
            passed=not broken and not missing,
            severity=dg.AssetCheckSeverity.WARN if rule.only_warns else dg.AssetCheckSeverity.ERROR,
            metadata={
                "violations": broken,
                **({"first": table(violations(data, rule), SHOWN)} if broken else {}),
                **({"missing columns": ", ".join(missing)} if missing else {}),
            },
        )


def _counts(data: DataFolder, checked: list[Rule]) -> dict[str, int]:
    """Count the rows that break each rule, by the name of its check.

    All counts come from one statement, because opening the warehouse costs more than the counts.
    """
    if not checked:
        return {}
    counts = [
        f"SELECT {sql_text(_name(rule))} AS name, count(*) AS broken FROM ({statement(data, rule)})"  # noqa: S608
        for rule in checked
    ]
    return dict(read(data, " UNION ALL ".join(counts)).iter_rows())


CANONICAL_KEYS = {name: warehouse.key(name) for name in schema.TABLES}
ANALYTICS_RULES, POLICY_RULES = rules.of_derived(ANALYTICS), rules.of_derived(POLICIES)
DERIVED_KEYS = {
    declared.name: dg.AssetKey(WRITTEN_BY.get(declared.name, declared.name)) for declared in (*ANALYTICS, *POLICIES)
}


@dg.multi_asset_check(name="canonical_checks", specs=specs(rules.CANONICAL, CANONICAL_KEYS, []), can_subset=True)
def canonical_checks(context: dg.AssetCheckExecutionContext, baton: Baton) -> Iterator[dg.AssetCheckResult]:
    yield from results(baton.folder, _selected(context, rules.CANONICAL), CANONICAL_KEYS)


@dg.multi_asset_check(
    name="derived_checks", specs=specs(ANALYTICS_RULES, DERIVED_KEYS, [derived_tables.key]), can_subset=True
)
def derived_checks(context: dg.AssetCheckExecutionContext, baton: Baton) -> Iterator[dg.AssetCheckResult]:
    yield from results(baton.folder, _selected(context, ANALYTICS_RULES), DERIVED_KEYS)


@dg.multi_asset_check(
    name="policy_checks", specs=specs(POLICY_RULES, DERIVED_KEYS, [policy_tables.key]), can_subset=True
)
def policy_checks(context: dg.AssetCheckExecutionContext, baton: Baton) -> Iterator[dg.AssetCheckResult]:
    yield from results(baton.folder, _selected(context, POLICY_RULES), DERIVED_KEYS)


def _selected(context: dg.AssetCheckExecutionContext, checked: Iterable[Rule]) -> list[Rule]:
    """Return the rules whose checks this run requests; a run may materialize a single table."""
    selected = {key.name for key in context.selected_asset_check_keys}
    return [rule for rule in checked if _name(rule) in selected]
