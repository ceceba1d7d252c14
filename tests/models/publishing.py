"""Releases in processes that are killed, or two at once: `python -m tests.models.publishing FOLDER WHAT...`.

mlflow takes seconds to import: it is imported once, and every process is a fork of the one that has it. That one itself
does nothing with polars, whose threads a fork would lack.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from mlflow.tracking import MlflowClient

from agent.artifact import Artifact
from models.provisioning.protocol import PairTable, TrainedPolicy
from models.release import champion
from models.release.log import POLICY_DECISIONS
from models.release.policies import publish
from models.study import comparisons, fits
from models.tracking import registered
from models.tracking import store as mlflow_store
from models.tracking import versions as tracking
from models.tracking.kinds import POLICY
from models.tracking.pyfuncs import save_pyfunc
from tests.models.pair_tables import artifact, context, random_pairs, unlike_days
from traces.store import derived, stamps
from traces.store.folder import DataFolder

State = dict[str, Any]
FIRST = artifact("constant-lead", (0.0,), 0.0, policy="reactive")
WORSE = artifact("constant-lead", (4.0,), 4.0, policy="average-wait")
BETTER = artifact("estimate-ratio", (1.0,), 1.0, policy="start-estimate")
SELECT, REPORT = random_pairs(1, 20), unlike_days(3, 86)
WRITES: tuple[tuple[Any, str], ...] = (
    (MlflowClient, "create_run"),
    (MlflowClient, "log_batch"),
    (MlflowClient, "log_artifacts"),
    (MlflowClient, "create_registered_model"),
    (MlflowClient, "create_model_version"),
    (MlflowClient, "set_terminated"),
    (MlflowClient, "set_model_version_tag"),
    (MlflowClient, "delete_model_version_tag"),
    (MlflowClient, "set_registered_model_tag"),
    (MlflowClient, "set_registered_model_alias"),
    (derived, "write_parquet"),
    (stamps, "write_text"),
    (MlflowClient, "delete_registered_model_alias"),
    (Path, "rename"),  # an exported folder gets its name
    (Path, "replace"),  # and `champion` points at it
)


class Toy(SimpleNamespace):
    """As much of a `Study` as a release asks for."""

    def __init__(self, data: DataFolder, candidate: Artifact) -> None:
        windows = SimpleNamespace(
            fit="fit",
            select=SimpleNamespace(name="select", until_s=int(SELECT.successor_start_s.max()) + 1),
            report="r",
        )
        super().__init__(
            data=data,
            scenario=SimpleNamespace(cluster="toy"),
            windows=windows,
            candidate=candidate,
            policies=[],
            seeing=lambda _: self,
            context=lambda _: context(until_s=0),
        )

    def pairs(self, window: object) -> PairTable:
        return SELECT if window is self.windows.select else REPORT


def fit(study: Toy, *_: object) -> tuple[list[TrainedPolicy], list[str]]:
    return [TrainedPolicy(study.candidate.manifest["policy"], 0, study.candidate, "run", 0.0)], []


def fingerprint(study: Toy, _: list[str]) -> str:
    return str(study.candidate.manifest["policy"])


fits.fit, comparisons.comparison_fingerprint = fit, fingerprint  # type: ignore[assignment]
publish.origin = lambda _: {"world": "plain"}  # type: ignore[assignment]


def released(data: DataFolder, candidate: Artifact = BETTER) -> tuple[int, bool]:
    """Decisions in the log, and whether this one had been taken before."""
    log, reused = publish.publish(Toy(data, candidate))  # type: ignore[arg-type]
    return len(log), reused


def die_before(write: int, writes: Sequence[tuple[Any, str]] = WRITES) -> None:
    """This process kills itself before so many changes of the registry or the log are done."""
    done = count()

    def dying(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            if next(done) == write:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **named)

        return call

    for holder, name in writes:
        setattr(holder, name, dying(getattr(holder, name)))


def state(data: DataFolder) -> State:
    """What the registry and the log say."""
    client = mlflow_store.client(data)
    present = tracking.champion(data, "toy")
    versions = [tracking.find_version(data, "toy", number) for number in tracking.versions(data, "toy")]
    runs = client.search_runs([mlflow_store.experiment_id(client)], "attributes.status = 'RUNNING'")
    log = POLICY_DECISIONS.read(data, "toy")
    challenger = tracking.aliased(data, "toy", tracking.CHALLENGER)
    place = registered.folder(data, "toy")
    return {
        "champion": None if present is None else present.version,
        "challenger": None if challenger is None else challenger.version,
        "folder": (place / "champion").resolve().name if (place / "champion").exists() else None,
        "exported": sorted(one.name for one in place.iterdir()) if place.is_dir() else [],
        "history": json.loads(tracking.model_tag(data, "toy", champion.HISTORY_TAG) or "[]"),
        "versions": [one.tags["policy"] for one in versions if one is not None],
        "rolled_back": [one.version for one in versions if one is not None and champion.ROLLED_BACK_TAG in one.tags],
        "open_runs": len(runs),
        "log": log.select("registered_version", "policy", "verdict", "reason").rows(),
    }


def fork(work: Callable[[], object]) -> int:
    """The id of a process that does the work: exit code 0, or 1 where it raises."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return child


def in_child(work: Callable[[], object]) -> int:
    """The exit code of a process that did the work; -9 where it was killed."""
    return os.waitstatus_to_exitcode(os.waitpid(fork(work), 0)[1])


def looked_at(
    data: DataFolder,
    before: Callable[[DataFolder], object] = lambda _: None,
    state: Callable[[DataFolder], State] = state,
) -> State:
    """What registry and log say to a process that has done something before."""
    result = data.root / "state.json"

    def look() -> None:
        before(data)
        result.write_text(json.dumps(state(data)))

    assert in_child(look) == 0
    found: State = json.loads(result.read_text())
    return found


def kills(
    template: Path,
    work: Callable[[DataFolder], object],
    then: Callable[[DataFolder], object],
    state: Callable[[DataFolder], State] = state,
    writes: Sequence[tuple[Any, str]] = WRITES,
    only: Sequence[int] = (),
) -> list[State]:
    """The work killed before each of its writes in turn (or before these only), then the next command: the end."""
    found: list[State] = []
    for write in only or count():
        data = DataFolder(template.with_name(f"{template.name}-{write}"))
        shutil.copytree(template, data.root, symlinks=True)

        def killed(data: DataFolder = data, write: int = write) -> None:
            die_before(write, writes)
            work(data)

        code = in_child(killed)
        found.append({"write": write, "code": code, **looked_at(data, then, state)})
        if code == 0:
            break
    return found


def first_release(folder: Path) -> list[State]:
    """Into a registry without versions."""
    return kills(folder / "empty", lambda data: released(data, FIRST), lambda data: released(data, FIRST))


def second_release(folder: Path) -> list[State]:
    """Of a better policy than the champion."""
    shutil.copytree(folder / "empty", folder / "one")
    assert in_child(lambda: released(DataFolder(folder / "one"), FIRST)) == 0
    return kills(folder / "one", released, released)


def rollback(folder: Path) -> list[State]:
    """From the second champion to the first, and then a release of the second once more."""
    shutil.copytree(folder / "empty", folder / "two")
    for candidate in (FIRST, BETTER):
        assert in_child(lambda one=candidate: released(DataFolder(folder / "two"), one)) == 0  # type: ignore[misc]
    return kills(folder / "two", lambda data: champion.rollback(data, "toy"), released)


def rejected(folder: Path) -> list[State]:
    """A candidate that the gate does not let through, beside a champion."""
    shutil.copytree(folder / "empty", folder / "no")
    assert in_child(lambda: released(DataFolder(folder / "no"), FIRST)) == 0
    return kills(folder / "no", lambda data: released(data, WORSE), lambda data: released(data, WORSE))


def promotion(folder: Path) -> list[State]:
    """By hand, of the challenger; then a look at it by whoever comes next."""

    def nobody(data: DataFolder) -> None:
        with champion.alone(data, "toy"):
            pass

    shutil.copytree(folder / "empty", folder / "hand")
    for candidate in (FIRST, WORSE):
        assert in_child(lambda one=candidate: released(DataFolder(folder / "hand"), one)) == 0  # type: ignore[misc]
    return kills(folder / "hand", lambda data: champion.promote(data, "toy", 2, "to see"), nobody)


def beside(data: DataFolder, first: Callable[[], object], second: Callable[[], object], stop: tuple[Any, str]) -> State:
    """Run two processes together, and look at the registry after both.

    The first calls the function `stop` (a module and a name in it) only when the second waits for it or has ended; the
    second begins when the first gets there.
    """
    heard, said = os.pipe()  # what the second writes to standard error, and its end

    def stopping() -> None:
        os.close(said)
        real = getattr(*stop)

        def stopped(*arguments: Any, **named: Any) -> Any:
            (data.root / "in-the-middle").touch()
            found = b""
            while b"waiting for the release" not in found and (more := os.read(heard, 1000)):
                found += more
            (data.root / "message").write_bytes(found)
            return real(*arguments, **named)

        setattr(*stop, stopped)
        first()

    def following() -> None:
        os.dup2(said, 2)
        while not (data.root / "in-the-middle").exists():
            time.sleep(0.01)
        second()

    children = [fork(stopping), fork(following)]
    os.close(said)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    return {"codes": codes, "message": (data.root / "message").read_text(), **looked_at(data)}


def at_once(folder: Path) -> list[State]:
    """Two releases of the same: the first stops before it registers."""
    data = DataFolder(folder / "both")
    shutil.copytree(folder / "empty", data.root)
    return [beside(data, lambda: released(data), lambda: released(data), (tracking, "register"))]


def warm_up(folder: Path) -> None:
    """Everything that mlflow imports and remembers late, once for all forks; leaves a store without versions."""
    mlflow_store.initialise(DataFolder(folder / "empty"))
    save_pyfunc(FIRST, folder / "model", POLICY)


CASES = {"first": first_release, "second": second_release, "rollback": rollback, "at once": at_once}
CASES |= {"rejected": rejected, "promotion": promotion}

if __name__ == "__main__":
    where = Path(sys.argv[1])
    warm_up(where)
    print(json.dumps({what: CASES[what](where) for what in sys.argv[2:]}))
