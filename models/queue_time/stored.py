"""What answers a person: a fitted distribution beside the cluster as its log leaves it, in one folder. numpy alone.

`manifest.json` holds names and numbers, `arrays.npz` the trees and the state (no pickles). It is made where it is not
there or where the cluster's tables have changed since (`models.queue_time.make`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agent.artifact import json_object, one_line, pack_arrays, read_file, unpack_arrays
from features.snapshot import Snapshot
from models.queue_time.model import Model, Part
from models.queue_time.moves import Moved
from models.queue_time.protocol import Float64s, Int64s

FORMAT_VERSION = 1
MOST_MANIFEST_BYTES, MOST_ARRAY_BYTES = 1 << 25, 1 << 28
TREES = ("feature", "threshold", "child", "value", "root")
SEEN = (
    "pending_nodes", "pending_limit_s", "pending_submit_s", "pending_held", "pending_user", "running_nodes",
    "running_limit_s", "running_start_s", "running_user", "recent_start_s", "recent_wait_s", "recent_nodes",
    "ended_use", "arrived_submit_s", "arrived_node_s",
)  # fmt: skip


@dataclass(frozen=True)
class Stored:
    """A model and the cluster that it is asked about.

    manifest: `cluster`, `unit`, `made_from`, `now_s`, `fitted_on` (rows), `fitted_days`, `capacity`, `usable`,
    `user_max_jobs`, `user_max_nodes`, `origin_s`, `points_per_hour`, `usual_priority`, `longest_limit_s` and
    `partitions` (name to the longest limit of its jobs), `sizes` (bounds of the classes of size), `groups` (for each
    of `index.GROUPS` its names in order), `cpus_a_unit` and `gpus_a_unit`, `users` (name to number).
    """

    manifest: dict[str, Any]
    model: Model
    moved: Moved
    seen: dict[str, NDArray[Any]]
    pending_key: Int64s
    group_first: Int64s  # (groups + 1,)
    group_state: Float64s
    group_oldest_s: Int64s
    typical: NDArray[np.float32]  # (features,) the medians of the fit

    def snapshot(self, nodes: int, limit_s: int, user: int, place: int) -> Snapshot:
        """The cluster of now with the job that is asked about at `place` of the queue."""
        m, now = self.manifest, int(self.manifest["now_s"])
        of_job = (now, 0, now, nodes, limit_s, user, place)  # no predecessor
        limits = (m["user_max_jobs"], m["user_max_nodes"])
        return Snapshot._make((now, m["capacity"], m["usable"], *(self.seen[name] for name in SEEN), *of_job, *limits))

    def save(self, folder: Path) -> None:
        """Write both files; the manifest comes last and tells that the folder is whole."""
        arrays: dict[str, NDArray[Any]] = {f"seen_{name}": column for name, column in self.seen.items()}
        arrays |= {
            "pending_key": self.pending_key, "group_first": self.group_first, "group_state": self.group_state,
            "group_oldest_s": self.group_oldest_s, "typical": self.typical, "moved_of_all": self.moved.of_all,
            "moved_group": np.array(sorted(self.moved.level), np.int64),
            "moved_level": np.array([self.moved.level[one] for one in sorted(self.moved.level)]),
        }  # fmt: skip
        for k, part in enumerate(self.model.parts):
            arrays |= {f"part{k}_{name}": part.trees[name] for name in TREES if part.trees}
            arrays |= {f"part{k}_points": part.points, f"part{k}_start": part.start, f"part{k}_of_class": part.of_class}
        manifest = {
            **self.manifest,
            "format_version": FORMAT_VERSION,
            "relative": [part.relative for part in self.model.parts],
            "base_column": self.model.base_column,
            "longest_s": self.model.longest_s,
            "features": list(self.model.features),
        }
        folder.mkdir(parents=True, exist_ok=True)
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
            parts = []
            for k, relative in enumerate(manifest["relative"]):
                trees = {name: arrays[f"part{k}_{name}"] for name in TREES if f"part{k}_{name}" in arrays}
                points, start = arrays[f"part{k}_points"], arrays[f"part{k}_start"]
                parts.append(Part(points, start, bool(relative), trees, arrays[f"part{k}_of_class"]))
            features = tuple(manifest["features"])
            model = Model(tuple(parts), int(manifest["base_column"]), float(manifest["longest_s"]), features)
            groups = arrays["moved_group"].tolist()
            moved = Moved(dict(zip(groups, arrays["moved_level"], strict=True)), arrays["moved_of_all"])
            seen = {name: arrays[f"seen_{name}"] for name in SEEN}
            return cls(
                manifest, model, moved, seen, arrays["pending_key"], arrays["group_first"], arrays["group_state"],
                arrays["group_oldest_s"], arrays["typical"],
            )  # fmt: skip
