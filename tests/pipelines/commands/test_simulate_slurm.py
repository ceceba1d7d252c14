"""`baton simulate --scheduler slurm`: by a cluster's files, on a flat pool, and what is refused."""

from __future__ import annotations

import csv
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.pipelines.conftest import SWF, Baton, dump

CONF = """ClusterName=lab
SelectType=select/cons_tres
TopologyPlugin=topology/tree
NodeName=n[1-2] CPUs=8 Gres=gpu:a100:4
PartitionName={partition} Nodes=ALL Default=YES MaxTime=2-0
"""


DAY_ZERO_S = int(datetime(2026, 2, 28, tzinfo=UTC).timestamp())


@pytest.fixture
def lab(baton: Baton, tmp_path: Path) -> Path:
    """A data folder with cluster `lab`: six jobs, a day apart, of a partition `gpu`."""
    data = tmp_path / "data"
    log = dump(tmp_path / "lab.psv")
    assert baton("ingest", log, "--cluster", "lab", "--nodes", 2, "--data", data, "--json").code == 0
    return data


def conf(folder: Path, text: str = CONF, partition: str = "gpu") -> Path:
    path = folder / "slurm.conf"
    path.write_text(text.format(partition=partition), encoding="utf-8")
    return path


def test_a_cluster_by_its_slurm_conf(baton: Baton, lab: Path, tmp_path: Path) -> None:
    """Jobs alone on the cluster start at once: at the next pass after their submission."""
    starts = tmp_path / "starts.csv"
    flags = ("--cluster", "lab", "--data", lab, "--starts", starts, "--json")
    result = baton("simulate", "--scheduler", "slurm", "--slurm-conf", conf(tmp_path), *flags)
    assert result.code == 0
    assert (result.json["notes"]["slurm_jobs"], result.json["jobs"], result.json["unstarted"]) == (6, 6, 0)
    assert result.json["notes"]["unplaceable"] == {} and 0 <= result.json["mean_wait_s"] <= 3
    assert result.json["notes"]["started_by_main"] + result.json["notes"]["started_by_backfill"] == 6
    assert any("TopologyPlugin" in remark for remark in result.json["notes"]["remarks"])
    assert "TopologyPlugin=topology/tree: not modelled" in result.err
    assert len(list(csv.reader(starts.open()))) == 7


def test_jobs_of_a_partition_that_is_not_there_are_listed(baton: Baton, lab: Path, tmp_path: Path) -> None:
    path = conf(tmp_path, partition="other")
    flags = ("--cluster", "lab", "--data", lab, "--json")
    result = baton("simulate", "--scheduler", "slurm", "--slurm-conf", path, *flags)
    assert result.json["notes"]["unplaceable"] == {"unknown partition": 6} and result.json["unstarted"] == 6
    assert "6 jobs can never start: 6 unknown partition" in result.err


def test_a_job_larger_than_the_cluster_and_a_negative_run_time_are_counted(baton: Baton, tmp_path: Path) -> None:
    """Five nodes of two can never start; a record that ends before it begins is set aside when it is read."""
    data, log = tmp_path / "data", dump(tmp_path / "lab.psv")
    rows = log.read_text().splitlines()
    rows[2] = rows[2].replace("|1|billing", "|5|billing").replace("node=1", "node=5")
    rows[4] = rows[4].replace("T03:00:00|7200", "T00:30:00|-1800")
    log.write_text("\n".join(rows) + "\n")
    read = baton("ingest", log, "--cluster", "lab", "--nodes", 8, "--data", data, "--json")
    assert (read.code, read.json["tables"]["rejects"]) == (0, 1)
    flags = ("--slurm-conf", conf(tmp_path), "--cluster", "lab", "--data", data, "--json")
    result = baton("simulate", "--scheduler", "slurm", *flags)
    assert result.code == 0
    assert result.json["notes"]["unplaceable"] == {"larger than its partition": 1}
    assert "1 job can never start: 1 larger than its partition" in result.err
    started = result.json["notes"]["started_by_main"] + result.json["notes"]["started_by_backfill"]
    assert (started, result.json["notes"]["slurm_jobs"]) == (4, 5)


def test_the_settings_of_the_cluster_name_its_files(baton: Baton, lab: Path) -> None:
    conf(lab)
    (lab / "qos.psv").write_text("Name|Priority|MaxTRESPU\nnormal|10|node=1\n", encoding="utf-8")
    (lab / "clusters.toml").write_text('[lab]\nnodes = 2\nslurm_conf = "slurm.conf"\n', encoding="utf-8")
    result = baton("simulate", "--scheduler", "slurm", "--cluster", "lab", "--data", lab, "--json")
    assert result.json["notes"]["slurm_jobs"] == 6
    assert any("AccountingStorageEnforce" in remark for remark in result.json["notes"]["remarks"])


RESERVED = "ReservationName=maint StartTime=2026-03-0{}T12:00:00 EndTime=2026-03-0{}T12:00:00 Nodes={} Flags=MAINT\n"


@pytest.mark.parametrize("beside", [False, True])
def test_jobs_wait_for_the_end_of_a_reservation(baton: Baton, lab: Path, beside: bool) -> None:
    """With limits of two days the job of the third would hold a node that is reserved from the fourth on."""
    path, starts = conf(lab), lab / "starts.csv"
    dumped = lab / ("reservations.txt" if beside else "other.txt")
    dumped.write_text(RESERVED.format(4, 8, "n[1-2]"), encoding="utf-8")
    flags: tuple[object, ...] = ("--slurm-conf", path, "--reservations", dumped)
    if beside:
        (lab / "clusters.toml").write_text('[lab]\nnodes = 2\nslurm_conf = "slurm.conf"\n', encoding="utf-8")
        flags = ()
    given = ("--cluster", "lab", "--data", lab, "--starts", starts, "--json")
    assert baton("simulate", "--scheduler", "slurm", *flags, *given).code == 0
    day = [(int(row["start"]) - DAY_ZERO_S) // 86_400 for row in csv.DictReader(starts.open())]
    assert day == [1, 2, 8, 8, 8, 8]
    dumped.write_text(RESERVED.format(4, 2, "n1"), encoding="utf-8")
    result = baton("simulate", "--scheduler", "slurm", *flags, *given)
    assert result.code == 2 and f"{dumped}:1: reservation 'maint' ends" in result.err


def test_a_trace_runs_on_a_flat_pool(baton: Baton, tmp_path: Path) -> None:
    trace = tmp_path / "tiny.swf"
    trace.write_text(SWF)
    result = baton("simulate", "--trace", trace, "--compare", "easy,slurm", "--json")
    easy, slurm = result.json["schedulers"]
    assert slurm["jobs"] == easy["jobs"] == 3 and slurm["unstarted"] == 0
    assert slurm["makespan_s"] >= easy["makespan_s"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--slurm-conf", "{tmp}/nowhere.conf"), "nowhere.conf: cannot be read: No such file or directory"),
        (("--slurm-conf", "{tmp}/bad.conf"), "bad.conf:6: unknown parameter 'PriorityWeigthAge': did you mean"),
        (("--slurm-conf", "{tmp}/slurm.conf", "--qos", "{tmp}/slurm.conf"), "slurm.conf:1: no column 'Name'"),
        (("--slurm-conf", "{tmp}/slurm.conf", "--associations", "{tmp}/no.psv"), "no.psv: cannot be read"),
        (("--slurm-conf", "{tmp}/slurm.conf", "--estimate", "exact"), "'slurm' plans with time limits only"),
        (("--qos", "{tmp}/slurm.conf"), "--qos needs a slurm.conf: give --slurm-conf"),
    ],
)
def test_refused(baton: Baton, lab: Path, tmp_path: Path, flags: tuple[str, ...], message: str) -> None:
    good = conf(tmp_path)
    (tmp_path / "bad.conf").write_text(good.read_text() + "PriorityWeigthAge=1\n")
    named = [flag.format(tmp=tmp_path) for flag in flags]
    result = baton("simulate", "--scheduler", "slurm", "--cluster", "lab", "--data", lab, *named)
    assert result.code == 2 and result.out == ""
    assert message in result.err and result.err.strip().splitlines()[-1].count(message) == 1


def test_options_that_do_not_go_together(baton: Baton, lab: Path, tmp_path: Path) -> None:
    path = conf(tmp_path)
    result = baton("simulate", "--scheduler", "easy", "--cluster", "lab", "--data", lab, "--slurm-conf", path)
    assert result.code == 2 and "--slurm-conf applies only to --scheduler slurm, not to easy" in result.err
    trace = tmp_path / "tiny.swf"
    trace.write_text(SWF)
    result = baton("simulate", "--scheduler", "slurm", "--trace", trace, "--slurm-conf", path)
    assert result.code == 2 and "--slurm-conf describes the nodes of a --cluster" in result.err
