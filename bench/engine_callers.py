"""Works of the engine with one local process and with two: `python bench/engine_callers.py --raw DIR [--runs 3]`.

DIR holds the A100 log of TACC Lonestar6. The works are those of commands: recorded and injected pairs, a search of
hyper-parameters, queue-time methods, what-if replays of the recorded cluster, and the ingest of eight generated dumps.
Each is run in this process first, which compiles and gives the processor time of its tasks, beside the time that the
code expects of them. Then it is run with one process and with two in turn; compiled work takes threads instead. The
results of the runs are asserted to be equal.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.engine_scale import CHANGES, CLUSTER, Step, measuring
from bench.results import Benchmark, BenchmarkRun
from models.engine import engines
from models.engine.local import each_here
from models.engine.raw_files import files_on_engine
from models.engine.work import Engine, Work
from models.provisioning.pairs.injected import build_pairs
from models.provisioning.pairs.recorded import build_recorded_pairs
from models.provisioning.protocol import PairTable
from models.provisioning.scenario import CALIBRATED
from models.provisioning.training.sweep import SearchTrial, sweep
from models.queue_time.registry import METHODS, make_method
from models.queue_time.study import judge_window
from models.study.cluster import open_study
from models.study.pair_tables import predecessors_in
from models.what_if.recorded.answer import answer_recorded, read_recorded_scene
from pipelines.cli import main as baton
from simulator.cluster import plain
from traces import clusters, instants
from traces.cache.digests import digest
from traces.counted import counted
from traces.generate.logs import generate_slurm
from traces.ingest import ingest
from traces.schema import TRACE_FILES
from traces.store.folder import DataFolder

ABOUT = Benchmark(
    "engine_callers",
    "Works of the engine with one local process and with two",
    "speed",
    "Median wall time of works of the A100 log and of eight generated dumps with one process (compiled work: thread) "
    "and with two, in turn, on a machine of two cores; the spread of the runs as a share of the median; the processor "
    "time of their tasks, and what the code expects of them.",
)
PROCESSES = (1, 2)
FROM, TO = "2023-01-01", "2023-02-01"  # pairs are of the weeks before; forecasts are of the month
FILES, TRIALS = 8, 5
Caller = Callable[[Engine, Path], str]  # runs the work with an engine and a new folder; returns a digest of the result


def of_arrays(table: PairTable) -> str:
    """The digest of a table of pairs."""
    return digest(table.successor_start_s.tobytes().hex(), table.observations.tobytes().hex())


def reading(raw: Path, engine: Engine, folder: Path) -> str:
    """Ingest the dumps into a new data folder."""
    engines.engine_on = lambda options: engine
    lab = clusters.ClusterSettings("lab", timezone="UTC")
    results = ingest([raw], cluster=lab, data=DataFolder(folder), each=files_on_engine(folder))
    tables = {
        f"{path.parent.name}/{path.name}": sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*.parquet")
        if path.stem != TRACE_FILES.name  # it has the time that the reading took
    }
    assert len(tables) >= len(results) == FILES
    return digest(tables)


def callers(data: DataFolder, raw: Path) -> dict[str, Caller]:
    """The works by name. What they need of the log is read here."""
    settings = clusters.resolve(data, cluster=CLUSTER)
    from_s, to_s = (instants.epoch_s(instants.parse(day)) for day in (FROM, TO))
    calibrated, injected = (open_study(data, settings, world=world) for world in (CALIBRATED, "plain"))
    window, every = calibrated.fit_window(from_s), injected.fit_window(from_s)
    record, predecessors = predecessors_in(data, calibrated.scenario, window)
    recorded = partial(build_recorded_pairs, record, predecessors, decision_s=window.decision_s)
    build = plain(injected.workload, scheduler="mirage", capacity=injected.scenario.capacity)
    submits_s, of_limit_s = every.starts(injected.scenario.every_s), injected.scenario.limit_s
    made = partial(
        build_pairs, build, submits_s=submits_s, pair_nodes=1, limit_s=of_limit_s, decision_s=every.decision_s
    )
    pairs, scene = recorded(), read_recorded_scene(data, settings)

    def search(engine: Engine, folder: Path) -> str:
        seen: list[SearchTrial] = []
        sweep("dqn", pairs, trials=TRIALS, budget_s=math.inf, journal=folder / "j", record=seen.append, engine=engine)
        return digest([(one.values, one.costs_h, one.pruned) for one in seen])

    def queue_times(engine: Engine, _folder: Path) -> str:
        methods = [make_method(name) for name in METHODS]
        found = judge_window(data, settings, from_s, to_s, methods, leave_out=True, engine=engine)
        return digest({name: one.quantiles_s.tobytes().hex() for name, one in found.forecasts.items()})

    def replays(engine: Engine, _folder: Path) -> str:
        return digest(answer_recorded(scene, CLUSTER, CHANGES, engine=engine).result)

    return {
        "recorded pairs": lambda engine, _folder: of_arrays(recorded(engine=engine)),
        "injected pairs": lambda engine, _folder: of_arrays(made(engine=engine)),
        "search of hyper-parameters": search,
        "queue-time methods": queue_times,
        "what-if replays": replays,
        f"ingest of {counted(FILES, 'file')}": partial(reading, raw),
    }


def measured(caller: Caller, folder: Path) -> tuple[str, list[float], float]:
    """Run the work in this process; returns the digest, the times of its tasks, s, and expected / measured time.

    Works without an estimate, and those whose estimate is the time of earlier tasks (none at first), count with none.
    """
    step, about_s = Step("", ()), list[float]()

    def each(work: Work, most: int) -> Iterator[tuple[int, Any]]:
        about_s.append(work.about_s)
        yield from measuring(step)(work, most)

    found = caller(each, folder)
    known = [(about, sum(times)) for about, times in zip(about_s, step.works, strict=True) if 0 < about < math.inf]
    return found, step.tasks_s, sum(about for about, _ in known) / (sum(took for _, took in known) or math.nan)


def main() -> None:
    """Run every work; print and record the times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--raw", type=Path, required=True, help="folder of the A100 log")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--file-jobs", type=int, default=150_000, help="of each generated dump")
    parser.add_argument("--work", action="append", help="first word of a work, such as recorded; by default all")
    options = parser.parse_args()
    record = BenchmarkRun(ABOUT)
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        shape = {"jobs": options.file_jobs, "weeks": 1, "nodes": 80, "gpus_per_node": 3}
        for seed in range(FILES):
            generate_slurm(place / "raw", seed=seed, steps=False, compress=False, **shape)
        try:
            baton(["--data", str(place / "data"), "ingest", str(options.raw), "--cluster", CLUSTER])
        except SystemExit as end:
            if end.code:
                raise
        for work, caller in callers(DataFolder(place / "data"), place / "raw").items():
            if not options.work or work.split()[0] in options.work:
                compare(work, caller, place, options.runs, record)
    record.write()


def compare(work: str, caller: Caller, place: Path, runs: int, record: BenchmarkRun) -> None:
    """Time the work with each number of processes in turn."""
    found, tasks_s, expected = measured(caller, Path(tempfile.mkdtemp(dir=place)))
    record.add(work, "tasks", sum(tasks_s), "s", n=len(tasks_s))
    record.add(work, "expected / measured", expected)
    seconds: dict[int, list[float]] = {count: [] for count in PROCESSES}
    loads = []
    for _ in range(runs):
        for count in PROCESSES:
            folder = Path(tempfile.mkdtemp(dir=place))
            loads.append(os.getloadavg()[0])
            began = time.perf_counter()
            result = caller(partial(each_here, processes=count), folder)
            seconds[count].append(time.perf_counter() - began)
            assert result == found, f"{work} with {counted(count, 'process')} has another result"
            shutil.rmtree(folder)
    medians = {count: statistics.median(times) for count, times in seconds.items()}
    for count, times in seconds.items():
        record.add(work, counted(count, "process"), medians[count], "s", n=runs)
        record.add(work, f"{counted(count, 'process')}, spread", (max(times) - min(times)) / medians[count])
    record.add(work, "speed-up", medians[1] / medians[2], "times")
    record.add(work, "load average", statistics.median(loads))
    print(f"{work}: {counted(len(tasks_s), 'task')} of {sum(tasks_s):.2f} s, expected / measured {expected:.2f}; "
          f"{seconds} s, load {loads}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
