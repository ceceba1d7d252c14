"""AccaSim 1.1.3 (Galleguillos et al., ICPADS 2018) on a workload, for bench_simulator.py. Runs in its own environment.

    python bench/accasim_peer.py TRACE.swf CAPACITY fifo|easy FOLDER

Prints one JSON object: seconds (of `start_simulation` alone) and the starts by job id, read back from its output file.
Its EASY keeps a reservation once made and looks once an instant, so its starts are not ours; those of its FIFO are, and
the benchmark asserts that.
"""

from __future__ import annotations

import collections
import collections.abc
import contextlib
import io
import json
import sys
import time
from datetime import datetime
from pathlib import Path

collections.Mapping = collections.abc.Mapping  # type: ignore[attr-defined]  # as in the Python that AccaSim was written for

from accasim.base.allocator_class import FirstFit  # noqa: E402
from accasim.base.scheduler_class import EASYBackfilling, FirstInFirstOut  # noqa: E402
from accasim.base.simulator_class import Simulator  # noqa: E402


def run(trace: str, capacity: int, scheduler: str, folder: Path) -> dict[str, object]:
    """One node of `capacity` cores: the flat pool in which AccaSim is fastest."""
    system = folder / "system.json"
    system.write_text(
        json.dumps(
            {
                "system_name": "flat",
                "start_time": 0,
                "equivalence": {"processor": {"core": 1}},
                "groups": {"all": {"core": capacity}},
                "resources": {"all": 1},
            }
        )
    )
    dispatcher = {"fifo": FirstInFirstOut, "easy": EASYBackfilling}[scheduler](FirstFit())
    simulator = Simulator(
        trace,
        str(system),
        dispatcher,
        scheduling_output=True,
        statistics_output=False,
        show_statistics=False,
        RESULTS_FOLDER_PATH=str(folder),
        LOG_LEVEL="ERROR",
    )
    before = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):
        simulator.start_simulation()
    seconds = time.perf_counter() - before
    return {"seconds": seconds, "starts": starts_of(folder / f"sched-{Path(trace).name}")}


def starts_of(schedule: Path) -> dict[str, int]:
    """Job id -> start, s, from lines of `id;user;submit__nodes__start;end;...` with times in UTC."""
    starts = {}
    for line in schedule.read_text().splitlines():
        begun = line.rsplit("__", 1)[1].split(";", 1)[0]
        starts[line.split(";", 1)[0]] = int(datetime.fromisoformat(begun + "+00:00").timestamp())
    return starts


if __name__ == "__main__":
    trace, capacity, scheduler, folder = sys.argv[1:]
    print(json.dumps(run(trace, int(capacity), scheduler, Path(folder))))
