"""Count the records of every file under ../shared/traces: a row of Markdown for each file, then the files refused.

.venv/bin/python bench/count_shared_traces.py [FOLDER]
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.results import Benchmark, BenchmarkRun
from traces.clusters import ClusterSettings
from traces.errors import BatonError
from traces.ingest import ingest
from traces.store.folder import DataFolder

SHARED = Path(__file__).resolve().parents[2] / "shared" / "traces"
ZONES = {"tacc-lonestar6": "America/Chicago", "philly": "America/Los_Angeles", "mila-graham": "America/Toronto"}
FIELDS = {  # of dumps without a header
    "pozidriv.log": "jobid jobidraw cluster partition qos account group gid user uid submit eligible start end elapsed "
    "exitcode state nnodes ncpus reqcpus reqmem reqtres alloctres timelimit nodelist jobname"
}
ABOUT = Benchmark(
    "ingest_counts",
    "Records of every shared trace",
    "logs",
    "How many records of each public log Baton reads, and what it takes them for; "
    "records = allocations + steps + samples + duplicates + rejects.",
)
COUNTS = ("rows", "allocations", "steps", "samples", "duplicates", "rejects", "jobs", "attempts")


def main(folder: Path) -> None:
    """Ingest every file below the folder; print and record its counts."""
    refused, record = [], BenchmarkRun(ABOUT)
    print(f"| file | format | {' | '.join(COUNTS).replace('rows', 'records')} |\n|{'---|' * (2 + len(COUNTS))}")
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = path.relative_to(folder)
        cluster = ClusterSettings("shared", timezone=ZONES.get(path.parent.name, "UTC"))
        if path.parent.name == "tacc-lonestar6":
            cluster = replace(cluster, gpus_per_node=3)
        fields = FIELDS[path.name].split() if path.name in FIELDS else None
        with tempfile.TemporaryDirectory() as data:
            try:
                (result,) = ingest([path], cluster=cluster, data=DataFolder(Path(data)), fields=fields)
            except BatonError as error:
                refused.append(f"- `{name}`: {str(error).replace(str(path), path.name)[:160]}")
                continue
        counts = " | ".join(f"{getattr(result, count):,}" for count in COUNTS)
        print(f"| `{name}` | {result.format} | {counts} |", flush=True)
        for count in COUNTS:
            record.add(str(name), count.replace("rows", "records"), getattr(result, count))
    print("\nNo logs, or refused:\n", *refused, sep="\n")
    record.write()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else SHARED)
