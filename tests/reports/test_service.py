"""The page of `baton evaluate --chains --plots`."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from reports.service import write_service_page
from reports.source import Source
from reports.text.service import format_agents

HOSTILE = '<script>alert(1)</script>"&.swf'


def test_the_page_has_each_policy_and_no_trusted_name(tmp_path: Path) -> None:
    rows = [_row("plan", 0.0, None), _row("reactive", 7.0, [5.0, 9.5])]
    page = tmp_path / "page.html"
    source = cast(Source, SimpleNamespace(cluster=HOSTILE, slug="c1", is_generated=True))
    write_service_page(page, source, rows, "2023-02-01 to 2023-02-21")
    html = page.read_text()
    assert "<script>alert" not in html and "&lt;script&gt;" in html and "generated data" in html
    assert re.findall(r"<h3>(.*?)</h3>", html) == ["Lost hours", "Node hours", "Policies side by side"]
    assert "n 75, 3 blocks of 7 days, intervals only indicative, 1 seed" in html
    lost, cost = re.findall(r"<svg viewBox.*?</svg>", html, re.DOTALL)
    for drawing in (lost, cost):
        assert ">plan<" in drawing and ">reactive<" in drawing and "var(--c-plan)" in drawing
    assert ">5<" in lost and ">0<" in lost and ">0<" not in cost


def test_the_shares_of_agents_are_those_asked_for() -> None:
    others = {"blocks": 1, "indicative": True, "wait_h": 2.0, "n": 9, "change": 0.0, "ci95": None}
    row = _row("plan", 1.0, None) | {"others": others, "share": 0.125, "cap_of_user": None, "cap_share": 0.005}
    row |= {"chains": 3, "utilization": 0.9, "queued_links": 0.2, "most_queued_links": 1.0, "share_of_queue": 0.1}
    line, last = format_agents([row | {"unfinished": 2}]).splitlines()[-2:]
    assert line.split()[:4] == ["12.5%", "plan", "0.5%", "3"]
    assert last == "up to 2 chains of a policy did not do all of the work"
    assert format_agents([row | {"unfinished": 0}]).endswith(line)


def _row(policy: str, lost_h: float, ends: list[float] | None) -> dict[str, Any]:
    return {
        "policy": policy, "lost_h_per_day": lost_h, "ci95": ends, "cost_h_per_day": lost_h, "overlap_h_per_day": 0.0,
        "intervals": {"lost_h_per_day": ends, "node_hours_ratio": None}, "node_hours_ratio": 1.0 + lost_h,
        "restarts_per_day": 1.0, "undisturbed_days_share": 0.5, "world": "calibrated", "wanted_h": 240.0, "n": 75,
        "blocks": 3, "indicative": True, "seeds": 1, "restart_s": 600,
        "difference_to_best_timing": {"policy": "reactive"},
    }  # fmt: skip
