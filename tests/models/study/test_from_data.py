"""Pairs and the environment from a data folder: what they hold, `gymnasium.make`, and what is refused in one line."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from features.observe import FEATURES
from models.provisioning.environment import ENV_ID, ProvisioningEnv, ScaledObservation
from models.provisioning.registry import make_policy
from models.provisioning.scaling import Scaling
from models.study.cluster import open_study
from models.study.from_data import make_env, pairs_of
from models.study.support import Refusal, headline_study
from models.study.windows import Window
from traces import clusters, ingest
from traces.clusters import ClusterSettings
from traces.errors import InputError
from traces.generate.logs import generate_slurm
from traces.store import warehouse
from traces.store.folder import DataFolder
from traces.units import DAY_S, HOUR_S

SCENARIO: dict[str, Any] = {"pair_nodes": (1, 4), "limit_s": 24 * HOUR_S, "every_s": 24 * HOUR_S}
DECLARED = "[lab]\nnodes = 16\n[short]\nnodes = 16\n[unlimited]\nnodes = 16\n[alone]\nnodes = 16\n"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four generated weeks of one cluster, three days of another, a third without limits, and a fourth of one user."""
    folder = tmp_path_factory.mktemp("from_data")
    data = DataFolder(folder / "data")
    data.ensure_writable()
    data.clusters_toml.write_text(DECLARED)
    raw = generate_slurm(folder, jobs=None, weeks=4, nodes=16, gpus_per_node=4, seed=3, steps=False, compress=False)
    header, *rows = raw.read_text().splitlines()
    names = header.split("|")
    submit, limit = names.index("Submit"), names.index("TimelimitRaw" if "TimelimitRaw" in names else "Timelimit")
    days = sorted({row.split("|")[submit][:10] for row in rows})
    few = [row for row in rows if row.split("|")[submit][:10] in days[:3]]
    none = [[*row.split("|")[:limit], "UNLIMITED", *row.split("|")[limit + 1 :]] for row in few]
    user = names.index("User")
    one = [[*row.split("|")[:user], "solo", *row.split("|")[user + 1 :]] for row in rows]
    logs = {"lab": rows, "short": few} | {
        name: ["|".join(cells) for cells in table] for name, table in (("unlimited", none), ("alone", one))
    }
    for cluster, lines in logs.items():
        path = folder / f"{cluster}.psv"
        path.write_text("\n".join([header, *lines]) + "\n")
        ingest.ingest([path], cluster=clusters.resolve(data, cluster=cluster), data=data)
    warehouse.build(data)
    return data.root


def test_the_pairs_are_those_that_policies_are_fitted_and_judged_on(data: Path) -> None:
    folder = DataFolder(data)
    study = open_study(folder, clusters.resolve(folder, cluster="lab"), **SCENARIO)
    fit, select, report = (pairs_of(data, "lab", window, **SCENARIO) for window in ("fit", "select", "report"))
    expected = study.fit_pairs(study.windows.fit).known_before(study.windows.fit.until_s)
    np.testing.assert_array_equal(fit.observations, expected.observations)
    np.testing.assert_array_equal(fit.successor_start_s, expected.successor_start_s)
    assert set(fit.observations[:, 5].tolist()) == {16.0, 14.0}, "as it is, and on a tenth fewer nodes"
    assert fit.submit_s.max() < select.submit_s.min() and select.submit_s.max() < report.submit_s.min()
    assert (fit.successor_start_s[fit.last] < study.windows.fit.until_s).all()
    assert (select.successor_start_s[select.last] < study.windows.select.until_s).all()
    np.testing.assert_array_equal(report.observations, study.pairs(study.windows.report).observations)
    assert set(report.pair_nodes.tolist()) == {1, 4}


def test_a_log_of_one_user_is_learned_from_as_any_other(data: Path) -> None:
    """Its own jobs are all jobs, so what tells users apart tells nothing, and nothing may break by that."""
    alone, lab = (pairs_of(data, cluster, "fit", **SCENARIO) for cluster in ("alone", "lab"))
    own = FEATURES.index("own_pending_jobs")
    np.testing.assert_array_equal(alone.successor_start_s, lab.successor_start_s)
    assert (alone.observations[:, own] >= lab.observations[:, own]).all()
    for name in ("start-estimate", "forest", "lightgbm", "fitted-q"):
        fitted, _ = make_policy(name).fit(alone, 0)
        rows = pairs_of(data, "alone", "report", **SCENARIO).observations
        assert np.isfinite(fitted.score(rows)).all() and len(fitted.decide(rows)) == len(rows)


def test_a_window_of_ones_own_and_a_path_as_text(data: Path) -> None:
    folder = DataFolder(data)
    usable = open_study(folder, clusters.resolve(folder, cluster="lab"), **SCENARIO).usable
    window = Window(usable.from_s, usable.from_s + 2 * DAY_S, decision_s=2 * HOUR_S)
    table = make_env(str(data), "lab", window, weight=2.0, every=2, **SCENARIO).table
    assert len(table) == 2 * 2 and set(np.diff(table.offset).tolist()) == {24 // 2 + 1}


def test_gymnasium_makes_it_by_name_and_its_checker_passes(data: Path) -> None:
    env = gymnasium.make(
        f"models.provisioning.environment:{ENV_ID}", data=data, cluster="lab", window="report", weight=0.5, **SCENARIO
    )
    assert isinstance(env.unwrapped, ProvisioningEnv) and env.unwrapped.weight == 0.5
    assert env.spec is not None and env.spec.id == ENV_ID
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_env(env.unwrapped)  # makes it again from its spec, once for each render mode
    assert [str(one.message) for one in caught if "infinity" not in str(one.message)] == []
    again = gymnasium.make(ENV_ID, data=data, cluster="lab", window="report", every=6, render_mode="ansi", **SCENARIO)
    again.reset(seed=1)
    assert "16 nodes free" in str(again.render())


def test_a_learner_of_stable_baselines3_takes_the_scaled_environment(data: Path) -> None:
    stable_baselines3 = pytest.importorskip("stable_baselines3")
    env = gymnasium.make(f"models.provisioning.environment:{ENV_ID}", data=data, cluster="lab", every=4, **SCENARIO)
    assert isinstance(env.unwrapped, ProvisioningEnv)
    scaled = ScaledObservation(env, Scaling.of(env.unwrapped.table.observations))
    model = stable_baselines3.PPO("MlpPolicy", scaled, n_steps=64, batch_size=64, seed=0, device="cpu").learn(64)
    action, _ = model.predict(scaled.reset(seed=3)[0], deterministic=True)
    assert scaled.action_space.contains(np.int64(action))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"cluster": "nowhere"}, "unknown cluster 'nowhere'"),
        ({"cluster": "lab", "window": "all"}, "unknown window 'all'; known: fit, select, report"),
        ({"cluster": "lab", "scheduler": "lottery"}, "unknown scheduler 'lottery'"),
        ({"cluster": "lab", "pair_nodes": (17,)}, "has 16 nodes; ask for fewer"),
        ({"cluster": "short"}, "days of submissions; pairs need at least"),
        ({"cluster": "unlimited"}, "no job of cluster 'unlimited' has a time limit"),
        ({"cluster": "sample"}, "the trace of cluster 'sample' holds no job"),
        ({"cluster": "lab", "window": Window(0, 0)}, "no pair of cluster 'lab' started in"),
    ],
)
def test_refusals_are_one_line(data: Path, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message.replace("(", r"\(")) as error:
        pairs_of(data, **arguments)  # type: ignore[arg-type]
    assert "\n" not in str(error.value)


def test_other_refusals(data: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no warehouse at"):
        pairs_of(tmp_path, "sample")
    with pytest.raises(TypeError, match="nodes_of_pair"):
        pairs_of(data, "lab", nodes_of_pair=3)
    with pytest.raises(ValueError, match="weight of overlap -1"):
        make_env(data, "lab", weight=-1, **SCENARIO)


def test_the_advice_to_declare_nodes_names_those_that_the_log_shows(tmp_path: Path) -> None:
    """Two jobs on one node at once, a third on another: two nodes, though jobs hold three."""
    row = "{id}|u|p|COMPLETED|2026-03-01T00:00:00|2026-03-01T00:00:00|2026-03-01T02:00:00|60|1|{node}\n"
    names = "JobID|User|Partition|State|Submit|Start|End|TimelimitRaw|NNodes|NodeList\n"
    raw, data = tmp_path / "raw.psv", DataFolder(tmp_path / "data")
    raw.write_text(names + "".join(row.format(id=number, node=node) for number, node in enumerate("aab", 1)))
    known = ClusterSettings("lab")
    ingest.ingest([raw], cluster=known, data=data)
    warehouse.build(data)
    assert headline_study(data, known) == Refusal(
        "the number of nodes of cluster 'lab' is unknown (the log shows 2): give --nodes, or set nodes in clusters.toml"
    )
