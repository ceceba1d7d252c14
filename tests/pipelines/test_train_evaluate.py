"""`baton train` and `baton evaluate` on four generated weeks, with policies that are quick to fit."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path

import dagster as dg
import pytest

from agent.artifact import Artifact
from assets.shared.resources import Baton as Resource
from features.observe import FEATURES
from models.provisioning.learning.hyperparameters import TUNABLE
from models.provisioning.registry import READING_DAYS
from models.tracking import store as mlflow_store
from models.tracking import versions as tracking
from pipelines.cli import main
from pipelines.definitions import build_defs
from tests.agent.lab import lab_of
from tests.pipelines.conftest import Baton
from traces.generate.logs import generate_slurm
from traces.store.folder import DataFolder

pytestmark = pytest.mark.slow
WORLD = ("--cluster", "lab", "--capacity", "16", "--pair-nodes", "1", "--limit", "24h")
DAYS = list(READING_DAYS)
UNTIL, FROM, TO = "2026-06-12", "2026-06-15", "2026-06-20"
ALWAYS = {"reactive", "average-wait", "mirage-average", "start-estimate", "start-expected", "oracle"}
FIGURES = {
    *("policy", "world", "load", "pair_nodes", "limit_h", "n", "blocks", "seeds", "interruption_h", "overlap_h"),
    *("pairs", "size", "zero_share_at_overlap_05", "difference_to_best_rule"),
    *("zero_share", "cost_w05", "cost_w1", "regret_h_w1", "reduction", "interruption_h_at_overlap", "chosen", "ci95"),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Generated logs of one cluster, ingested."""
    folder = tmp_path_factory.mktemp("study")
    raw = generate_slurm(folder, jobs=None, weeks=4, nodes=16, gpus_per_node=4, seed=3, steps=False, compress=False)
    with pytest.raises(SystemExit) as stopped:
        main(["ingest", str(raw), "--cluster", "lab", "--data", str(folder / "data")])
    assert not stopped.value.code
    return folder / "data"


def test_train_then_evaluate(baton: Baton, data: Path) -> None:
    train = ("train", *WORLD, "--policies", "reactive,start-estimate,forest", "--until", UNTIL, "--seeds", 2)
    first = baton(*train, "--data", data, "--json").json["policies"]
    assert [row["policy"] for row in first] == ["reactive", "start-estimate", "forest", "forest"]
    assert all(row["run_id"] and row["wall_s"] >= 0 and not row["reused"] for row in first)
    again = baton(*train, "--data", data, "--json").json["policies"]
    assert [row["run_id"] for row in again] == [row["run_id"] for row in first]
    assert all(row["reused"] for row in again)

    asked = ("evaluate", *WORLD, "--policies", "all,forest", "--from", FROM, "--to", TO, "--data", data, "--json")
    missing = baton(*asked)
    assert missing.code == 2 and "average-wait" in missing.err and "baton train" in missing.err
    compare = ("evaluate", *WORLD, "--policies", "reactive,start-estimate,forest", "--from", FROM, "--to", TO)
    answer = baton(*compare, "--hidden", "recent,held", "--data", data, "--json").json
    assert [row["policy"] for row in answer["hidden"]] == ["reactive", "start-estimate", "forest"]
    by_recent = {row["policy"]: row["difference_h"] for row in answer["hidden"]}
    assert by_recent["reactive"] == by_recent["start-estimate"] == 0 != by_recent["forest"]
    rows = [row for row in answer["results"] if row["load"] == "all"]
    assert {row["policy"] for row in rows} == {*ALWAYS, "forest", "forest-untrained"}
    assert answer["is_development_window"] is False
    assert answer["world_error"]["jobs"] > 100 and -1 <= answer["world_error"]["spearman"] <= 1
    assert {row["difference_to_best_rule"]["rule"] for row in rows} <= {*ALWAYS, "forest-untrained"} - {"oracle"}
    for row in rows:
        assert set(row) >= FIGURES
        assert row["n"] == 5 * 6 and row["pair_nodes"] == 1 and row["limit_h"] == 24 and row["size"] == "1"
        assert row["cost_w1"] == pytest.approx(row["interruption_h"] + row["overlap_h"])
        assert row["regret_h_w1"] >= 0
    (reactive,) = (row for row in rows if row["policy"] == "reactive")
    assert reactive["overlap_h"] == 0 and reactive["reduction"] in (0, None)
    other = baton(*compare, "--limit", "30h", "--data", data)
    assert (
        other.code == 2
        and "; it is trained for lab: mirage on 16 nodes, world plain, 1-node pairs of 24 h" in other.err
    )
    half = baton(*compare, "--every", "8h", "--data", data, "--json").json["results"]
    assert {row["n"] for row in half if row["load"] == "all"} == {15}
    promised = [row for row in answer["promises"] if row["policy"] == "forest"]
    assert [row["risk"] for row in promised] == [0.05, 0.1, 0.2] and {row["n"] for row in promised} == {30}
    assert all(row["weeks"] == 1 and row["seeds"] == 2 and row["weekly"][0]["known"] > 0 for row in promised)
    assert answer["fitted_on"] == "lab"
    text = baton(*compare, "--data", data).out
    assert "reactive" in text and "world compared with the record" in text
    assert "share of pairs interrupted for over 10 minutes, promised and observed" in text


def test_mirages_six_methods_are_compared_and_not_released(baton: Baton, data: Path) -> None:
    small = {"epochs": 1, "expert_epochs": 1, "head_epochs": 1, "width": 8, "inner": 8, "experts": 2, "trees": 2}
    lines = []
    for name in DAYS:
        lines += [f"[lab.hyperparameters.{name}]", *(f"{one} = {small[one]}" for one in TUNABLE[name] if one in small)]
    (data / "clusters.toml").write_text("\n".join(lines))
    policies = ",".join(["reactive", *DAYS])
    train = ("train", *WORLD, "--policies", policies, "--until", UNTIL, "--seeds", 1, "--data", data)
    first = baton(*train, "--json").json["policies"]
    assert [(row["policy"], row["is_releasable"]) for row in first] == [
        ("reactive", True),
        *((name, False) for name in DAYS),
    ]
    kept = sorted(path.name[:5] for path in (data / "artifacts" / "checkpoints" / "lab").glob("*.npz"))
    assert kept == ["mixtu", "trans"], "a foundation is trained once for its two methods"
    reactive, *others = baton(*train).out.splitlines()
    assert all(line.endswith("reused from an earlier run, compared, not released") for line in others)
    assert "compared" not in reactive
    asked = ("evaluate", *WORLD, "--policies", policies, "--from", FROM, "--to", TO, "--data", data)
    rows = [row for row in baton(*asked, "--json").json["results"] if row["load"] == "all"]
    assert {row["policy"] for row in rows} == {*ALWAYS, *DAYS, *(f"{name}-untrained" for name in DAYS)}
    assert len({row["n"] for row in rows}) == 1, "all on the same pairs"
    text = baton(*asked).out
    assert f"\ncompared, not released: {', '.join(DAYS)}\n" in text
    assert "1-node pairs of 24 h by load, which is what reactive loses" in text
    refused = baton("train", *WORLD, "--policies", policies, "--scheduler", "slurm", "--data", data)
    assert refused.code == 2 and "not taken under --scheduler slurm: give one of fifo, easy" in refused.err
    damaged = sorted((data / "artifacts" / "pairs" / "lab").glob("*-snapshots-*.npz"))[0]
    content = damaged.read_bytes()
    damaged.write_bytes(content[:100])
    assert baton(*train[:-3], 2, "--data", data).code == 0
    assert damaged.read_bytes() == content


def test_the_agent_decides_as_often_as_train_was_told(baton: Baton, data: Path, tmp_path: Path) -> None:
    """`--decide-every` changes the pairs, the artifact, and the decisions of the agent that runs it."""
    train = ("train", *WORLD, "--policies", "reactive", "--until", UNTIL, "--data", data, "--json")
    minutes: dict[str, list[int]] = {}
    for every in ("10m", "5m"):
        trained = baton(*train, "--decide-every", every)
        assert ("every 5 min" in trained.json["scenario"]) == (every == "5m")
        made = (data / "artifacts" / "policies").rglob("reactive/*/manifest.json")
        seconds = {path: Artifact.load(path.parent).decide_every_s for path in made}
        manifest = next(path for path, found in seconds.items() if found == int(every[:-1]) * 60)
        lab = lab_of(tmp_path / every, links=2, artifact=manifest.parent)
        lab.extra = dict.fromkeys(set(FEATURES) - {"remaining_h"}, 0.0)
        lab.run()
        times = [one["time_s"] for one in lab.journal("decision")]
        minutes[every] = [round((later - earlier) / 60) for earlier, later in pairwise(times)]
    for every, steps in minutes.items():  # the agent looks once a minute
        assert all(int(every[:-1]) - 1 <= step <= int(every[:-1]) for step in steps), minutes
    assert len(minutes["5m"]) >= 2 * len(minutes["10m"]) > 2

    compare = ("evaluate", *WORLD, "--policies", "reactive", "--from", FROM, "--to", TO, "--data", data, "--json")
    results = {every: baton(*compare, "--decide-every", every).json["results"] for every in minutes}
    oracle = {every: next(row for row in rows if row["policy"] == "oracle") for every, rows in results.items()}
    assert oracle["5m"]["cost_w1"] <= oracle["10m"]["cost_w1"]  # twice the instants to choose among
    too_often = baton(*train, "--decide-every", "10s")
    assert too_often.code == 2 and "decide every 1 min to 6 h" in too_often.err


def test_policies_of_one_cluster_are_judged_on_another(baton: Baton, data: Path) -> None:
    """The twin has the same raw log, other declared nodes and pairs of other sizes; its own select window picks."""
    parts = "fit_until = 2026-06-08\nselect_until = 2026-06-14\nreport_until = 2026-06-21\n"
    declared = f"[lab]\nnodes = 16\npair_nodes = [1]\n[twin]\nnodes = 18\npair_nodes = [2, 3]\n{parts}"
    (data / "clusters.toml").write_text(declared)
    try:
        (raw,) = data.parent.glob("*.psv*")
        assert baton("ingest", raw, "--cluster", "twin", "--data", data).code == 0
        trained = ("train", "--cluster", "lab", "--limit", "24h", "--policies", "forest", "--until", UNTIL)
        assert baton(*trained, "--seeds", 1, "--data", data).code == 0
        judged = ("evaluate", "--cluster", "twin", "--limit", "24h", "--policies", "forest", "--from", FROM, "--to", TO)
        answer = baton(*judged, "--fitted-on", "lab", "--data", data, "--json").json
        assert answer["fitted_on"] == "lab" and {row["cluster"] for row in answer["results"]} == {"twin"}
        forest = [row for row in answer["results"] if row["policy"] == "forest" and row["load"] == "all"]
        assert [(row["pair_nodes"], row["limit_h"]) for row in forest] == [(2, 24), (3, 24)]
        assert all(row["chosen"] is not None for row in forest)
        own = baton(*judged, "--data", data)
        assert own.code == 2 and "was never trained for cluster 'twin'" in own.err
        nowhere = baton(*judged, "--fitted-on", "nowhere", "--data", data)
        assert nowhere.code == 2 and "unknown cluster 'nowhere'" in nowhere.err
    finally:
        (data / "clusters.toml").unlink()


def test_slurm_is_a_scheduler_of_pairs_as_any_other(baton: Baton, data: Path) -> None:
    """Other pairs than those under mirage, on the same starts; a name that is none lists slurm among those that are."""
    world = ("--cluster", "lab", "--capacity", "16", "--pair-nodes", "1", "--limit", "12h", "--policies", "reactive")
    interruption = {}
    for scheduler in ("slurm", "mirage"):
        asked = (*world, "--scheduler", scheduler, "--data", data, "--json")
        trained = baton("train", *asked, "--until", UNTIL)
        assert trained.code == 0 and f"{scheduler} on 16 nodes" in trained.json["scenario"]
        results = baton("evaluate", *asked, "--from", FROM, "--to", "2026-06-17").json["results"]
        (row,) = (row for row in results if row["load"] == "all" and row["policy"] == "reactive")
        assert row["n"] == 2 * 6 and row["overlap_h"] == 0
        interruption[scheduler] = row["interruption_h"]
    assert interruption["slurm"] != interruption["mirage"]
    unknown = baton("train", *world, "--scheduler", "slrum", "--data", data)
    assert unknown.code == 2 and "mirage" in unknown.err and "slurm" in unknown.err


def test_a_window_that_was_fitted_on_is_said_to_be(baton: Baton, data: Path) -> None:
    command = ("train", *WORLD, "--policies", "reactive", "--until", UNTIL, "--seed", 5, "--data", data)
    assert baton(*command).code == 0
    leak = baton("evaluate", *WORLD, "--policies", "reactive", "--from", "2026-06-08", "--to", TO, "--data", data)
    assert leak.code == 0 and "warning: a policy was fitted on outcomes up to 2026-06-12" in leak.err


def test_until_before_any_start(baton: Baton, data: Path) -> None:
    result = baton("train", *WORLD, "--policies", "reactive", "--until", "2026-05-01", "--data", data)
    assert result.code == 2 and "2026-05-01" in result.err and result.err.count("\n") == 1


def test_champion_is_what_was_trained_under_that_name_else_the_registered(
    baton: Baton, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from models.study import fits

    trained = ("train", *WORLD, "--policies", "start-estimate", "--until", UNTIL, "--data", data)
    assert baton(*trained).code == 0
    asked = ("evaluate", *WORLD, "--policies", "reactive,champion", "--from", FROM, "--to", TO, "--data", data)
    assert baton("train", *WORLD, "--policies", "reactive", "--until", UNTIL, "--data", data).code == 0
    assert "cluster 'lab' has no champion in" in baton(*asked, "--json").err

    folder = next((data / "artifacts" / "policies" / "lab").glob("*/start-estimate/0"))
    from agent.artifact import Artifact
    from traces.store.folder import DataFolder

    version = tracking.register(
        DataFolder(data),
        "lab",
        Artifact.load(folder),
        tags={"policy": "start-estimate"},
        description="by hand",
        metrics={},
    )
    promoted = baton("promote", version, "--cluster", "lab", "--reason", "<b>tried</b>", "--data", data, "--json")
    assert promoted.json == {"model": "baton-policy-lab", "champion": version}
    champion = tracking.champion(DataFolder(data), "lab")
    assert champion is not None and "<b>tried</b>" in champion.tags["decision"]
    assert Artifact.load(data / "artifacts" / "lab" / "champion").manifest["policy"] == "start-estimate"
    assert baton("rollback", "--cluster", "other", "--data", data).code == 1, (
        "another cluster has a champion of its own"
    )
    rows = baton(*asked, "--json").json["results"]
    assert {"champion", *ALWAYS} == {row["policy"] for row in rows}
    with monkeypatch.context() as patch:  # a release of a Baton whose observation was another
        patch.setattr(fits, "VERSION", 7)
        refused = baton(*asked)
        assert refused.code == 2 and refused.err.count("\n") == 1
        assert "observations of version 2, but those here are of version 7" in refused.err
    retrained = baton("train", *WORLD, "--policies", "champion", "--until", UNTIL, "--data", data, "--json")
    assert [row["policy"] for row in retrained.json["policies"]] == ["start-estimate"]
    with monkeypatch.context() as patch:
        patch.setattr(fits, "_champion_artifact", lambda *_: pytest.fail("the registered version was asked for"))
        assert {"champion", *ALWAYS} == {row["policy"] for row in baton(*asked, "--json").json["results"]}
    assert baton("rollback", "--cluster", "lab", "--data", data).code == 1


def test_tune_searches_and_resumes(baton: Baton, data: Path, tmp_path: Path) -> None:
    """By the command, then by the job that Dagster's user interface launches."""
    data = shutil.copytree(data, tmp_path / "data")
    asked = ("tune", *WORLD, "--policy", "forest", "--until", UNTIL, "--data", data)
    first = baton(*asked, "--trials", 2, "--json").json
    assert (first["policy"], first["trials"]) == ("forest", 2) and 0 < first["best_cost_h"] <= first["own_cost_h"]
    client = mlflow_store.client(DataFolder(data))

    def trials() -> int:
        return len(client.search_runs([mlflow_store.experiment_id(client)], "tags.`baton.kind` = 'trial'"))

    before = trials()
    resumed = baton(*asked, "--trials", 2)
    assert resumed.out.startswith("2 trials") and "[lab.hyperparameters.forest]" in resumed.out
    assert trials() == before >= 2
    unknown = baton("tune", "--cluster", "lab", "--policy", "reactive", "--data", data)
    assert unknown.code == 2 and "policy 'reactive' has no hyper-parameters" in unknown.err

    (data / "clusters.toml").write_text("[lab]\nnodes = 16\n")  # the job takes the headline study
    config = {"cluster": "lab", "policy": "forest", "trials": 1}
    job = build_defs({"baton": Resource(data=str(data))}).resolve_job_def("tune")
    with dg.DagsterInstance.ephemeral() as instance:
        result = job.execute_in_process(
            {"ops": {"search_hyperparameters": {"config": config}}}, instance=instance, raise_on_error=False
        )
    assert result.success
    assert trials() > before
