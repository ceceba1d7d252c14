"""The pictures of the architecture page on houses small enough to draw by hand."""

from __future__ import annotations

import pytest

from docs import picture
from docs.house import Rooms

# `top` imports `low` both through `mid` and by itself; the rooms `mid.in` and `mid.on` import each other.
MODULES = ("top.a", "mid.b", "mid.in.c", "mid.on.e", "low.d")
PACKAGES = ("top", "mid", "mid.in", "mid.on", "low")
HOUSE = Rooms(
    {name: name for name in PACKAGES} | {name: name.rpartition(".")[0] for name in MODULES},
    frozenset({("top.a", "mid.b"), ("top.a", "low.d"), ("mid.b", "mid.in.c"), ("mid.in.c", "mid.b")})
    | {("mid.in.c", "low.d"), ("mid.in.c", "mid.on.e"), ("mid.on.e", "mid.in.c")},
)


def test_an_arrow_that_others_imply_is_left_out() -> None:
    edges = picture.between_packages(HOUSE)
    assert edges == {"top": {"mid", "low"}, "mid": {"low"}, "low": set()}
    assert picture.without_detours(edges) == {("top", "mid"), ("mid", "low")}


def test_arrows_of_a_circle_stay() -> None:
    edges = {"a": {"b", "c"}, "b": {"a", "c"}, "c": {"d"}, "d": set()}
    assert picture.without_detours(edges) == {("a", "b"), ("b", "a"), ("a", "c"), ("b", "c"), ("c", "d")}
    assert picture.without_detours(edges | {"a": {"b", "d"}}) == {
        ("a", "b"),
        ("b", "a"),
        ("a", "d"),
        ("b", "c"),
        ("c", "d"),
    }


def test_packages_are_boxes_and_rooms_that_import_each_other_share_an_arrow() -> None:
    assert picture.rooms_diagram(HOUSE, ["top", "mid", "low"]).splitlines() == [
        "flowchart TD",
        "    top",
        "    subgraph mid",
        '        in_mid["(its own files)"]',
        '        in_mid_in["in"]',
        '        in_mid_on["on"]',
        "        in_mid --> in_mid_in",
        "        in_mid_in <--> in_mid_on",
        "    end",
        "    low",
        "    mid --> low",
        "    top --> mid",
    ]


def test_assets_of_a_group_are_one_box() -> None:
    assets = {
        "raw_file": {"group": "ingest", "deps": []},
        "warehouse/jobs": {"group": "warehouse", "deps": ["raw_file"]},
        "warehouse/nodes": {"group": "warehouse", "deps": ["raw_file"]},
        "new/one": {"group": "release", "deps": ["warehouse/jobs", "raw_file"]},
    }
    assert picture.flow_diagram(assets).splitlines() == [
        "flowchart TD",
        '    logs(["raw logs"])',
        '    agent(["agent"])',
        '    raw_file["raw logs seen<br/>raw_file"]',
        '    warehouse["warehouse<br/>the group warehouse"]',
        '    new_one["new/one"]',
        "    logs --> raw_file",
        "    raw_file --> warehouse",
        "    warehouse --> new_one",
        "    new_one --> agent",
    ]


def test_a_page_without_the_markers_is_refused() -> None:
    with pytest.raises(ValueError, match=r"architecture\.md lacks the lines that begin and end its part `rooms`"):
        picture.page("# Architecture\n")
