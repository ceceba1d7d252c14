"""How long an agent takes to play the futures of a decision, and whether they are those that policies were trained on.

    .venv/bin/python -m bench.bench_ahead_agent --data DIR --cluster NAME --from DATE --to DATE [--decisions 40]

Decisions spread evenly over the recorded pairs of the window. Printed are processor seconds a decision, who pended and
ran, and in how many futures the compiled ones start in the same second, and within a minute: a pass comes there also
when a job that was withdrawn from the queue would come again.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from bench.ahead_scenes import scene_of
from features.ahead.played import starts
from features.ahead.summary import FUTURES
from models.ahead.futures import Asked, start_in_futures
from models.ahead.table import asked_of
from models.study.cluster import open_study
from models.study.pair_tables import predecessors_in
from models.study.windows import FIT_DECISION_S, Window
from simulator.recorded.future import STEP_S
from traces import clusters, instants
from traces.store.folder import DataFolder


def main() -> None:
    """Prints a line on the times and one on the agreement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--from", dest="first", required=True)
    parser.add_argument("--to", dest="until", required=True)
    parser.add_argument("--decisions", type=int, default=40)
    given = parser.parse_args()
    data = DataFolder(given.data)
    study = open_study(data, clusters.load(data)[given.cluster], world="calibrated")
    first_s, until_s = (instants.epoch_s(instants.parse(text)) for text in (given.first, given.until))
    window = Window(first_s, until_s, FIT_DECISION_S)
    pairs, (record, predecessors) = study.pairs(window), predecessors_in(data, study.scenario, window)
    every = asked_of(pairs, record, predecessors)
    rows = np.unique(np.linspace(0, len(every) - 1, given.decisions).astype(np.int64))
    asked = Asked(**{name: getattr(every, name)[rows] for name in Asked.__dataclass_fields__})
    compiled = start_in_futures(record, asked)
    took_s, apart_s, there = [], [], []
    for d in range(len(asked)):
        scene = scene_of(record, asked, d)
        began = time.process_time()
        played = starts(scene, FUTURES)
        took_s.append(time.process_time() - began)
        apart_s.append(np.abs(played - compiled[d]))
        there.append((len(scene.pending), len(scene.running)))
    pending, running = np.array(there).max(axis=0)
    print(
        f"{len(asked)} decisions of {len(pairs)} pairs, at most {pending} jobs pending and {running} running: "
        f"median {np.median(took_s):.2f} s, 90 % {np.quantile(took_s, 0.9):.2f} s, longest {max(took_s):.2f} s"
    )
    apart = np.concatenate(apart_s)
    print(
        f"of {apart.size} futures {np.sum(apart == 0)} start in the same second as the compiled ones, "
        f"{np.sum(apart <= STEP_S)} within a minute, all within {apart.max() / 60:.0f} min"
    )


if __name__ == "__main__":
    main()
