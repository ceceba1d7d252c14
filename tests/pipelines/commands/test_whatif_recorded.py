"""`baton whatif` in the cluster as recorded, with its own scheduler and with published ones."""

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


def test_published_schedulers_run_in_the_recorded_machine(baton: Baton, tmp_path: Path) -> None:
    data = cases.in_warehouse(tmp_path / "data")
    data.clusters_toml.write_text("[busy]\nnodes = 6\ngpus_per_node = 4\n", encoding="utf-8")
    asked, out = ("whatif", "--cluster", "busy", "--data", data.root), tmp_path / "jobs.parquet"
    said = baton(*asked, "--schedulers", "recorded,sjf,tiresias", "--jobs-out", out)
    for words in ("in one piece\n  mean wait", "replayed in one piece: trust the figures", "\nsjf\n", "it stops jobs "):
        assert words in said.out
    times = pl.read_parquet(out)
    assert times["scheduler"].unique(maintain_order=True).to_list() == ["recorded", "sjf", "tiresias"]
    result = baton(*asked, "--schedulers", "recorded,sjf", "--json").json
    assert times.height == 3 * result["jobs"] and {row["horizon"] for row in result["results"]} == {"whole"}
    for wrong, why in (
        (("sjf,recorded",), "'recorded' is the base of every comparison: write it first"),
        (("recorded",), "'recorded' alone has nothing to compare"),
        (("recorded,sia",), "'sia' cannot be compared with 'recorded': it gives jobs GPUs by their goodput"),
        (("recorded,sjf", "--change", "nodes=+1"), "--change does not go with 'recorded'"),
        (("recorded,sjf", "--seeds", "2"), "--seeds, --jobs, --profiles and --strict do not go with 'recorded'"),
        (("recorded,sjf", "--horizon", "7-0"), "--horizon does not go with 'recorded'"),
        (("recorded,sjf", "--set", "sjf.speed=1"), "unknown parameter sjf.speed"),
    ):
        refused = baton(*asked, "--schedulers", *wrong)
        assert refused.code == 2 and why in refused.err


CONF = """ClusterName=lab
SelectType=select/linear
GresTypes=gpu
NodeName=n[1-6] CPUs=64 RealMemory=256000 Gres=gpu:8
PartitionName=gpu Nodes=n[1-6] MaxTime=5-00:00:00 State=UP Default=YES
"""


def test_a_declared_slurm_conf_shows_the_diff_and_its_effect(baton: Baton, tmp_path: Path) -> None:
    data = cases.in_warehouse(tmp_path / "data")
    (data.root / "slurm.conf").write_text(CONF, encoding="utf-8")
    data.clusters_toml.write_text('[busy]\nnodes = 6\nslurm_conf = "slurm.conf"\n', encoding="utf-8")
    asked = ("whatif", "--cluster", "busy", "--data", data.root, "--change", "backfill=off", "--change", "nodes=+1")
    text = baton(*asked).out
    assert "+SchedulerType=sched/builtin" in text and "under the declared slurm.conf: mean wait" in text
    off, more = baton(*asked, "--json").json["declared"]
    mean = next(row for row in off["declared"]["results"] if row["figure"] == "mean_wait_s")
    assert mean["difference"] > 0 and off["declared"]["base"]["trust"]["level"] in ("figures", "direction")
    mean = next(row for row in more["declared"]["results"] if row["figure"] == "mean_wait_s")
    assert mean["difference"] < 0 and any(line.startswith("+NodeName=new1 CPUs=64 ") for line in more["slurm_conf"])
    fewer = baton("whatif", "--cluster", "busy", "--data", data.root, "--change", "ask=1.2", "--json").json["declared"][
        0
    ]
    assert fewer["declared"] is None and any(line.startswith("# ask=1.2: ") for line in fewer["slurm_conf"])
    (data.root / "slurm.conf").write_text(CONF.replace("Gres=gpu:8", ""), encoding="utf-8")
    off, _more = baton(*asked, "--json").json["declared"]
    assert off["declared"] is None
    line = "jobs that ran can never start under it: larger than its partition"
    assert any(line in one for one in off["slurm_conf"])
    text = baton("whatif", "--cluster", "busy", "--data", data.root, "--change", "conf.bf_interval=60").out
    assert "no change in the recorded cluster" in text and "+SchedulerParameters=bf_interval=60" in text
    (data.root / "slurm.conf").unlink()
    refused = baton(*asked)
    assert refused.code == 2 and "slurm.conf" in refused.err
    data.clusters_toml.write_text("[busy]\nnodes = 6\n", encoding="utf-8")
    refused = baton("whatif", "--cluster", "busy", "--data", data.root, "--change", "conf.bf_interval=60")
    assert refused.code == 2 and "needs the cluster's slurm.conf" in refused.err
