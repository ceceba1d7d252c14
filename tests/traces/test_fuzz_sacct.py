"""Mutated lines of real dumps: read or refused, no crash, and the counts add up.

BATON_FUZZ_LINES=1000000 is the long form; -s shows what became of the lines.
"""

from __future__ import annotations

import gzip
import os
import random
import resource
import shutil
from pathlib import Path

import pytest

from traces.clusters import ClusterSettings
from traces.errors import InputError
from traces.ingest import ingest
from traces.store import DataFolder

RECORDED = Path(__file__).resolve().parents[1] / "fixtures" / "traces" / "slurm-22.05-recorded.psv.gz"
SAMPLE = Path(__file__).resolve().parents[2] / "data" / "sample" / "slurm" / "sacct-generated-1.psv.gz"
LINES = int(os.environ.get("BATON_FUZZ_LINES", "3000"))  # that are mutated, in all
FILE_LINES = 2_000 if LINES < 100_000 else 20_000
BITS = (
    b"|", b"||", b"\n", b"\t", b"\r", b"\0", b"\xff", b"\x1f", b"[", b"]",
    b"9" * 20, b"-", b"+", b".", b"UNLIMITED",
    b"None", b"Unknown", b"INVALID", b"2024-02-30T10:00:00",
    "é工".encode(), b"=", b",", b"\"", b" ", b"x" * 1024,
)  # fmt: skip


def mutated(rng: random.Random, line: bytes) -> bytes:
    """One to three changes: a bit put in, a piece cut out, doubled or moved, a byte replaced."""
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(line) + 1)
        end = min(len(line), at + rng.randint(1, 40))
        how = rng.randrange(5)
        if how == 0:
            line = line[:at] + rng.choice(BITS) + line[at:]
        elif how == 1:
            line = line[:at] + line[end:]
        elif how == 2:
            line = line[:end] + line[at:end] + line[end:]
        elif how == 3:
            line = line[:at] + bytes([rng.randrange(256)]) + line[at + 1 :]
        else:
            fields = line.split(b"|")
            rng.shuffle(fields)
            line = b"|".join(fields)
    return line


@pytest.mark.parametrize("dump", [RECORDED, SAMPLE], ids=["recorded", "generated"])
@pytest.mark.parametrize(("share", "of_all"), [(0.02, 0.02), (0.5, 0.48)], ids=["few", "many"])
def test_mutated_lines(tmp_path: Path, dump: Path, share: float, of_all: float) -> None:
    header, *lines = gzip.decompress(dump.read_bytes()).splitlines()
    changed = seed = printed = rows = rejects = slow = refused = 0
    while changed < LINES * of_all:
        rng = random.Random(f"{dump.name} {share} {seed}")
        chosen = [(rng.choice(lines), rng.random() < share) for _ in range(FILE_LINES)]
        changed += sum(change for _, change in chosen)
        text = b"\n".join([header, *(mutated(rng, line) if change else line for line, change in chosen)])
        path = tmp_path / "dump.psv"
        path.write_bytes(text)
        data = DataFolder(tmp_path / "data")
        try:
            (result,) = ingest(
                [path], cluster=ClusterSettings("lab", timezone="America/Chicago"), data=data, format="sacct"
            )
        except InputError:
            refused += 1  # not one whole record was left
        else:
            # ingest itself refuses counts that do not add up; and no whole line may be lost to its neighbours
            assert result.rows == result.allocations + result.steps + result.duplicates + result.rejects
            assert 0 < result.rows <= text.count(b"\n")
            rows, rejects, slow = rows + result.rows, rejects + result.rejects, slow + result.slow
        shutil.rmtree(data.root)
        printed, seed = printed + len(chosen), seed + 1
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(
        f"\n{dump.name}: {changed:,} of {printed:,} lines mutated: {rows:,} records, {rejects:,} of them refused, "
        f"{slow:,} lines went the slow way, {refused} of {seed} files refused; peak {peak:,} MiB"
    )
    assert peak < 3 << 10  # bounded, whatever came before
