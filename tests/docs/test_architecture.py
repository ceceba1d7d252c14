"""The page on the architecture says what the code does: its packages, imports and assets are the real ones."""

from __future__ import annotations

import json
import re
import tomllib

from docs import picture
from tests.conftest import REPOSITORY
from tests.docs.pages import arrows, prose, tables

PAGE = REPOSITORY / "docs" / "architecture.md"
SETTINGS = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
CONTRACTS = SETTINGS["tool"]["importlinter"]["contracts"]
PACKAGES = SETTINGS["tool"]["importlinter"]["root_packages"]


def test_the_layers_are_those_that_the_linter_holds() -> None:
    (layers,) = (contract["layers"] for contract in CONTRACTS if contract["name"] == "imports go one way")
    stated = " > ".join(f"({layer})" if "|" in layer else layer for layer in layers)
    assert f"`{stated}`" in prose(PAGE)


def test_the_pictures_are_those_of_the_imports_and_the_assets() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert picture.page(text) == text, "run `make docs`"


def test_every_package_has_its_row() -> None:
    (rows,) = (table for table in tables(PAGE) if "package" in table[0])
    assert [row["package"].strip("`") for row in rows] == list(PACKAGES)


def test_the_flow_names_real_assets_and_reaches_report_and_agent() -> None:
    graph = json.loads((REPOSITORY / "tests" / "golden" / "asset_graph.json").read_text())
    (rows,) = (table for table in tables(PAGE) if "asset" in table[0])
    named = [name for row in rows for name in re.findall(r"`([^`]+)`", row["asset"])]
    assert len(named) > 10 and set(named) <= set(graph), sorted(set(named) - set(graph))
    told_by_example = ("features", "warehouse")
    missing = {name for name, asset in graph.items() if asset["group"] not in told_by_example} - set(named)
    assert not missing, f"say in docs/architecture.md where these assets stand in the flow: {sorted(missing)}"
    assert {graph[name]["group"] for name in named} == {asset["group"] for asset in graph.values()}
    flow = arrows(PAGE, 1)
    ends = {to for _, to in flow} - {start for start, _ in flow}
    assert ends == {"report_with_policies", "agent"}
    assert {start for start, _ in flow} - {to for _, to in flow} == {"logs"}


def test_the_glossary_is_in_order_and_defines_each_term_once() -> None:
    (rows,) = tables(REPOSITORY / "docs" / "glossary.md")
    terms = [row["term"] for row in rows]
    assert terms == sorted(terms, key=str.lower) and len(set(terms)) == len(terms)
    assert all(row["meaning"] for row in rows)
    words = {"wait", "eligible wait", "turnaround", "slowdown", "bounded slowdown", "interruption", "overlap", "world"}
    words |= {"zero-interruption share", "light, medium, heavy load", "pair", "knob, setting", "fragmentation"}
    words |= {"conservative backfill", "EASY backfill", "oracle", "regret", "makespan", "utilization", "gate"}
    assert words <= set(terms), words - set(terms)
