"""Training, evaluation, a queue-time release and a what-if, killed before each write, and rollbacks beside work.

`python -m tests.models.killed_work FOLDER WHAT...`, with the processes of `tests.models.publishing`.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import sys
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from mlflow.tracking import MlflowClient

from features.submission.log import SubmissionLog
from models.provisioning.comparison.outcomes import content_digest
from models.release import champion
from models.release.log import QUEUE_TIME_DECISIONS
from models.release.queue_time import publish as queue_time
from models.study import comparisons, fits
from models.study.cluster import Study
from models.study.fits import fit, last_fit
from models.study.windows import Window
from models.tracking import registered
from models.tracking import store as mlflow_store
from models.tracking import versions as tracking
from models.tracking.kinds import QUEUE_TIME
from tests.features.submission.logs import generated_log
from tests.models.pair_tables import artifact
from tests.models.publishing import (
    BETTER,
    FIRST,
    WORSE,
    WRITES,
    State,
    beside,
    in_child,
    kills,
    released,
    warm_up,
)  # fmt: skip
from tests.models.toy_study import WINDOW, toy_study
from traces.clusters import ClusterSettings
from traces.store import warehouse
from traces.store.folder import DataFolder
from traces.units import DAY_S

POLICIES = ["reactive", "average-wait"]
SELECT, REPORT = Window(8 * DAY_S, 9 * DAY_S, 1800), Window(9 * DAY_S, 10 * DAY_S, 1800)
ALL_WRITES = (*WRITES, (MlflowClient, "log_inputs"), (os, "rename"))
MACHINE = ClusterSettings(name="lab", timezone="UTC", nodes=4, gpus_per_node=4)
METHODS = ("limits", "partition-median", "trout-boosting")
NEWER = artifact("estimate-ratio", (1.0,), 1.0, policy="start-expected")
IS_LONG = "BATON_KILLS" in os.environ  # else a few kills of each kind


# -- training and evaluation ------------------------------------------------------------------------------------------


def train(data: DataFolder) -> None:
    """As `baton train`."""
    fit(toy_study(data.root), POLICIES, WINDOW)


def evaluate(data: DataFolder) -> None:
    """As `baton evaluate`, of the policies trained last."""
    study: Study = toy_study(data.root)
    trained = [one for name in POLICIES for one in last_fit(study, name)[0]]
    compared = comparisons.compare_on(study, trained, REPORT, SELECT)
    comparisons.remember_comparison(study, trained, compared, REPORT, SELECT, {"curve.png": b"picture"})


def fits_and_runs(data: DataFolder) -> State:
    """The fits that a study keeps, and all that MLflow holds of them and of their trainings."""
    study, client = toy_study(data.root), mlflow_store.client(data)
    trained = [one for name in POLICIES for one in last_fit(study, name)[0]]
    runs = client.search_runs([mlflow_store.experiment_id(client)])
    of_fits = {one.name: client.get_run(one.run_id) for one in trained}
    parents = {run.data.tags["mlflow.parentRunId"] for run in of_fits.values()}

    def shown(run: Any) -> list[Any]:
        windows = {name: text for name, text in run.data.tags.items() if name.endswith("_window")}
        inputs = sorted((one.dataset.name, one.tags[0].value) for one in run.inputs.dataset_inputs)
        files = sorted(one.path for one in client.list_artifacts(run.info.run_id))
        return [run.info.status, sorted(run.data.metrics), windows, inputs, files]

    return {
        "digests": {one.name: content_digest(one.artifact) for one in trained},
        "fits": {name: shown(run) for name, run in of_fits.items()},
        "trainings": [shown(client.get_run(one))[1:] for one in sorted(parents)],
        "open": sum(run.info.status == "RUNNING" for run in runs),
        "finished": sorted(
            run.data.tags["policy"] for run in runs
            if run.data.tags["baton.kind"] == "fit" and run.info.status == "FINISHED"
        ),
        "left": [str(path) for path in data.artifacts.rglob("*.part")],
    }  # fmt: skip


def trainings(folder: Path) -> list[State]:
    """A training killed anywhere, then the same training."""
    data = DataFolder(shutil.copytree(folder / "empty", folder / "train"))
    assert in_child(lambda: toy_study(data.root).fit_pairs(WINDOW)) == 0
    return kills(data.root, train, train, fits_and_runs, ALL_WRITES)


def evaluations(folder: Path) -> list[State]:
    """An evaluation killed anywhere, then the same evaluation."""
    data = DataFolder(shutil.copytree(folder / "empty", folder / "evaluate"))
    assert in_child(lambda: train(data)) == 0
    assert in_child(lambda: [toy_study(data.root).pairs(one) for one in (SELECT, REPORT)]) == 0
    return kills(data.root, evaluate, evaluate, fits_and_runs, ALL_WRITES, () if IS_LONG else (8,))


# -- releases of queue-time models ------------------------------------------------------------------------------------


def publish(data: DataFolder) -> bool:
    """A release of queue-time models of a generated log; whether it had been made before.

    The judgements and fits are those of the first such release, which takes seconds. They are kept beside the folder.
    """
    for name in ("judge_jobs", "_fitted"):
        setattr(queue_time, name, _kept(data.root.parent, name, getattr(queue_time, name)))
    log: SubmissionLog = generated_log(7, jobs=1200, days=70)
    queue_time.read_log = lambda data, cluster: log  # type: ignore[attr-defined]
    queue_time.METHODS = dict.fromkeys(METHODS, "")  # type: ignore[attr-defined]
    warehouse.made_from = lambda data, cluster: "log"  # type: ignore[assignment,misc]
    found = queue_time.publish(data, ClusterSettings(name="lab", nodes=10))
    assert not isinstance(found, str), found
    return found.reused


def _kept(folder: Path, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, whose results are kept in the folder by the number of the call."""
    numbers = count()

    def call(*arguments: Any) -> Any:
        path = folder / f"{name}-{next(numbers)}.pickle"
        if not path.exists():
            path.write_bytes(pickle.dumps(function(*arguments)))
        return pickle.loads(path.read_bytes())

    return call


def queue_times(data: DataFolder) -> State:
    """What registry, log and tables say of queue-time models; another release finds everything done."""
    reused = publish(data)
    present = tracking.champion(data, "lab", QUEUE_TIME)
    assert present is not None
    numbers = tracking.versions(data, "lab", QUEUE_TIME)
    place = registered.folder(data, "lab", QUEUE_TIME) / "champion"
    versions = [tracking.find_version(data, "lab", number, QUEUE_TIME) for number in numbers]
    client = mlflow_store.client(data)
    runs = client.search_runs([mlflow_store.experiment_id(client)], "attributes.status = 'RUNNING'")
    return {
        "reused": reused,
        "champion": present.tags["method"],
        "versions": [one.tags["method"] for one in versions if one is not None],
        "is_pointed_at": place.resolve().name == str(present.version),
        "log": QUEUE_TIME_DECISIONS.read(data, "lab").select("registered_version", "method", "verdict").rows(),
        "open": len(runs),
    }


def queue_time_releases(folder: Path) -> list[State]:
    """A first release killed anywhere, then the same release."""
    data = DataFolder(shutil.copytree(folder / "empty", folder / "queue-time"))
    first = DataFolder(shutil.copytree(folder / "empty", folder / "first-queue-time"))
    assert in_child(lambda: publish(first)) == 0
    return kills(data.root, publish, publish, queue_times)


# -- rollbacks --------------------------------------------------------------------------------------------------------


def rollbacks(folder: Path) -> list[State]:
    """Beside a release that becomes champion, one that is rejected, and a training; there are two versions before."""
    template = DataFolder(shutil.copytree(folder / "empty", folder / "two"))
    assert not IS_LONG or in_child(lambda: toy_study(template.root).fit_pairs(WINDOW)) == 0
    for candidate in (FIRST, BETTER):
        assert in_child(lambda one=candidate: released(template, one)) == 0  # type: ignore[misc]
    cases: list[tuple[Callable[[DataFolder], object], str]] = [
        (lambda data: released(data, NEWER), "fit"), (lambda data: released(data, WORSE), "fit"), (train, "train"),
    ]  # fmt: skip
    found = []
    for number, (work, stop) in enumerate(cases if IS_LONG else cases[:1]):
        data = DataFolder(shutil.copytree(template.root, folder / f"beside-{number}", symlinks=True))
        found.append(beside(data, partial(work, data), partial(champion.rollback, data, "toy"), (fits, stop)))
    return found


# -- what-ifs ---------------------------------------------------------------------------------------------------------


def ask(data: DataFolder, scheduler: str) -> None:
    """As `baton whatif --schedulers fifo,SCHEDULER`."""
    from models.what_if import gpu_answers
    from models.what_if.schedulers import replays
    from traces.store.refresh import refresh_warehouse

    question = gpu_answers.Question(schedulers=("fifo", scheduler))
    every = gpu_answers.asked(data, MACHINE, question)
    gpu_answers.keep(data, MACHINE, question, every, replays(every, lambda _: None, 1))
    refresh_warehouse(data)


def asked_before(data: DataFolder) -> None:
    """A log in the warehouse, and the answer to another question."""
    from traces.generate.logs import generate_slurm
    from traces.ingest import ingest

    dump = generate_slurm(
        data.root / "raw", jobs=200, weeks=1, nodes=4, gpus_per_node=4, seed=1, steps=False, compress=False
    )
    ingest([dump], cluster=MACHINE, data=data)
    warehouse.build(data)
    ask(data, "srtf")


def answered(data: DataFolder) -> State:
    """What the warehouse holds, and what is left of a killed process."""
    query = "SELECT scheduler, mean_jct_s FROM what_if_schedulers ORDER BY place"
    groups = "SELECT DISTINCT scheduler FROM what_if_groups"
    left = [path.name for path in data.root.rglob(".*") if path.name not in (".locks", ".at-work", ".generated.sha256")]
    return {
        "rows": warehouse.read(data, query).rows(), "groups": warehouse.read(data, groups).rows(), "left": left,
        "jobs": warehouse.read(data, "SELECT count(*) FROM jobs").item(),
    }  # fmt: skip


def ask_again(data: DataFolder) -> None:
    """As `ask`. Before it, what the pipeline would go on using is a whole answer: of one question, or none."""
    from models.what_if import gpu_answers

    found = gpu_answers.kept(data, MACHINE)
    assert found is None or len({frozenset(one["scheduler"]) for one in found}) == 1, found
    ask(data, "sjf")


def what_ifs(folder: Path) -> list[State]:
    """A what-if killed anywhere, then the same what-if."""
    data = DataFolder(folder / "what-if")
    assert in_child(lambda: asked_before(data)) == 0
    return kills(data.root, partial(ask, scheduler="sjf"), ask_again, answered, ALL_WRITES)


CASES = {
    "train": trainings, "evaluate": evaluations, "queue time": queue_time_releases, "rollback": rollbacks,
    "what if": what_ifs,
}  # fmt: skip

if __name__ == "__main__":
    where = Path(sys.argv[1])
    warm_up(where)
    print(json.dumps({what: CASES[what](where) for what in sys.argv[2:]}))
