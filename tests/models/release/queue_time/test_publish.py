"""A release of a queue-time model: what the gate says, who becomes champion, and what is left after a kill."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
import pytest

from agent.distribution import Distribution
from assets import queue_time
from assets.shared.resources import CLUSTERS, Baton
from features.submission.index import FEATURES
from models.release.champion import promote, rollback
from models.release.log import QUEUE_TIME_DECISIONS, DecisionLog
from models.release.queue_time import publish as module
from models.release.queue_time.gate import BETTER, CANNOT_TELL, WORSE, judge
from models.release.queue_time.publish import Published, publish
from models.tracking import registered
from models.tracking import versions as tracking
from models.tracking.kinds import QUEUE_TIME
from tests.features.submission.logs import generated_log
from traces import instants
from traces.clusters import ClusterSettings
from traces.errors import InputError
from traces.store import warehouse
from traces.store.folder import DataFolder
from traces.units import DAY_S, WEEK_S

LAB = ClusterSettings(name="lab", nodes=10)
FEW = ("limits", "partition-median", "expected", "trout-boosting")


def submissions(days: int, a_day: int = 8) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.arange(days * a_day, dtype=np.int64) * (DAY_S // a_day)


def test_the_gate_has_three_answers() -> None:
    submit = submissions(42)
    noise = np.random.default_rng(0).normal(0, 0.1, len(submit))
    ones = np.ones(len(submit))
    assert judge(ones + noise, ones * 2, submit, "it").verdict == BETTER
    assert judge(ones * 2 + noise, ones, submit, "it").verdict == WORSE
    found = judge(ones + noise, ones, submit, "it")
    assert found.verdict == CANNOT_TELL and found.low_h is not None and found.low_h < 0 < (found.high_h or 0)
    assert found.n == len(submit) and found.blocks == 6 and "against it" in found.reason


def test_few_blocks_let_nothing_through_and_may_warn() -> None:
    submit = submissions(20)
    ones = np.ones(len(submit)) + np.arange(len(submit)) * 1e-3
    found = judge(ones - 0.5, ones, submit, "it")
    assert found.verdict == CANNOT_TELL and found.high_h is not None and found.high_h < 0
    assert "fewer than 4 blocks is too narrow" in found.reason
    assert judge(ones, ones - 0.5, submit, "it").verdict == WORSE
    assert judge(ones[:40], ones[:40], submit[:40], "it").low_h is None
    assert judge(ones[:5], ones[:5], submit[:5], "it").verdict == CANNOT_TELL


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A data folder whose log is generated, with a release in it; the log may be exchanged."""
    patch = pytest.MonkeyPatch()
    now = {"log": generated_log(7, jobs=1200, days=70), "made_from": "first"}
    patch.setattr(module, "read_log", lambda data, cluster: now["log"])
    patch.setattr(warehouse, "made_from", lambda data, cluster: now["made_from"])
    patch.setattr(module, "METHODS", dict.fromkeys(FEW, ""))
    data = DataFolder(tmp_path_factory.mktemp("data"))
    found = publish(data, LAB)
    yield data, now, found
    patch.undo()


def test_the_asset_shows_the_release_and_checks_it(lab: Any) -> None:
    data, _, found = lab
    result = materialized(data)
    assert result.success
    (made,) = (shown(event.materialization.metadata) for event in result.get_asset_materialization_events())
    row = found.releases.row(-1, named=True)
    assert made["dagster/row_count"] == len(found.predictions) and made["reused"]
    assert (made["verdict"], made["champion_version"]) == (row["verdict"], row["registered_version"])
    checks = {check.check_name: check for check in result.get_asset_check_evaluations()}
    assert set(checks) == set(queue_time.CHECKS)
    (own,) = found.scores.filter(method=row["champion_method"]).to_dicts()
    assert checks["gate"].passed == (row["verdict"] == BETTER)
    assert shown(checks["coverage"].metadata)["coverage_95"] == pytest.approx(own["coverage_95"], abs=1e-6)
    assert checks["loads"].passed and shown(checks["loads"].metadata)["artifact_bytes"] > 1000


@pytest.mark.parametrize("is_there", [True, False])
def test_the_check_of_a_champion_that_does_not_load(tmp_path: Path, is_there: bool) -> None:
    """It fails where a folder cannot be read; where there is none yet, it says so and passes."""
    if is_there:
        (tmp_path / "manifest.json").write_text("{")
    check = queue_time._loads(tmp_path if is_there else tmp_path / "champion")
    assert check.passed != is_there and str(tmp_path) in shown(check.metadata)["why"]


def test_the_asset_of_a_log_without_submissions_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_jobs(*_: object) -> None:
        raise InputError("no job of cluster 'lab' started")

    monkeypatch.setattr(module, "publish", no_jobs)
    result = materialized(DataFolder(tmp_path))
    assert result.success and all(check.passed for check in result.get_asset_check_evaluations())
    (made,) = (shown(event.materialization.metadata) for event in result.get_asset_materialization_events())
    assert (made["dagster/row_count"], made["why"]) == (0, "no job of cluster 'lab' started")


def shown(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The values of an asset's or a check's metadata."""
    return {name: getattr(value, "value", value) for name, value in metadata.items()}


def materialized(data: DataFolder) -> dg.ExecuteInProcessResult:
    """The run of the asset for the cluster `lab`."""
    data.ensure_writable()
    data.clusters_toml.write_text("[lab]\nnodes = 10\n")
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions(str(CLUSTERS.name), ["lab"])
        return dg.materialize(
            [queue_time.queue_time_model],
            instance=instance,
            partition_key="lab",
            resources={"baton": Baton(data=str(data.root))},
        )


def test_a_first_release_makes_tables_a_champion_and_a_folder(lab: Any) -> None:
    data, _, found = lab
    assert isinstance(found, Published) and not found.reused
    assert found.scores["method"].to_list() == list(FEW)
    assert len(found.predictions) == len(FEW) * found.scores["n"][0]
    assert (found.predictions["p10_s"] <= found.predictions["p90_s"]).all()
    row = found.releases.row(-1, named=True)
    champion = tracking.champion(data, "lab", QUEUE_TIME)
    assert champion is not None and champion.version == row["registered_version"]
    assert row["method"] == "trout-boosting" and row["provisional"] == (row["verdict"] != BETTER)
    place = registered.folder(data, "lab", QUEUE_TIME) / "champion"
    model = Distribution.load(place, FEATURES)
    assert model.manifest["method"] == row["champion_method"] and model.checks is not None
    release = model.manifest["release"]
    assert set(release["windows"]) == {"fit", "select", "report"} and len(release["results"]) == len(FEW)
    weeks = [week["week_s"] for week in release["weeks"]]
    first_s, last_s = (instants.epoch_s(instants.parse(release["windows"][name][end])) for name, end in
                       (("select", "from_utc"), ("report", "until_utc")))  # fmt: skip
    assert weeks == list(range(first_s, last_s, WEEK_S)), "windows move in whole weeks, and all of them are promised"
    assert (place / "MODEL_CARD.md").read_text().startswith("# Queue time of cluster `lab`")


def test_nothing_new_is_nothing_done(lab: Any) -> None:
    data, _, found = lab
    again = publish(data, LAB)
    assert isinstance(again, Published) and again.reused
    assert again.releases.equals(found.releases) and len(tracking.versions(data, "lab", QUEUE_TIME)) <= 2


def test_the_registered_model_answers_without_baton(lab: Any, tmp_path: Path) -> None:
    data, _, _ = lab
    champion = tracking.champion(data, "lab", QUEUE_TIME)
    assert champion is not None
    folder = tracking.download(data, "lab", champion.version, tmp_path, QUEUE_TIME)
    program = (
        "import sys\n"
        "class Refused:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in ('agent', 'models', 'features', 'traces', 'simulator'):\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, Refused())\n"
        "import mlflow, pandas\n"
        "model = mlflow.pyfunc.load_model(sys.argv[1])\n"
        "names = [name for name in model.metadata.get_input_schema().input_names() if name != 'partition']\n"
        "rows = model.predict(pandas.DataFrame([[1.0] * len(names)] * 2, columns=names).assign(partition='p0'))\n"
        "print(list(rows.columns)[0], list(rows.columns)[-1], rows.shape, bool((rows['q0.5'] <= rows['q0.9']).all()))\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(folder)], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.splitlines()[-1:] == ["q0.025 p_under_600s (2, 40) True"], done.stderr


def test_a_killed_process_leaves_what_the_next_one_finishes(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed between the alias and the log: the decision is a tag of the version by then."""
    data, now, _ = lab
    before = publish(data, LAB).releases  # type: ignore[union-attr]
    now["made_from"] = "second"
    own, killed = DecisionLog.add, []

    def kill(*arguments: Any) -> None:
        killed.append(arguments)
        raise KeyboardInterrupt

    # Nobody is champion: the second release gives the alias again.
    tracking.delete_alias(data, "lab", registered.CHAMPION, QUEUE_TIME)
    monkeypatch.setattr(DecisionLog, "add", kill)
    with pytest.raises(KeyboardInterrupt):
        publish(data, LAB)
    assert len(killed) == 1
    monkeypatch.setattr(DecisionLog, "add", own)
    found = publish(data, LAB)
    assert isinstance(found, Published) and found.reused
    assert found.releases.drop("decided_utc").equals(before.drop("decided_utc")), "the same decision is logged once"
    assert found.releases["decided_utc"][-1] > before["decided_utc"][-1]


def test_a_champion_is_held_against_jobs_that_it_was_not_fitted_on(lab: Any) -> None:
    """With the same log the champion has seen every job of the window: nothing can be said, and it stays."""
    data, now, _ = lab
    champion = tracking.champion(data, "lab", QUEUE_TIME)
    assert champion is not None
    now["made_from"] = "third"
    found = publish(data, LAB)
    assert isinstance(found, Published)
    row = found.releases.row(-1, named=True)
    assert row["verdict"] == CANNOT_TELL and row["jobs"] == 0 and row["registered_version"] == champion.version
    challenger = tracking.aliased(data, "lab", tracking.CHALLENGER, QUEUE_TIME)
    assert challenger is not None and challenger.version == row["candidate_version"]


def test_a_person_promotes_the_challenger_and_rolls_it_back(lab: Any) -> None:
    data, _, _ = lab
    before = tracking.champion(data, "lab", QUEUE_TIME)
    challenger = tracking.aliased(data, "lab", tracking.CHALLENGER, QUEUE_TIME)
    assert before is not None and challenger is not None and challenger.version != before.version
    policy = tracking.champion(data, "lab")
    link = registered.folder(data, "lab", QUEUE_TIME) / "champion"

    assert promote(data, "lab", challenger.version, " more  of it ", QUEUE_TIME_DECISIONS) == challenger.version
    row = QUEUE_TIME_DECISIONS.read(data, "lab").row(-1, named=True)
    assert (row["verdict"], row["reason"], row["registered_version"]) == ("by hand", "more of it", challenger.version)
    assert row["champion_method"] == challenger.tags["method"]
    assert link.resolve().name == str(challenger.version)
    assert tracking.aliased(data, "lab", tracking.CHALLENGER, QUEUE_TIME) is None
    found = publish(data, LAB)
    assert isinstance(found, Published) and not found.reused, "a promotion by hand asks for a new decision"
    assert found.releases["registered_version"][-1] == challenger.version

    assert rollback(data, "lab", QUEUE_TIME_DECISIONS) == before.version
    assert link.resolve().name == str(before.version)
    with pytest.raises(InputError, match="baton-queue-time-lab has no version 99; registered: 1"):
        promote(data, "lab", 99, "try", QUEUE_TIME_DECISIONS)
    assert tracking.champion(data, "lab") == policy, "policies are left alone"


def test_a_log_too_short_says_why(lab: Any) -> None:
    data, now, _ = lab
    kept = dict(now)
    now.update(log=generated_log(1, jobs=60, days=5), made_from="short")
    try:
        assert publish(data, ClusterSettings(name="short", nodes=10)) == "the log is too short for three windows"
        now.update(log=generated_log(1, jobs=90, days=30), made_from="few")
        said = publish(data, ClusterSettings(name="short", nodes=10))
        assert isinstance(said, str) and "at least 100 and 20 are needed" in said
    finally:
        now.update(kept)
    assert tracking.champion(data, "short", QUEUE_TIME) is None
