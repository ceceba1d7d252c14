"""`baton whatif` without schedulers: the cluster as recorded."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from tests.models.what_if.recorded import cases
from tests.pipelines.conftest import Baton


def test_the_command_prints_the_record_the_base_and_who_waits_more(baton: Baton, tmp_path: Path) -> None:
    data = cases.in_warehouse(tmp_path / "data")
    data.clusters_toml.write_text("[busy]\n", encoding="utf-8")
    asked = ("whatif", "--cluster", "busy", "--data", data.root, "--change", "nodes=-1", "--change", "ask=1.2")
    out = tmp_path / "jobs.parquet"
    text = baton(*asked, "--jobs-out", out).out
    for words in (
        "busy, as recorded: ", "replayed anew every day: trust the figures", "nodes=-1\n", "who waits more (the 95 %",
        "0.0 % of the jobs were held",
    ):  # fmt: skip
        assert words in text
    result = baton(*asked, "--json").json
    assert result["base"]["trust"]["level"] == "figures" and result["base_whole"]["jobs"] == result["jobs"]
    times = pl.read_parquet(out)
    assert times["change"].unique(maintain_order=True).to_list() == ["as it is", "nodes=-1", "ask=1.2"]
    base = times.filter(pl.col("change") == "as it is")
    assert base.height == result["jobs"]
    assert (base["start_s"] - base["submit_s"]).mean() == pytest.approx(result["base"]["replayed"]["mean_wait_s"])
    page = tmp_path / "page.html"
    baton(*asked, "--plots", page)
    html = page.read_text(encoding="utf-8")
    assert html.count("<svg") >= 3 and "nodes=-1" in html and "replayed in one piece" in html
    refused = baton(*asked, "--schedulers", "easy", "--plots", page)
    assert refused.code == 2 and "--plots draws the cluster as recorded" in refused.err
    weekly = baton(*asked, "--horizon", "7-0", "--json").json
    assert weekly["base"]["recorded"] == result["base"]["recorded"]
