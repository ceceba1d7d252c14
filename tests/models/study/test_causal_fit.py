"""A fit until an instant knows what a dump taken then holds: all that lies later is altered, and not a byte changes."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from models.provisioning import registry
from models.provisioning.comparison.outcomes import content_digest
from models.provisioning.pairs import recorded_waits
from models.provisioning.policies.dqn import DQN
from models.provisioning.policies.fitted_q import FittedQ
from models.provisioning.policies.forest import RandomForest
from models.provisioning.policies.lightgbm import LightGBMQuantile
from models.provisioning.policies.policy_gradient import PolicyGradient
from models.provisioning.policies.xgboost import XGBoostMean
from models.provisioning.training import train as training
from models.provisioning.worlds import WORLDS
from models.study import extent, fits, inputs
from models.study.cluster import Study, open_study
from models.study.windows import Window
from models.tracking import training_runs
from simulator.recorded.parameters import infer_parameters as fit_parameters
from simulator.recorded.record import ARRAYS, NEVER
from tests.models.provisioning.training.test_train import Given, fitted_here
from traces import clusters, ingest
from traces.errors import InputError
from traces.generate.slurm import GeneratedHistory, generated_history, write_dump
from traces.generate.workload import EPOCH_S
from traces.store import warehouse
from traces.store.folder import DataFolder

NODES = 24
UNTIL_S = EPOCH_S + 939 * 3600 + 1040  # in the sixth week, on a busy day, at no round time
UNTIL = datetime(1970, 1, 1) + timedelta(seconds=UNTIL_S)
SCENARIO: dict[str, Any] = {"pair_nodes": (1, 4), "limit_s": 12 * 3600, "every_s": 24 * 3600}
LEARNERS = {
    "forest": RandomForest(trees=3),
    "xgboost": XGBoostMean(rounds=3),
    "lightgbm": LightGBMQuantile(rounds=3),
    "fitted-q": FittedQ(rounds=3, improvement_rounds=3),
    "dqn": DQN(updates=20),
    "policy-gradient": PolicyGradient(updates=10),
}
CONF = f"""NodeName=n[1-{NODES}] CPUs=64 RealMemory=500000 Gres=gpu:4
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
PriorityType=priority/multifactor
PriorityWeightAge=1000
PriorityWeightFairshare=1000
PartitionName=gpu Nodes=ALL Default=YES
PartitionName=debug Nodes=n[1-2]
"""
NOT_YET = ("Unknown", "None")  # how sacct prints a time that there is not
Row = dict[str, str]


@pytest.fixture(scope="module")
def past() -> GeneratedHistory:
    """Seven weeks: arrays, dependencies, requeues, jobs that were cancelled in the queue or cut by their limit."""
    return generated_history(jobs=None, weeks=7, nodes=NODES, gpus_per_node=4, seed=3)


def dumped(folder: Path, past: GeneratedHistory, at_s: int) -> list[Row]:
    """The records that sacct prints at `at_s`. One job in seven has no limit of its own, and one can never start."""
    path = write_dump(folder / "dump.psv", past, from_s=EPOCH_S, at_s=at_s, steps=False, compress=False)
    header, *lines = path.read_text().splitlines()
    names = header.split("|")
    name, most = names.index("JobName"), len(names)
    rows = []
    for line in lines:
        cells = line.split("|")
        extra = len(cells) - most  # pipes in a name, which sacct does not escape
        cells[name : name + 1 + extra] = ["j"]
        row = dict(zip(names, cells, strict=True))
        if int(row["JobID"].partition("_")[0]) % 7 == 0:
            row["TimelimitRaw"] = "Partition_Limit"
        rows.append(row)
    waits = {"State": "PENDING", "Submit": later(-7200), "Start": "Unknown", "End": "Unknown", "ElapsedRaw": "0"}
    wide = {"JobID": "9999999", "JobIDRaw": "9999999", "NNodes": str(NODES + 6), "ReqTRES": f"node={NODES + 6}"}
    return [*rows, rows[0] | waits | wide | {"AllocTRES": ""}]


def time_of(text: str) -> datetime | None:
    return None if text in NOT_YET else datetime.fromisoformat(text)


def later(seconds: int) -> str:
    return (UNTIL + timedelta(seconds=seconds)).isoformat()


def some_s(draw: random.Random) -> int:
    """Up to a day, and often nothing: what happens at UNTIL itself was not known before."""
    return draw.choice([0, *(draw.randrange(1, 86_400) for _ in range(4))])


def is_later(text: str) -> bool:
    """Whether that had not happened before UNTIL."""
    time = time_of(text)
    return time is None or time >= UNTIL


def was_open(row: Row) -> bool:
    """Submitted before UNTIL, and not over."""
    return not is_later(row["Submit"]) and is_later(row["End"])


def ran(row: Row, start: str, draw: random.Random) -> Row:
    """It ran from that start on, and ended after UNTIL."""
    begun = datetime.fromisoformat(start)
    ended = max(begun, UNTIL) + timedelta(seconds=some_s(draw))
    state, elapsed_s = draw.choice(["COMPLETED", "FAILED", "TIMEOUT", "NODE_FAIL"]), (ended - begun).total_seconds()
    changed = {"Start": start, "End": ended.isoformat(), "ElapsedRaw": f"{elapsed_s:.0f}", "State": state}
    return row | changed | {"AllocTRES": row["ReqTRES"]}


def redrawn(rows: list[Row], draw: random.Random) -> list[Row]:
    """Other ends of the jobs that ran at UNTIL; those that were pending start otherwise, on all nodes, or never run."""
    altered = []
    for row in rows:
        if not was_open(row):
            altered.append(row)
        elif not is_later(row["Start"]):
            altered.append(ran(row, row["Start"], draw))
        elif time_of(row["Start"]) is not None and draw.random() < 0.7:
            altered.append(ran(row, later(some_s(draw)), draw) | {"NNodes": str(NODES)})
        else:
            ended = later(some_s(draw))
            altered.append(row | {"Start": "None", "End": ended, "State": "CANCELLED by 7", "ElapsedRaw": "0"})
    return altered


def otherwise_later(rows: list[Row], draw: random.Random) -> list[Row]:
    """Of the jobs submitted from UNTIL on one in two is gone; the others are as wide as the cluster, and longest."""
    kept = [row for row in rows if not is_later(row["Submit"]) or draw.random() < 0.5]
    wide = {"NNodes": str(NODES), "ReqTRES": f"node={NODES}", "TimelimitRaw": "40000"}
    at_once = wide | {"Submit": later(0)}
    return [row | (wide if draw.random() < 0.9 else at_once) if is_later(row["Submit"]) else row for row in kept]


def gone_later(rows: list[Row], draw: random.Random) -> list[Row]:
    """No job was submitted from UNTIL on."""
    return [row for row in rows if not is_later(row["Submit"])]


ALTERED: dict[str, Callable[[list[Row], random.Random], list[Row]]] = {
    "what ran and what was pending went on otherwise": redrawn,
    "later jobs are wider, longer and fewer": otherwise_later,
    "no later jobs": gone_later,
}
CUT = "the dump was taken then"


@pytest.fixture(scope="module")
def logs(past: GeneratedHistory, tmp_path_factory: pytest.TempPathFactory) -> dict[str, DataFolder]:
    """A data folder of each log: as it was, altered, and cut."""
    folder = tmp_path_factory.mktemp("causal")
    whole = dumped(folder, past, past.last_s)
    versions = {"as it was": whole, CUT: dumped(folder, past, UNTIL_S)}
    versions |= {name: alter(whole, random.Random(5)) for name, alter in ALTERED.items()}
    return {name: read(folder / str(number), rows) for number, (name, rows) in enumerate(versions.items())}


def read(root: Path, rows: list[Row]) -> DataFolder:
    """Through the reader, as any log."""
    data = DataFolder(root)
    data.ensure_writable()
    data.clusters_toml.write_text(f"[lab]\nnodes = {NODES}\n")
    (root / "slurm.conf").write_text(CONF)
    raw = root / "dump.psv"
    raw.write_text("\n".join(["|".join(rows[0]), *("|".join(row.values()) for row in rows)]) + "\n")
    ingest.ingest([raw], cluster=clusters.resolve(data, cluster="lab"), data=data)
    warehouse.build(data)
    return data


def study(data: DataFolder, world: str = "plain", **changes: Any) -> Study:
    return open_study(data, clusters.resolve(data, cluster="lab"), world=world, **(SCENARIO | changes))


@pytest.fixture(scope="module")
def artifacts(logs: dict[str, DataFolder]) -> dict[str, dict[str, str]]:
    """Of each log, the digests of what every learner makes of it until UNTIL."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training_runs, "MlflowTracker", lambda data: None)
        patch.setattr(training, "fit_each", fitted_here)
        for name, policy in LEARNERS.items():
            patch.setitem(registry.POLICIES, name, Given(policy))
        return {name: digests(study(data)) for name, data in logs.items()}


def digests(opened: Study) -> dict[str, str]:
    trained, _ = fits.fit(opened, list(LEARNERS), opened.fit_window(UNTIL_S), seeds=(0,))
    return {one.name: content_digest(one.artifact) for one in trained}


@pytest.mark.parametrize("log", [*ALTERED, CUT])
@pytest.mark.parametrize("learner", LEARNERS)
def test_nothing_that_lies_later_changes_a_byte(artifacts: dict[str, dict[str, str]], learner: str, log: str) -> None:
    assert artifacts[log][learner] == artifacts["as it was"][learner]


def test_the_logs_tell_of_all_that_may_go_wrong(logs: dict[str, DataFolder]) -> None:
    """Else the tests above would pass whatever a fit reads."""
    assert {name for name in registry.POLICIES if registry.make_policy(name).is_learned} == set(LEARNERS)
    before = study(logs["as it was"])
    known = before.known_before(UNTIL_S).workload
    counts = "SELECT count(*) FROM jobs WHERE {} AND submit_utc < ? AND coalesce(end_utc >= ?, true)"
    at = [UNTIL, UNTIL]
    running, pending, without, tasks = (
        warehouse.read(logs[CUT], counts.format(which), at).item()
        for which in ("state = 'RUNNING'", "state = 'PENDING'", "limit_s IS NULL", "job_id LIKE '%_[%'")
    )
    assert running > 5 and pending > 5 and without > 2 and tasks > 0
    assert known.size.max() < NODES == study(logs["later jobs are wider, longer and fewer"]).workload.size.max()
    assert [one.capacity for one in before.fit_scenarios(UNTIL_S)] == [NODES, 21]
    judged = Window(UNTIL_S - 86_400, UNTIL_S + 2 * 86_400, 1800)
    tables = {name: study(data).pairs(judged).digest for name, data in logs.items()}
    assert len(set(tables.values())) == len(tables), "what is judged on is made of the whole log"


@pytest.mark.parametrize("log", [*ALTERED, CUT])
def test_what_is_known_of_the_jobs_is_the_same(logs: dict[str, DataFolder], log: str) -> None:
    """And so are the parameters of the recorded world. Only a later log has an id for each pending task of an array."""
    before, after = (study(logs[name]) for name in ("as it was", log))
    for column in ("submit_s", "size", "run_s", "limit_s", "start_s"):
        one, other = (getattr(each.known_before(UNTIL_S).workload, column) for each in (before, after))
        assert one.tolist() == other.tolist()
    assert before.fit_scenarios(UNTIL_S) == after.fit_scenarios(UNTIL_S)
    records = [inputs.read_record(logs[name], "lab", until_s=UNTIL_S) for name in ("as it was", log)]
    for column in ARRAYS:
        assert getattr(records[0], column).tolist() == getattr(records[1], column).tolist()
    is_pending = (records[0].start_s == NEVER) & (records[0].end_s == NEVER)
    assert is_pending.sum() > 20, "the tasks of a pending array one by one"
    assert fit_parameters(records[0], UNTIL_S) == fit_parameters(records[1], UNTIL_S)


@pytest.mark.parametrize("world", WORLDS)
def test_of_a_long_log_the_part_that_was_newest_then_is_read(
    logs: dict[str, DataFolder], world: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And how dense the starts are follows from that part."""
    monkeypatch.setattr(extent, "MOST_DAYS", 20)
    monkeypatch.setattr(extent, "MOST_WORK", 300)
    monkeypatch.setattr(extent, "LEAST_STARTS", 1)
    monkeypatch.setattr(extent, "MOST_CALIBRATED", 300)
    monkeypatch.setattr(extent, "NEWEST_CALIBRATED", 200)
    opened = {name: study(data, world, every_s=None) for name, data in logs.items()}
    known = {name: one.known_before(UNTIL_S) for name, one in opened.items()}
    windows = {name: one.fit_window(UNTIL_S) for name, one in opened.items() if world == "plain"}
    assert len({one.scenario.from_s for one in opened.values()}) > 1
    assert len({one.scenario for one in known.values()}) == 1 and len(set(windows.values())) <= 1
    first_s = known[CUT].scenario.from_s
    assert first_s is not None and EPOCH_S < first_s <= min(one.workload.submit_s.min() for one in known.values())
    assert world != "plain" or known[CUT].scenario.every_s > 4 * 3600


@pytest.mark.parametrize(("days", "message"), [(0, "no job of cluster 'lab' was submitted before"), (1, "begin at")])
def test_too_early_an_instant_is_refused_in_one_line(logs: dict[str, DataFolder], days: int, message: str) -> None:
    opened = study(logs[CUT])
    with pytest.raises(InputError, match=message) as error:
        opened.fit_window(int(opened.workload.submit_s.min()) + days * 86_400)
    assert "give a later date" in str(error.value) and "\n" not in str(error.value)


@pytest.fixture(scope="module")
def pairs_until(logs: dict[str, DataFolder]) -> Callable[..., tuple[int, str]]:
    """Number and digest of the pairs known at UNTIL in a log, made once for each log, scenario and settings."""

    @cache
    def made(log: str, settings: str = "", **scenario: Any) -> tuple[int, str]:
        opened = study(logs[log], limit_s=3600, **scenario)
        pairs = opened.fit_pairs(opened.fit_window(UNTIL_S)).known_before(UNTIL_S)
        return len(pairs), pairs.digest

    return made


@pytest.mark.parametrize("log", [*ALTERED, CUT])
@pytest.mark.parametrize("world", WORLDS)
def test_pairs_until_an_instant_are_those_of_a_dump_taken_then(
    pairs_until: Callable[..., tuple[int, str]], world: str, log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded_waits, "LEAST_NEIGHBOURS", 2.0)  # these logs have few users
    monkeypatch.setattr(recorded_waits, "MOST_OF_A_USER", 0.5)
    before = pairs_until("as it was", world=world)
    assert before[0] > 10 and before == pairs_until(log, world=world)


@pytest.mark.parametrize("log", [next(iter(ALTERED)), CUT])
@pytest.mark.parametrize("declared", [True, False], ids=["by files", "inferred"])
def test_pairs_under_slurm_until_an_instant_are_those_of_a_dump_taken_then(
    logs: dict[str, DataFolder], pairs_until: Callable[..., tuple[int, str]], declared: bool, log: str
) -> None:
    by_files = 'slurm_conf = "slurm.conf"\n' if declared else ""
    made = []
    for name in ("as it was", log):
        logs[name].clusters_toml.write_text(f"[lab]\nnodes = {NODES}\n{by_files}")
        made.append(pairs_until(name, scheduler="slurm", every_s=72 * 3600, pair_nodes=(1,), settings=by_files))
        logs[name].clusters_toml.write_text(f"[lab]\nnodes = {NODES}\n")
    assert made[0][0] > 10 and made[0] == made[1]
