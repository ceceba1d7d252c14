"""The picture of a change: the waits and the queue of the judged weeks, as recorded, unchanged and changed."""

from __future__ import annotations

from typing import Any

import numpy as np

from models.what_if.recorded.outcomes import RecordedOutcome, recorded_wait_s
from simulator.metrics import mean_level
from traces.units import DAY_S

POINTS = 240  # of a curve


def curves(base: RecordedOutcome, changed: RecordedOutcome) -> dict[str, dict[str, list[float]]]:
    """Return columns of POINTS values under `waits` and `queue`, of the jobs that both replays hold.

    `at` is the share of jobs that wait at most so long (s), or the end of a period in days since the first submission,
    in which so many jobs wait in the mean; periods are equally long. `recorded`, `unchanged` and `changed` hold these.
    """
    scene = base.scene
    jobs = scene.judged & scene.present & changed.scene.present
    submit_s = scene.record.submit_s[jobs]
    edges_s = np.linspace(submit_s.min(), scene.until_s, POINTS + 1)
    shares = np.linspace(0.0, 1.0, POINTS)
    waits, queue = {"at": shares.tolist()}, {"at": ((edges_s[1:] - edges_s[0]) / DAY_S).tolist()}
    up, down = np.ones(len(submit_s), np.int64), -np.ones(len(submit_s), np.int64)
    all_waits_s = {"recorded": recorded_wait_s(scene), "unchanged": base.wait_s, "changed": changed.wait_s}
    for name, every_wait_s in all_waits_s.items():
        wait_s = every_wait_s[jobs]
        waits[name] = np.quantile(wait_s, shares, method="inverted_cdf").tolist()
        times_s = np.concatenate([submit_s, (submit_s + wait_s).astype(np.int64)])
        queue[name] = mean_level(times_s, np.concatenate([up, down]), edges_s).tolist()
    return {"waits": waits, "queue": queue}


def curve_rows(drawn: dict[str, Any]) -> list[dict[str, Any]]:
    """Make a row of every point of `curves`, with the other entries of `drawn` in each."""
    same = {name: value for name, value in drawn.items() if name not in ("waits", "queue")}
    return [
        {**same, "curve": curve, "point": point, **dict(zip(drawn[curve], values, strict=True))}
        for curve in ("waits", "queue")
        for point, values in enumerate(zip(*drawn[curve].values(), strict=True), 1)
    ]
