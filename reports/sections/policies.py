"""Section `policies`: the comparison of provisioning policies, chosen settings, loads and release decisions."""

from __future__ import annotations

import json
from typing import Any

import polars as pl

from features.conventions import (
    ALL_SIZES,
    BLOCK_DAYS,
    GATE_LEVEL,
    GATE_SAID,
    LOADS,
    LOADS_IN_WORDS,
    NEVER_CHOSEN,
    NOT_WORSE_H,
    ORACLE,
    REACTIVE,
    UNTRAINED,
    USERS,
)
from reports import drift, figures
from reports import format as fmt
from reports.advice import champion
from reports.hand_over import SizeComparison, comparisons_by_size, sentences, world
from reports.layout import Figure, Section, TableView, columns
from reports.parts.promises import promises
from reports.source import Source
from simulator.metrics import NOTICED_WAIT_S
from traces.counted import counted

_COMPARISON = (
    "policy|policy|name", "setting|setting|number", "n|pairs|count", "interruption_h|interruption, h|number",
    "interruption_ci|95 %|interval", "overlap_h|overlap, h|number", "zero_share|none|percent",
    "cost_w1|cost w 1, h|number", "cost_ci|95 %|interval", "cost_difference_h|to the best rule, h|number",
    "difference_ci|95 %|interval", "regret_h_w1|regret, h|number",
)  # fmt: skip
_DETAIL = (
    "policy|policy|name", "blocks|blocks|count", "seeds|seeds|count", "reduction|less interruption|percent",
    "interruption_p50_h|median interruption, h|number", "p50_ci|95 %|interval", "interruption_p95_h|p95, h|number",
    "p95_ci|95 %|interval", f"within_10min_share|gap ≤ {NOTICED_WAIT_S // 60} min|percent",
    "overlap_ci|overlap, 95 %|interval", "cost_w05|cost w 0.5, h|number",
)  # fmt: skip
_AT_OVERLAP = (
    "policy|policy|name", "at_overlap_025_h|at 0.25 h overlap|number", "at_025_ci|95 %|interval",
    "at_overlap_025_difference_h|to the best rule, h|number", "at_025_difference_ci|95 %|interval",
    "at_overlap_05_h|at 0.5 h|number", "at_05_ci|95 %|interval", "at_overlap_1_h|at 1 h|number",
    "at_1_ci|95 %|interval", "zero_share_at_overlap_05|none at 0.5 h|percent",
)  # fmt: skip
_INTERVALS = {  # column: figure of ci95
    "interruption_ci": "interruption_h", "overlap_ci": "overlap_h", "cost_ci": "cost_w1",
    "p50_ci": "interruption_p50_h", "p95_ci": "interruption_p95_h",
    "at_025_ci": "interruption_h_at_overlap_0.25", "at_05_ci": "interruption_h_at_overlap_0.5",
    "at_1_ci": "interruption_h_at_overlap_1",
}  # fmt: skip


def policies(source: Source) -> Section:
    """Return what users lose and a policy would, the tables and curve of each size of pairs, and the releases."""
    section = Section("policies", "Provisioning policies")
    section.sentences += [sentence for sentence in (champion.why(source),) if sentence]
    parts, curves = comparisons_by_size(source), source.rows("policy_curves")
    if not parts:
        section.missing.append(
            f"No policies can be compared here: {fmt.text(source.remarks.no_policies).rstrip('.')}."
            if source.remarks.no_policies
            else "No policies were compared on this cluster yet: `baton run` trains and compares them."
        )
    else:
        for pairs in parts:
            _pair_size(source, section, pairs, curves)
        if source.remarks.why_plain and not parts[0].is_recorded:
            why = fmt.text(source.remarks.why_plain).rstrip(".")
            section.sentences.append(f"The pairs are generated in the plain world, not taken from the log: {why}.")
        promises(source, section)
    _releases(source, section, is_asked_for=bool(parts))
    return section


def _pair_size(source: Source, section: Section, pairs: SizeComparison, curves: pl.DataFrame) -> None:
    rows = [_with_intervals(row) for row in sorted(pairs.rows, key=lambda row: float(row["cost_w1"]))]
    first = pairs.any_row
    if pairs.size == ALL_SIZES or not pairs.is_recorded:
        section.sentences += sentences(source, pairs)
    seeds = max(int(row["seeds"]) for row in rows)
    ending = source.caption(first["n"], "pairs", seeds, (first["from_utc"], first["to_utc"]))
    few = (
        f" Only {counted(first['blocks'], 'block')} of {BLOCK_DAYS} days: the intervals are indicative."
        * first["indicative"]
    )
    limit = "" if first["limit_h"] is None else f"{first['limit_h']:g}-"
    tag = f"{pairs.size}-{limit}{first['world']}"
    simulated = f"{few} Simulated: {fmt.text(first['scenario'])}. {world(first)}"
    section.tables += _comparison_tables(rows, pairs.what, tag, simulated, ending)
    figure = _curve_figure(source, pairs, curves, ending, tag)
    if figure is None:
        section.missing.append(f"The curves of {pairs.what} are not in the warehouse.")
    else:
        section.figures.append(figure)
    for table in (_chosen_table(rows, pairs.what, ending, tag), _load_table(source, pairs, tag)):
        if table is not None:
            section.tables.append(table)


def _comparison_tables(rows: list[dict[str, Any]], what: str, tag: str, simulated: str, ending: str) -> list[TableView]:
    """Return the tables of what every policy costs, its further figures, and interruption at equal overlap."""
    best = next((row["best_rule"] for row in rows if row["best_rule"] is not None), None)
    rule = f"{fmt.text(best)}, the rule with the least cost on the select window" if best else "none"
    return [
        TableView(
            f"comparison-{tag}",
            f"Policies on {what}",
            "Means per pair at the setting with the least cost (weight 1) on the select window. Cost = interruption + "
            "w x overlap. None: share of pairs without interruption. Regret: cost at w = 1 minus that of the oracle. "
            f"To the best rule: cost at w = 1 minus that of {rule}, on the same pairs. 95 % intervals by moving-block "
            "bootstrap over starts. The oracle knows every start: a bound, not a policy. Untrained: the learner before "
            "training. Users: the actual submissions, for the jobs that users continued."
            f"{simulated} {ending}",
            columns(*_COMPARISON),
            rows,
        ),
        TableView(
            f"detail-{tag}",
            f"More figures on {what}",
            f"The same pairs, settings and intervals. Less interruption: compared with reactive. {ending}",
            columns(*_DETAIL),
            rows,
        ),
        TableView(
            f"overlap-{tag}",
            f"Interruption at equal overlap, {what}",
            "Mean interruption per pair, h, interpolated on each policy's curve at that mean overlap. It describes the "
            f"curve; no setting is selected with it. {ending}",
            columns(*_AT_OVERLAP),
            [row for row in rows if row["policy"] not in NEVER_CHOSEN],  # these have no curve, only one point
        ),
    ]


def _with_intervals(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row with its intervals as [low, high]; ci95 is JSON {figure: [low, high]}."""
    intervals = _json(row["ci95"])

    def interval(figure: str) -> list[float] | None:
        ends = intervals.get(figure)
        return None if not ends or None in ends else [float(end) for end in ends]

    def difference(figure: str) -> list[float] | None:
        ends = [row[f"{figure}_low_h"], row[f"{figure}_high_h"]]
        return None if None in ends else ends

    return {
        **row,
        **{column: interval(figure) for column, figure in _INTERVALS.items()},
        "difference_ci": difference("cost_difference"),
        "at_025_difference_ci": difference("at_overlap_025_difference"),
    }


def _json(text: str | None) -> dict[str, Any]:
    loaded = json.loads(text) if text else {}
    return loaded if isinstance(loaded, dict) else {}


def _curve_figure(source: Source, pairs: SizeComparison, curves: pl.DataFrame, ending: str, tag: str) -> Figure | None:
    """Plot the curve of every policy except the untrained learners, whose curves lie on those of the rules."""
    if not curves.is_empty():
        drawn = [name for name in curves["policy"].unique() if not name.endswith(UNTRAINED)]
        report = (pl.col("window") == "report") & (pl.col("size") == pairs.size) & pl.col("policy").is_in(drawn)
        curves = curves.filter(report)
    if curves.is_empty():
        return None
    lines = {
        str(policy): (rows["overlap_h"].to_numpy(), rows["interruption_h"].to_numpy())
        for (policy,), rows in curves.sort("policy", "overlap_h").group_by("policy", maintain_order=True)
    }
    for row in pairs.rows:
        if row["policy"] in (ORACLE, REACTIVE) and row["policy"] not in lines:
            one = pl.Series([row["overlap_h"]]).to_numpy(), pl.Series([row["interruption_h"]]).to_numpy()
            lines[row["policy"]] = one
    chosen = {
        row["policy"]: (row["overlap_h"], row["interruption_h"])
        for row in pairs.rows
        if row["setting"] is not None and row["policy"] in lines and row["policy"] != ORACLE
    }
    return Figure(
        f"pareto-{tag}",
        f"Interruption against overlap, {pairs.what}",
        "One point per setting on the report window. The ring marks the setting chosen on the select window. Lower and "
        f"further left is better. {ending}",
        figures.pareto(f"{source.slug}-pareto-{tag.replace('.', '-')}", lines, chosen),
        "Mean interruption against mean overlap, one curve per policy and the oracle; the table has the figures.",
    )


def _chosen_table(rows: list[dict[str, Any]], what: str, ending: str, tag: str) -> TableView | None:
    """Return the settings picked on the select window per overlap budget, and their report-window results."""
    picked = [
        {
            "policy": row["policy"],
            "budget": float(budget),
            **(result if isinstance(result, dict) else {"setting": result}),
        }
        for row in rows
        for budget, result in _json(row["chosen"]).items()
        if result is not None
    ]
    if not picked:
        return None
    return TableView(
        f"chosen-{tag}",
        f"Chosen settings, {what}",
        "For each overlap budget: the setting picked on the select window, and its interruption and overlap on the "
        f"report window. {ending}",
        columns(
            "policy|policy|name", "budget|overlap budget, h|number", "setting|setting|number",
            "interruption_h|interruption, h|number", "overlap_h|overlap, h|number",
        ),
        picked,
    )  # fmt: skip


def _load_table(source: Source, pairs: SizeComparison, tag: str) -> TableView | None:
    what, results = pairs.what, source.rows("policy_results")
    loads = results.filter((pl.col("size") == pairs.size) & pl.col("load").is_in(LOADS) & (pl.col("policy") != USERS))
    if loads.is_empty():
        return None
    count = int(loads.filter(pl.col("policy") == loads["policy"][0])["n"].sum())
    window = min(loads["from_utc"].to_list()), max(loads["to_utc"].to_list())
    loads = loads.sort(pl.col("load").replace_strict(LOADS, range(len(LOADS))), "cost_w1")
    return TableView(
        f"loads-{tag}",
        f"By load, {what}",
        f"Load by the gap of reactive submission on the same pair: {LOADS_IN_WORDS}. "
        + source.caption(count, "pairs", max(loads["seeds"].to_list()), window),
        columns(
            "load|load|name", "policy|policy|name", "n|pairs|count", "blocks|blocks|count",
            "interruption_h|interruption, h|number", "overlap_h|overlap, h|number",
            "zero_share|no interruption|percent", "cost_w1|cost w 1, h|number", "cost_ci|95 %|interval",
            "regret_h_w1|regret w 1, h|number", "reduction|less interruption|percent",
        ),
        [_with_intervals(row) for row in loads.to_dicts()],
    )  # fmt: skip


def _releases(source: Source, section: Section, *, is_asked_for: bool) -> None:
    """Add the release decisions, newest first.

    The absence of a decision is reported only for a cluster with a comparison.
    """
    log = source.rows("release_log")
    if log.is_empty():
        if is_asked_for:
            section.missing.append("No release was decided for this cluster.")
        return
    log = log.sort("released_utc", descending=True)
    last = log.to_dicts()[0]
    verdict = GATE_SAID[last["verdict"]]
    version, provisional = last["registered_version"], ", provisionally" if last["provisional"] else ""
    section.sentences.append(
        f"Release: on {fmt.moment(last['released_utc'])} UTC the candidate {fmt.text(last['policy'])} {verdict} "
        f"({fmt.text(last['reason']).rstrip('.')}); "
        + (f"version {version} is champion{provisional}." if version is not None else "there is no champion.")
    )
    if drifted := drift.drift_sentence(source.rows("champion_drift")):
        section.sentences.append(drifted)
    section.tables.append(
        TableView(
            "releases",
            "Release decisions",
            f"The cost difference is candidate minus champion at weight 1, with its paired {100 * GATE_LEVEL:.0f} % "
            f"interval. Not worse: its upper end is at most {NOT_WORSE_H:g} h. "
            f"{source.caption(log.height, 'decisions')}",
            columns(
                "released_utc|decided, UTC|utc", "policy|candidate", "outcome|gate", "reason|reason",
                "pairs|pairs|count", "blocks|blocks|count",
                "cost_difference_low_h|difference, low, h|number", "cost_difference_high_h|high, h|number",
                "registered_version|champion after|count", "candidate_version|candidate|count",
                "champion_version|compared with|count",
            ),
            [{**row, "outcome": _outcome(row)} for row in log.to_dicts()],
        )
    )  # fmt: skip


def _outcome(row: dict[str, Any]) -> str:
    return f"{row['verdict']}, provisional champion" if row["provisional"] else str(row["verdict"])
