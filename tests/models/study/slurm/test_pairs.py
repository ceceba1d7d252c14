"""Pairs under `--scheduler slurm`: on the cluster of a recorded Slurm's own files, and without any."""

from __future__ import annotations

import gzip
import shutil
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models.provisioning.scenario import Scenario
from models.provisioning.service.play import Service
from models.study.chains import service_rows
from models.study.cluster import Study, open_study
from models.study.pair_tables import pair_fingerprint
from models.study.slurm import files as slurm_files
from models.study.slurm import pairs as slurm_pairs
from models.study.windows import Window
from simulator.cluster import advance
from simulator.slurm.branching import build
from simulator.slurm.inputs.jobs import Loaded
from simulator.slurm.run import run
from simulator.slurm.world import NEVER
from tests.live.figures import RECORDINGS
from traces import clusters, ingest
from traces.errors import InputError
from traces.store import warehouse
from traces.store.folder import DataFolder

RECORDING = RECORDINGS / "22.05/1"
DAYS, EVERY, SHIFT = 9, 3, 2000
TIMES = ("Submit", "Eligible", "Start", "End")


def dump(path: Path) -> Path:
    """A third of the recorded jobs, on each of nine days."""
    header, *lines = gzip.decompress((RECORDING / "sacct.psv.gz").read_bytes()).decode().splitlines()
    names = header.split("|")
    rows = [header]
    for day in range(DAYS):
        for line in lines[::EVERY]:
            row = dict(zip(names, line.split("|"), strict=True))
            base, _, task = row["JobID"].partition("_")
            row["JobIDRaw"] = str(int(row["JobIDRaw"]) + SHIFT * day)
            row["JobID"] = str(int(base) + SHIFT * day) + (f"_{task}" if task else "")
            for name in TIMES:
                if row[name][0].isdigit():
                    row[name] = (datetime.fromisoformat(row[name]) + timedelta(days=day)).isoformat()
            rows.append("|".join(row.values()))
    path.write_text("\n".join(rows) + "\n")
    return path


def ingested(root: Path, toml: str) -> DataFolder:
    data = DataFolder(root)
    data.ensure_writable()
    data.clusters_toml.write_text(toml)
    raw = dump(root / "sacct.psv")
    ingest.ingest([raw], cluster=clusters.resolve(data, cluster="live"), data=data)
    warehouse.build(data)
    return data


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> DataFolder:
    """The recorded cluster with its slurm.conf, QOS and associations."""
    root = tmp_path_factory.mktemp("live")
    for name in ("slurm.conf", "qos.psv", "assoc.psv"):
        shutil.copy(RECORDING / name, root / name)
    return ingested(root, '[live]\nslurm_conf = "slurm.conf"\n')


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> DataFolder:
    """The same jobs of a cluster that declares its number of nodes alone."""
    return ingested(tmp_path_factory.mktemp("bare"), "[live]\nnodes = 16\n")


def study(data: DataFolder, **options: Any) -> Study:
    given: dict[str, Any] = {"pair_nodes": (1, 2), "limit_s": 7200, "scheduler": "slurm"} | options
    return open_study(data, clusters.resolve(data, cluster="live"), **given)


def world(data: DataFolder, scenario: Scenario) -> Loaded:
    return slurm_pairs.world(data, scenario, int(datetime(2026, 12, 6).timestamp()), 1)


def starts_without_pairs(loaded: Loaded) -> np.ndarray:
    assert loaded.submitter is not None
    here = build(loaded.world, loaded.submitter, extra=2, nodes=1, limit_s=7200, threads=1)
    branch = here.branch(8192, 0)
    assert advance(here.clusters[0], branch, NEVER - 1) == 0
    return here.clusters[0].run.out.start_s[: here.first_extra]  # type: ignore[attr-defined, no-any-return]


def test_chains_are_jobs_of_the_declared_slurm(live: DataFolder) -> None:
    """Of the same submitter, where pairs begin: a reactive chain with one handover loses what the pair does."""
    of = study(live, every_s=6 * 3600)
    report = Window(of.usable.from_s, of.usable.from_s + 86400, 600)
    rows = service_rows(of, ["plan"], [], report, None, Service(4 * 3600, 0, 600, (3600, 7200)), 1.0)
    pairs = of.pairs(report)
    by_name = {row["policy"]: row for row in rows}
    assert {(row["n"], row["scheduler"]) for row in rows} == {(len(pairs), "slurm")} and len(pairs) == 8
    at_end = pairs.successor_start_s[pairs.offset[1:] - 1] - pairs.predecessor_end_s
    assert by_name["reactive"]["lost_h_per_day"] == pytest.approx(at_end.mean() / 3600 * 6)
    assert by_name["plan"]["most_queued"] <= 1


def files_of(data: DataFolder) -> slurm_files.SlurmFiles:
    files = slurm_files.declared(data, clusters.resolve(data, cluster="live"))
    assert files is not None
    return files


def test_without_pairs_every_job_starts_as_baton_simulate_says(live: DataFolder) -> None:
    """By the same files, the pairs' user being one that they know."""
    simulated = run(slurm_files.load_slurm_files(files_of(live)).world).start_s
    assert (simulated >= 0).sum() > 3000
    scenario = study(live, user="news").scenario
    np.testing.assert_array_equal(starts_without_pairs(world(live, scenario)), simulated)


def test_a_user_of_their_own_has_one_share_in_the_account_with_most_jobs(live: DataFolder) -> None:
    scenario = study(live).scenario
    assert (scenario.partition, scenario.user, scenario.account) == ("gpu", slurm_pairs.OWN_USER, "physics")
    loaded = world(live, scenario)
    assert loaded.submitter is not None
    tree, row = loaded.world.associations, loaded.submitter.association
    assert (int(tree.shares[row]), loaded.world.qos.names[loaded.submitter.qos]) == (1, "normal")
    assert tree.user[tree.parent[row]] == -1 and not (loaded.world.jobs.user == loaded.submitter.user).any()
    np.testing.assert_array_equal(starts_without_pairs(loaded), run(loaded.world).start_s)


def test_fewer_nodes_are_nodes_out_of_service(live: DataFolder) -> None:
    assert study(live).scenario.capacity == 16
    fewer = world(live, study(live, capacity=14).scenario).world
    assert (fewer.capacity.time_s.tolist(), fewer.capacity.nodes.tolist()) == ([0], [14])
    with pytest.raises(InputError, match=r"--capacity 17: .*slurm.conf has 16 nodes"):
        study(live, capacity=17)


def test_pairs_and_what_is_seen_at_their_decisions(live: DataFolder) -> None:
    """Of the partition's twelve nodes, with the limits of QOS high: four jobs a user, twelve GPUs are three nodes."""
    from features.observe import AT

    conf = files_of(live).conf
    window = Window(int(datetime(2026, 12, 5, 1).timestamp()), int(datetime(2026, 12, 5, 5).timestamp()), 1800)
    pairs = study(live, every_s=3600, pair_nodes=(2,)).pairs(window)
    assert len(pairs) == 4 and (pairs.successor_start_s >= pairs.decision_s).all()
    seen = pairs.observations
    assert (seen[:, AT.capacity_nodes] == 12).all() and (seen[:, AT.usable_nodes] == 12).all()
    assert (seen[:, AT.free_nodes] >= 0).all() and (seen[:, AT.free_nodes] <= 10).all()  # two are the predecessor's
    assert seen[:, AT.held_jobs].max() > 0 and conf.default_partition is not None
    assert (seen[:, AT.headroom_jobs] == 1000).all() and (seen[:, AT.own_pending_jobs] == 0).all()


def test_limits_of_the_user_are_seen(live: DataFolder) -> None:
    """Those of the QOS that the files make the user's default."""
    from features.observe import AT

    dump, text = live.root / "assoc.psv", (live.root / "assoc.psv").read_text()
    window = Window(int(datetime(2026, 12, 5, 1).timestamp()), int(datetime(2026, 12, 5, 2).timestamp()), 1800)
    opened = study(live, every_s=3600, pair_nodes=(2,), user="news")
    before = pair_fingerprint(live, opened.scenario, window)
    dump.write_text(text.replace("high,normal,scavenger|normal|", "high,normal,scavenger|high|"))
    try:
        assert pair_fingerprint(live, opened.scenario, window) != before
        seen = opened.pairs(window).observations
        assert (seen[:, AT.headroom_jobs] <= 3).all() and (seen[:, AT.headroom_nodes] <= 1).all()
        assert (seen[:-1, AT.headroom_wait_h] > 0).all()  # two more nodes of four GPUs are over twelve
    finally:
        dump.write_text(text)
    assert pair_fingerprint(live, opened.scenario, window) == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"partition": "gpus"}, r"slurm.conf has no partition 'gpus' \(known: gpu, short\)"),
        ({"partition": "short", "limit_s": 3 * 3600}, "'short' has MaxTime 2 h; --limit 3h is longer"),
        ({"partition": "short", "pair_nodes": (9,)}, "'short' gives a job at most 8 nodes; --pair-nodes 9 is more"),
        ({"user": "nobody"}, r"--user 'nobody' is neither in the log .* \(known: bin, daemon, games, man, news, root"),
        (
            {"account": "art"},
            r"--account 'art' is neither in the log .* \(known: language, physics, root, science, vision",
        ),
        (
            {"scheduler": "easy", "user": "news"},
            "--user 'news' needs --scheduler slurm, --world plain and a slurm_conf",
        ),
    ],
)
def test_refused_in_one_line(live: DataFolder, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        study(live, **options)
    assert "\n" not in str(error.value)


def test_a_cluster_without_files_has_the_limits_that_its_record_shows(
    bare: DataFolder, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from simulator.recorded import parameters

    known: list[int] = []

    def limited(record: Any, until_s: int) -> parameters.Parameters:
        known.append(until_s)
        return parameters.Parameters(until_s, 16, 3, 5, 20.0, 0.9, 0.5, 300)

    opened = study(bare)
    window = Window(int(datetime(2026, 12, 6).timestamp()), int(datetime(2026, 12, 6, 1).timestamp()))
    monkeypatch.setattr(parameters, "infer_parameters", limited)
    loaded = slurm_pairs.world(bare, opened.scenario, window.from_s, 1)
    assert known == [window.from_s]
    table, jobs = loaded.world.qos, loaded.world.jobs
    assert loaded.world.partitions.qos.tolist() == [0] and table.user_jobs.tolist() == [3, -1, -1]
    assert table.user_tres[:, 2].tolist() == [-1, 5, -1] and jobs.qos.tolist() == [
        1 + (nodes > 5) for nodes in jobs.nodes
    ]
    assert loaded.world.settings.weight_age / loaded.world.settings.max_age_s * 3600 == pytest.approx(20)
    assert (
        "3 running jobs a user, 5 nodes a user; recorded priorities that grow by 20 an hour" in capsys.readouterr().err
    )
    wider = slurm_pairs.world(bare, opened.scenario, window.from_s, 6)
    assert wider.submitter is not None and loaded.submitter is not None
    assert (wider.submitter.qos, loaded.submitter.qos) == (2, 1) and loaded.submitter.site_factor > 0
    np.testing.assert_array_equal(starts_without_pairs(loaded), run(loaded.world).start_s)


def test_options_of_users_need_files(bare: DataFolder) -> None:
    with pytest.raises(InputError, match=r"--account 'physics' needs .* a slurm_conf of cluster 'live'"):
        study(bare, account="physics")


@pytest.mark.parametrize("folder", ["live", "bare"])
def test_what_happens_later_does_not_change_what_was_known(folder: str, request: pytest.FixtureRequest) -> None:
    """The tables of a world known until an instant hold no start, end or submission of later."""
    data: DataFolder = request.getfixturevalue(folder)
    until_s = int(datetime(2026, 12, 5, 4).timestamp())
    scenario = study(data).known_before(until_s).scenario
    jobs = world(data, scenario).world.jobs
    started = jobs.pinned_s != NEVER
    open_ = started & (jobs.run_s == jobs.limit_s)
    assert jobs.submit_s.max() < until_s and jobs.pinned_s[started].max() < until_s and open_.sum() > 0
    ended = started & ~open_
    assert (jobs.pinned_s + jobs.run_s)[ended].max() < until_s
    pending = ~started & (jobs.cancel_s == NEVER)
    assert pending.sum() > 3 and (jobs.run_s == jobs.limit_s)[pending].all()
