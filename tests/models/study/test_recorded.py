"""The calibrated world of a data folder: which jobs are its pairs, when it is the headline, and how far it is off."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from agent.chains.decide import ReleasedPolicy
from features.observe import AT, HIDDEN_TOGETHER
from models.provisioning import registry
from models.provisioning.protocol import NONE
from models.provisioning.scenario import CALIBRATED, PLAIN, RECORDED_WAIT
from models.provisioning.service.names import ALWAYS, HAND_OVER, LONGEST, PLAN, SHORTEST
from models.provisioning.service.play import Service
from models.release.policies.publish import publish
from models.study import fits, inputs
from models.study.chains import chosen_settings, service_rows, timing_artifacts
from models.study.cluster import Study, open_study
from models.study.comparisons import compare_on
from models.study.futures import owners_of
from models.study.support import headline_study, why_not_calibrated
from models.study.windows import Window
from models.study.world_error import world_error
from pipelines.cli import main
from simulator.recorded.parameters import LEAST_FIT_S
from traces import clusters, ingest, instants
from traces.errors import InputError
from traces.generate.logs import generate_slurm
from traces.store import warehouse
from traces.store.folder import DataFolder
from traces.units import DAY_S, HOUR_S

CUT = "cut"  # twelve weeks of a cluster, generated
ODD = {  # the same log with one thing changed, by cluster
    "uncut": ("State", "TIMEOUT", "COMPLETED"),
    "unordered": ("Priority", None, ""),
    "alone": ("User", None, "u1"),
}
DECLARED = "".join(f"[{name}]\nnodes = 16\ntimezone = 'UTC'\n" for name in (CUT, *ODD))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataFolder:
    folder = tmp_path_factory.mktemp("recorded")
    data = DataFolder(folder / "data")
    data.ensure_writable()
    data.clusters_toml.write_text(DECLARED)
    raw = generate_slurm(folder, jobs=None, weeks=12, nodes=16, gpus_per_node=4, seed=3, steps=False, compress=False)
    header, *rows = raw.read_text().splitlines()
    names = header.split("|")
    logs = {CUT: rows}
    for cluster, (column, was, becomes) in ODD.items():
        at = names.index(column)
        cells = [row.split("|") for row in rows if row.count("|") == header.count("|")]
        logs[cluster] = [
            "|".join([*row[:at], becomes, *row[at + 1 :]]) if was in (None, row[at]) else "|".join(row) for row in cells
        ]
    for cluster, lines in logs.items():
        path = folder / f"{cluster}.psv"
        path.write_text("\n".join([header, *lines]) + "\n")
        ingest.ingest([path], cluster=clusters.resolve(data, cluster=cluster), data=data)
    warehouse.build(data)
    return data


def study_of(data: DataFolder, cluster: str) -> Study:
    return open_study(data, clusters.resolve(data, cluster=cluster), world=CALIBRATED)


def test_the_pairs_are_the_jobs_that_the_log_shows_cut(data: DataFolder) -> None:
    study = study_of(data, CUT)
    jobs = warehouse.read(data, "SELECT * FROM jobs WHERE cluster = ? AND start_utc IS NOT NULL", (CUT,))
    window = Window(study.usable.from_s, study.usable.from_s + 14 * DAY_S, 6 * HOUR_S)
    cut = jobs.filter(
        (pl.col("state") == "TIMEOUT")
        & (pl.col("limit_s") >= 12 * HOUR_S)
        & (pl.col("submit_utc").dt.epoch("s") >= window.from_s)
        & (pl.col("submit_utc").dt.epoch("s") < window.until_s)
    ).sort("submit_utc", "job_key")
    pairs = study.pairs(window)
    assert len(pairs) == len(cut) > 20
    assert pairs.submit_s.tolist() == cut["submit_utc"].dt.epoch("s").to_list()
    assert pairs.predecessor_end_s.tolist() == cut["end_utc"].dt.epoch("s").to_list()
    assert pairs.pair_nodes.tolist() == cut["allocated_nodes"].to_list()
    assert pairs.limit_s.tolist() == cut["limit_s"].to_list()
    assert (pairs.successor_start_s > pairs.decision_s).all()
    assert (pairs.observations[pairs.last, AT.remaining_h] == 0).all()
    followed = pairs.user_start_s != NONE
    assert (pairs.user_start_s[followed] >= pairs.predecessor_end_s[followed]).all()
    assert study.pairs(window).digest == pairs.digest  # kept


def test_rules_are_learned_for_four_weeks_before_the_first_pair(data: DataFolder) -> None:
    study = study_of(data, CUT)
    assert study.usable.from_s >= int(study.workload.submit_s.min()) + LEAST_FIT_S
    assert study.windows.fit.from_s == study.usable.from_s


def test_who_goes_on_submits_the_same_again_while_it_runs_or_within_an_hour(tmp_path: Path) -> None:
    """One user's jobs by name. Only `chain` and `early` go on: the others are late, other, or ran beside the first."""
    first = "2026-01-01T00:00:00|2026-01-01T00:00:00|2026-01-01T12:00:30|TIMEOUT"
    second = {
        "chain": ("chain", "2026-01-01T12:59:00|2026-01-01T14:00:00|2026-01-01T15:00:00|COMPLETED", 1),
        "early": ("early", "2026-01-01T06:00:00|2026-01-01T13:00:00|2026-01-01T15:00:00|COMPLETED", 1),
        "late": ("late", "2026-01-01T13:01:00|2026-01-01T14:00:00|2026-01-01T15:00:00|COMPLETED", 1),
        "other": ("another", "2026-01-01T12:30:00|2026-01-01T14:00:00|2026-01-01T15:00:00|COMPLETED", 1),
        "wider": ("wider", "2026-01-01T12:30:00|2026-01-01T14:00:00|2026-01-01T15:00:00|COMPLETED", 2),
        "beside": ("beside", "2026-01-01T12:00:00|2026-01-01T12:00:10|2026-01-01T15:00:00|COMPLETED", 1),
    }
    rows, number = ["JobID|User|JobName|Submit|Start|End|State|NNodes|TimelimitRaw"], 0
    for name, (next_name, times, nodes) in second.items():
        for job_name, when, size in ((name, first, 1), (next_name, times, nodes)):
            *instants, state = when.split("|")
            number += 1
            rows.append("|".join([str(number), "ann", job_name, *instants, state, str(size), "720"]))
    (tmp_path / "log.psv").write_text("\n".join(rows) + "\n")
    folder = DataFolder(tmp_path / "data")
    settings = clusters.resolve(folder, cluster="lab", timezone="UTC", nodes=8)
    ingest.ingest([tmp_path / "log.psv"], cluster=settings, data=folder)
    warehouse.build(folder)
    cut = inputs.cut_by_limit(folder, "lab", 12 * HOUR_S)
    names = warehouse.read(folder, "SELECT job_key, job_name, start_utc FROM jobs", ())
    named = cut.join(names, on="job_key").filter(pl.col("next_job_key").is_not_null())
    assert sorted(named["job_name"].to_list()) == ["chain", "early"]
    assert inputs.cut_by_limit(folder, "lab", 13 * HOUR_S).is_empty()


def test_the_headline_is_the_calibrated_world_where_jobs_were_cut(data: DataFolder) -> None:
    settings = clusters.resolve(data, cluster=CUT)
    assert why_not_calibrated(data, settings) is None
    study = headline_study(data, settings)
    assert isinstance(study, Study) and study.scenario.world == CALIBRATED


def test_without_a_job_cut_by_its_limit_injected_pairs_remain(data: DataFolder) -> None:
    settings = clusters.resolve(data, cluster="uncut")
    why = why_not_calibrated(data, settings)
    assert why is not None and "shows 0 jobs cut by a limit of at least 12 h" in why
    study = headline_study(data, settings)
    assert isinstance(study, Study) and study.scenario.world == PLAIN


@pytest.mark.parametrize("cluster", ["unordered", "alone"])
def test_a_log_without_priorities_and_one_of_a_single_user_have_pairs(data: DataFolder, cluster: str) -> None:
    study = study_of(data, cluster)
    pairs = study.pairs(Window(study.usable.from_s, study.usable.from_s + 7 * DAY_S, 6 * HOUR_S))
    assert len(pairs) > 5 and np.isfinite(pairs.observations).all()
    assert (pairs.successor_start_s > pairs.decision_s).all()


@pytest.mark.parametrize("world", [CALIBRATED, PLAIN, RECORDED_WAIT])
def test_the_error_of_a_world_is_kept(data: DataFolder, world: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from models.study import world_error as module

    study = open_study(data, clusters.resolve(data, cluster=CUT), world=world)
    least = 20 if world == RECORDED_WAIT else 50  # there most jobs of these few users have too few that are like them
    window = Window(study.usable.from_s, study.usable.from_s + 7 * DAY_S)
    figures = world_error(study, window)
    assert figures["jobs"] > least and figures["recorded_mean_wait_h"] > 0 and -1 <= figures["spearman"] <= 1
    with monkeypatch.context() as patch:
        patch.setattr(module, "_forked", lambda *_: pytest.fail("computed again"))
        patch.setattr(module, "_replayed", lambda *_: pytest.fail("computed again"))
        patch.setattr(module, "_drawn", lambda *_: pytest.fail("computed again"))
        assert world_error(study, window) == figures
    empty = world_error(study, Window(window.from_s - 400 * DAY_S, window.from_s - 399 * DAY_S))
    assert empty["jobs"] == 0 and empty["spearman"] is None


def test_chains_begin_where_the_pairs_did(data: DataFolder) -> None:
    """Reactive never overlaps, and the oracle loses and overlaps no more than reactive loses."""
    study = study_of(data, CUT)
    window = Window(study.usable.from_s, study.usable.from_s + 5 * DAY_S, 6 * HOUR_S)
    service = Service(3 * DAY_S, 0, window.decision_s, (12 * HOUR_S,))
    close = replace(study, scenario=replace(study.scenario, every_s=0))
    rows = {row["policy"]: row for row in service_rows(close, [], [], window, None, service, 1.0)}
    assert {row["n"] for row in rows.values()} == {len(study.pairs(window))} and len(study.pairs(window)) > 5
    reactive, oracle = rows["reactive"], rows["oracle"]
    assert reactive["overlap_h_per_day"] == 0 < reactive["lost_h_per_day"] == reactive["cost_h_per_day"]
    assert oracle["cost_h_per_day"] < reactive["cost_h_per_day"]
    empty = Window(window.from_s - 400 * DAY_S, window.from_s - 399 * DAY_S)
    with pytest.raises(InputError, match="no chain begins"):
        service_rows(study, [], [], empty, None, service, 1.0)


def test_agents_play_a_share_of_the_long_jobs(data: DataFolder, capfd: pytest.CaptureFixture[str]) -> None:
    """The first row of a share is reactive; the others' waits are compared with its."""
    until_s = study_of(data, CUT).usable.until_s
    window = ["--from", instants.text(until_s - 10 * DAY_S), "--to", instants.text(until_s)]
    asked = ["evaluate", "--cluster", CUT, "--data", str(data.root), "--world", CALIBRATED, *window, "--chains", "1d"]
    asked += [
        "--policies",
        "two-ahead",
        "--agents",
        "50%,100%",
        "--cap",
        "1",
        "--decide-every",
        "2h",
        "--limits",
        "12h",
    ]
    with pytest.raises(SystemExit) as stopped:
        main([*asked, "--json"])
    assert stopped.value.code == 0
    rows = json.loads(capfd.readouterr().out)["agents"]
    names = ["reactive", "two-ahead", "two-ahead"] * 2
    assert [row["policy"] for row in rows] == names and [row["cap_of_user"] for row in rows] == [None, None, 1] * 2
    half, whole = rows[0], rows[3]
    assert whole["chains"] // 2 == half["chains"] and half["others"]["n"] > whole["others"]["n"]
    for row in rows:
        assert row["unfinished"] == 0 and 0 < row["utilization"] <= 1
    assert half["others"]["change"] == whole["others"]["change"] == 0
    assert whole["queued_links"] < rows[5]["queued_links"] < rows[4]["queued_links"]  # reactive, capped, without a cap
    wait_h = [row["others"]["wait_h"] for row in rows[3:]]
    assert rows[4]["others"]["change"] == pytest.approx(wait_h[1] / wait_h[0] - 1)
    with pytest.raises(SystemExit):
        main(asked)
    text = capfd.readouterr().out
    assert "a share of the long jobs as chains of agents" in text and text.count("two-ahead") == 4
    with pytest.raises(SystemExit) as stopped:
        main([*asked, "--agents", "100%,1%"])
    assert stopped.value.code == 2 and "--agents 1% of them is none" in capfd.readouterr().err
    with pytest.raises(SystemExit) as stopped:
        main([*asked, "--from", "2000-01-01", "--to", "2000-02-01"])
    assert stopped.value.code == 2 and "make no chain of 24 h" in capfd.readouterr().err


def test_chains_of_a_wanted_service(data: DataFolder, capfd: pytest.CaptureFixture[str]) -> None:
    """A row for each policy that is always played, with intervals, and the difference to the best one of timing."""
    until_s = study_of(data, CUT).usable.until_s
    window = ["--from", instants.text(until_s - 10 * DAY_S), "--to", instants.text(until_s)]
    asked = ["evaluate", "--cluster", CUT, "--data", str(data.root), "--world", CALIBRATED, *window, "--chains", "2d"]
    asked += ["--policies", "plan", "--every", "24h", "--decide-every", "2h"]
    study = study_of(data, CUT)
    study = replace(study, scenario=replace(study.scenario, decide_every_s=2 * HOUR_S))
    select = Window(study.windows.select.from_s, until_s - 10 * DAY_S, 2 * HOUR_S)
    settings = chosen_settings(study, timing_artifacts([], []), select, 0.5)
    with pytest.raises(SystemExit) as stopped:
        main([*asked, "--json"])
    assert stopped.value.code == 0
    rows = {row["policy"]: row for row in json.loads(capfd.readouterr().out)["chains"]}
    assert set(rows) == {PLAN, *ALWAYS} and {row["n"] for row in rows.values()} == {6}
    best = rows["reactive"]["difference_to_best_timing"]["policy"]
    beside = rows["two-ahead"]["difference_to_best_timing"]
    assert {name: rows[name]["setting"] for name in settings} == settings and set(settings.values()) != {1.0}
    assert {rows[name]["setting"] for name in (SHORTEST, LONGEST)} == {settings["start-estimate"]}
    assert rows[HAND_OVER]["setting"] == 2.0
    lost = {name: row["lost_h_per_day"] for name, row in rows.items()}
    assert beside["lost_h_per_day"] == pytest.approx(lost["two-ahead"] - lost[best]) and len(beside["ci95"]) == 2
    assert rows[best]["difference_to_best_timing"]["ci95"] == [0.0, 0.0]
    assert lost["oracle"] <= lost["reactive"] == lost["singleton"]
    for row in rows.values():
        low, high = row["ci95"]
        assert low <= row["lost_h_per_day"] <= high and row["node_hours_ratio"] >= 1.0
        assert row["intervals"].keys() >= {"overlap_h_per_day", "restarts_per_day", "undisturbed_days_share"}
    with pytest.raises(SystemExit):
        main(asked)
    text = capfd.readouterr().out
    assert "chains of 2 days of work, a restart costs 10 min, world calibrated: n 6, 2 blocks of 7 days" in text
    assert "least lost + 0.5 x overlap first; quiet days" in text and f"less that of {best}, the best policy" in text


def test_limits_that_no_job_had_are_not_asked_for(data: DataFolder, capfd: pytest.CaptureFixture[str]) -> None:
    until_s = study_of(data, CUT).usable.until_s
    window = ["--from", instants.text(until_s - 10 * DAY_S), "--to", instants.text(until_s)]
    asked = ["evaluate", "--cluster", CUT, "--data", str(data.root), "--world", CALIBRATED, *window, "--chains", "2d"]
    with pytest.raises(SystemExit) as stopped:
        main([*asked, "--policies", "reactive", "--limits", "999h"])
    assert stopped.value.code == 2 and "no limit of 999 h or more is allowed" in capfd.readouterr().err


def test_pairs_that_are_not_of_that_world_are_refused(data: DataFolder, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["train", "--cluster", CUT, "--policies", "reactive", "--data", str(data.root)]
    for pairs, world in (("recorded", PLAIN), ("injected", CALIBRATED), ("some", PLAIN)):
        with pytest.raises(SystemExit) as stopped:
            main([*asked, "--pairs", pairs, "--world", world])
        assert stopped.value.code == 2
        err = capsys.readouterr().err
        assert f"--pairs {pairs} with --world {world}; allowed are --pairs injected with --world plain" in err
    with pytest.raises(InputError, match="unknown world 'planar'"):
        open_study(data, clusters.resolve(data, cluster=CUT), world="planar")


def test_a_policy_fitted_in_one_world_is_judged_in_another(data: DataFolder, capfd: pytest.CaptureFixture[str]) -> None:
    """The rule's fit of the plain world, on the recorded pairs of ten days; without --fitted-in there is none."""
    study = study_of(data, CUT)
    of = ["--cluster", CUT, "--policies", "start-estimate", "--data", str(data.root), "--json"]
    from_s = study.usable.until_s - 10 * DAY_S
    window = ["--from", instants.text(from_s), "--to", instants.text(study.usable.until_s)]
    until = instants.text(from_s - 10 * DAY_S)

    def answer(*arguments: str) -> tuple[int, Any]:
        with pytest.raises(SystemExit) as stopped:
            main(list(arguments))
        code, out = int(stopped.value.code or 0), capfd.readouterr().out
        return code, json.loads(out) if out else None

    assert answer("train", *of, "--until", until, "--pair-nodes", "1")[0] == 0
    judge = ["evaluate", *of, *window, "--pair-nodes", "1", "--world", CALIBRATED]
    assert answer(*judge)[0] == 2
    code, judged = answer(*judge, "--fitted-in", PLAIN)
    assert code == 0 and judged["fitted_in"] == PLAIN
    rows = [row for row in judged["results"] if row["load"] == "all" and row["policy"] == "start-estimate"]
    assert {row["world"] for row in rows} == {CALIBRATED} and {row["pairs"] for row in rows} == {"recorded"}
    (together,) = (row for row in rows if row["size"] == "all")
    assert together["n"] == len(study.pairs(Window(from_s, study.usable.until_s))) > 5
    assert judged["world_error"]["jobs"] > 50


def test_policies_that_look_ahead_are_fitted_and_compared(data: DataFolder, capfd: pytest.CaptureFixture[str]) -> None:
    study = study_of(data, CUT)
    of = ["--cluster", CUT, "--data", str(data.root), "--policies", "simulate-ahead,xgboost-ahead", "--json"]
    from_s = study.usable.until_s - 4 * DAY_S

    def answer(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stopped:
            main(list(arguments))
        out, err = capfd.readouterr()
        return int(stopped.value.code or 0), out, err

    calibrated = [*of, "--world", CALIBRATED]
    code, _, err = answer("train", *of, "--pair-nodes", "1", "--scheduler", "slurm")
    assert code == 2 and "'simulate-ahead' looks at simulated futures" in err
    until = instants.text(study.usable.from_s + 12 * DAY_S)
    assert answer("train", *calibrated, "--until", until, "--seeds", "1")[0] == 0
    window = ["--from", instants.text(from_s), "--to", instants.text(study.usable.until_s)]
    code, out, _ = answer("evaluate", *calibrated, *window)
    compared = {row["policy"] for row in json.loads(out)["results"]}
    assert code == 0 and {"simulate-ahead", "xgboost-ahead", "xgboost-ahead-untrained", "start-estimate"} <= compared
    kept = list((data.artifacts / "pairs" / CUT).glob("*-futures-*.npz"))
    assert len(kept) >= 2
    injected = [*of, "--pair-nodes", "1", "--limit", "6h"]
    assert answer("train", *injected, "--until", until, "--seeds", "1")[0] == 0
    code, out, _ = answer("evaluate", *injected, *window)
    compared = {row["policy"] for row in json.loads(out)["results"]}
    assert code == 0 and {"simulate-ahead", "xgboost-ahead", "start-estimate"} <= compared
    assert len(list((data.artifacts / "pairs" / CUT).glob("*-futures-*.npz"))) > len(kept)
    code, out, _ = answer("evaluate", *calibrated, *window, "--chains", "1d", "--every", "24h")
    assert code == 0
    settings = {row["policy"]: row["setting"] for row in json.loads(out)["chains"]}
    trained, fitted_until_s = fits.last_fit(study, "xgboost-ahead")
    select = Window(fitted_until_s, from_s, study.scenario.decide_every_s)
    chosen = chosen_settings(study, timing_artifacts(["simulate-ahead"], trained), select, 0.5)
    assert {name: settings[name] for name in chosen} == chosen and {"simulate-ahead", "xgboost-ahead"} <= set(chosen)


def test_injected_futures_know_whose_the_jobs_are(data: DataFolder) -> None:
    """By the log, of every job of the replay and of those known at an instant alike; of a user alone all are one's."""
    study = open_study(data, clusters.resolve(data, cluster=CUT), pair_nodes=(1,))
    known = study.known_before(study.usable.from_s + 12 * DAY_S)
    rows = warehouse.read(data, "SELECT job_id_raw, user_name, job_name FROM jobs WHERE cluster = ?", (CUT,)).rows()
    names = {job: (user, name) for job, user, name in rows}
    for one in (study, known):
        who = owners_of(data, one.workload, one.scenario)
        assert len(who.user) == len(who.name) == len(one.workload)
        of_log = [names[job] for job in one.workload.job_id.tolist()]
        for numbers, found in ((who.user, [user for user, _ in of_log]), (who.name, [name for _, name in of_log])):
            pairs = set(zip(numbers.tolist(), found, strict=True))
            assert len(pairs) == len(set(found)) == len(set(numbers.tolist())) > 1
    assert len(known.workload) < len(study.workload)


def test_a_cluster_that_says_so_releases_a_policy_that_looks_ahead(
    data: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = clusters.resolve(data, cluster=CUT)
    assert "simulate-ahead" not in open_study(data, settings, world=CALIBRATED).policies
    monkeypatch.setattr(registry, "every_policy", list)
    ahead = {"simulate-ahead": registry.LOOKING_AHEAD["simulate-ahead"]}
    monkeypatch.setattr(registry, "LOOKING_AHEAD", ahead)
    settings = replace(settings, looks_ahead=True)
    assert open_study(data, settings, pair_nodes=(1,)).policies == [], "no futures of injected pairs"
    study = open_study(data, settings, world=CALIBRATED)
    assert study.policies == ["simulate-ahead"]
    log, reused = publish(study)
    assert not reused and log["policy"][-1] == "simulate-ahead"
    released = ReleasedPolicy(data.artifacts / CUT / "champion")
    assert released.site is not None and released.site.siblings
    assert set(released.artifact.manifest["release"]["results"]["hidden"]) == set(HIDDEN_TOGETHER)
    (champion,), _ = fits.champion(study)
    assert compare_on(study, [champion], study.windows.report, None).results
