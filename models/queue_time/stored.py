"""The stored state for predicting a job's wait: a fitted distribution, and the cluster at the end of its log.

It is a folder, and reading it needs only numpy. `manifest.json` holds names and numbers, `arrays.npz` the state (no
pickles), `model` the distribution in its released form. `models.queue_time.make` makes it if it is missing, or if the
cluster's tables or its champion have changed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agent.distribution import Distribution
from agent.model_folder import json_object, one_line, pack_arrays, read_file, unpack_arrays
from features.snapshot import Snapshot
from models.queue_time.methods.residuals import CUTS_S
from models.queue_time.protocol import LEVELS
from models.queue_time.rolling import Correction
from traces.arrays import Float64s, Int64s

FORMAT_VERSION = 3
MODEL = "model"  # the folder of the distribution
MOST_MANIFEST_BYTES, MOST_ARRAY_BYTES = 1 << 25, 1 << 28
SEEN = (
    "pending_nodes", "pending_limit_s", "pending_submit_s", "pending_held", "pending_user", "running_nodes",
    "running_limit_s", "running_start_s", "running_user", "recent_start_s", "recent_wait_s", "recent_nodes",
    "ended_use", "arrived_submit_s", "arrived_node_s",
)  # fmt: skip
COLUMNS = ("pending_key", "group_first", "group_state", "group_oldest_s", "typical")


@dataclass(frozen=True)
class Stored:
    """A model, and the state of the cluster for which it predicts.

    manifest: `cluster`, `unit`, `made_from`, `champion` (version, None without one), `now_s`, `fitted_on` (rows),
    `fitted_days`, `capacity`, `usable`, `user_max_jobs`, `user_max_nodes`, `origin_s`, `points_per_hour`,
    `usual_priority` and `partitions` (name to the longest limit of its jobs), `groups` (for each of
    `index.GROUPS` its names in order), `cpus_a_unit` and `gpus_a_unit`, `users` (name to number).
    """

    manifest: dict[str, Any]
    model: Distribution
    seen: dict[str, NDArray[Any]]
    pending_key: Int64s
    group_first: Int64s  # (groups + 1,)
    group_state: Float64s
    group_oldest_s: Int64s
    typical: NDArray[np.float32]  # (features,) the medians of the fit
    correction: Correction  # from the outcomes of jobs submitted since the fit

    def snapshot(self, nodes: int, limit_s: int, user: int, place: int) -> Snapshot:
        """The present state of the cluster, with the requested job at `place` of the queue."""
        m, now = self.manifest, int(self.manifest["now_s"])
        return Snapshot(
            now_s=now,
            capacity=m["capacity"],
            usable=m["usable"],
            **self.seen,
            predecessor_start_s=now,  # no predecessor
            predecessor_wait_s=0,
            predecessor_end_s=now,
            successor_nodes=nodes,
            successor_limit_s=limit_s,
            successor_user=user,
            successor_place=place,
            user_max_jobs=m["user_max_jobs"],
            user_max_nodes=m["user_max_nodes"],
        )

    def save(self, folder: Path) -> None:
        """Write the model and both files. The manifest is written last and marks the folder as complete."""
        arrays: dict[str, NDArray[Any]] = {f"seen_{name}": column for name, column in self.seen.items()}
        arrays |= {name: getattr(self, name) for name in COLUMNS}
        arrays |= {"moves": self.correction.moves, "outcomes": self.correction.outcomes}
        manifest = {**self.manifest, "format_version": FORMAT_VERSION}
        folder.mkdir(parents=True, exist_ok=True)
        self.model.save(folder / MODEL)
        for name, content in (
            ("arrays.npz", pack_arrays(arrays)),
            ("manifest.json", json.dumps(manifest, sort_keys=True, allow_nan=False).encode()),
        ):
            part_file = folder / f".{name}.part"
            part_file.write_bytes(content)
            part_file.replace(folder / name)

    @classmethod
    def load(cls, folder: Path) -> Stored:
        """Read what `save` wrote. Raises ValueError, one line, for anything else."""
        with one_line(f"{folder}: unreadable prediction model"):
            manifest = json_object("manifest.json", read_file(folder / "manifest.json", MOST_MANIFEST_BYTES))
            if manifest.get("format_version") != FORMAT_VERSION:
                raise ValueError(
                    f"format_version {manifest.get('format_version')!r}; this program reads {FORMAT_VERSION}"
                )
            arrays = unpack_arrays(read_file(folder / "arrays.npz", MOST_ARRAY_BYTES))
            seen = {name: arrays[f"seen_{name}"] for name in SEEN}
            return cls(
                manifest,
                Distribution.load(folder / MODEL),
                seen,
                **{name: arrays[name] for name in COLUMNS},
                correction=_correction(arrays["moves"], arrays["outcomes"]),
            )


def _correction(moves: NDArray[Any], outcomes: NDArray[Any]) -> Correction:
    """Make the correction. Raises ValueError unless each class has finite moves and a number of outcomes."""
    count = len(CUTS_S) + 1
    if moves.shape != (count, len(LEVELS)) or outcomes.shape != (count,) or outcomes.dtype.kind not in "iu":
        raise ValueError(f"moves must be {len(LEVELS)} numbers, and outcomes one, for each of {count} classes")
    if not np.isfinite(moves).all() or (outcomes < 0).any():
        raise ValueError("moves must be finite, and outcomes no less than 0")
    return Correction(moves, outcomes)
