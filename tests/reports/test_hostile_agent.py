"""Hostile fields of an agent's log and of a release, from the file to the page: there they are text."""

from __future__ import annotations

import json
from itertools import cycle
from pathlib import Path
from typing import Any

import duckdb

from features import deployed
from reports.build import build_report
from tests.agent.lab import lab_of
from tests.reports.test_report_file import ALLOWED_TAGS, _Page
from traces.clusters import ClusterSettings
from traces.ingest import ingest
from traces.store import warehouse
from traces.store.folder import DataFolder

HOSTILE = {  # and what of it the page shows
    "</script><img src=p onerror=alert(9)>": "</script><img src=p onerror=alert(9)>",
    "\x1b]0;owned\x07\x1b[31mred": "\\x1b]0;owned\\x07\\x1b[31mred",
    "abc\u202e\u2066gpj.exe\u2029": "abc\\u202e\\u2066gpj.exe\\u2029",
    "\"'><svg/onload=alert(8)>{{ 7 * 7 }}&lt;": "\"'><svg/onload=alert(8)>{{ 7 * 7 }}&lt;",
    "w" * 20_000: "w" * 10,
}
LAB = ClusterSettings("lab", nodes=4)
CHANGED = {"policy", "reason", "job_name", "version", "why", "text", "ahead"}  # of the log; the others have a form


def reported(folder: Path, lines: list[dict[str, Any]], full: DataFolder) -> str:
    """The page of a cluster with that log, and with a release of which every text is hostile."""
    (folder / "decisions.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    data = DataFolder(folder / "data")
    ingest([folder / "decisions.jsonl"], cluster=LAB, data=data)
    warehouse.build(data)
    with duckdb.connect(str(full.warehouse), read_only=True) as connection:
        releases = connection.sql("SELECT * FROM release_log").pl()
    texts = [name for name, kind in releases.schema.items() if str(kind) == "String" and name not in ("verdict",)]
    changed = {**dict(zip(texts, cycle(HOSTILE), strict=False)), "cluster": "lab"}
    rows = [{**row, **changed} for row in releases.to_dicts()]
    found = {**deployed.compute(data, LAB), "release_log": type(releases)(rows, schema=releases.schema)}
    with duckdb.connect(str(data.warehouse)) as connection:
        for name, table in found.items():
            connection.register("incoming", table.to_arrow())
            connection.execute(f'CREATE OR REPLACE TABLE "{name}" AS SELECT * FROM incoming')
    return build_report(data, out=folder / "report.html").read_text(encoding="utf-8")


def test_what_a_log_or_a_release_says_is_text_on_the_page(tmp_path: Path, full_data: DataFolder) -> None:
    lab = lab_of(tmp_path / "lab", links=2 * len(HOSTILE), setting=0.0)
    lab.extra.update(start_estimate_h=0.4, start_estimate_expected_h=0.1)
    assert lab.run() == 0
    texts = cycle(HOSTILE)
    lines = [dict(line) for line in lab.journal()]
    for line in lines:
        line.update(dict.fromkeys(CHANGED & set(line), next(texts)))
    html = reported(tmp_path, lines, full_data)
    page = _Page(html)
    assert {tag for tag, _ in page.tags} <= ALLOWED_TAGS
    assert [attributes for tag, attributes in page.tags if tag == "script"] == [{}], "the page's own script alone"
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    assert not set(html) & set("\x1b\x07\u202e\u2066\u2029"), "no raw control or direction character"
    shown = "".join(page.words)
    assert all(text in shown for text in HOSTILE.values()) and len(html) < 1_000_000
