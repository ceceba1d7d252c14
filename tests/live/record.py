"""Record a real dump as a test fixture: python -m tests.live.record OUT.psv.gz (as root, after make system)."""

from __future__ import annotations

import gzip
import sys
import tempfile
from pathlib import Path

from tests.live.slurm import Slurm, missing
from tests.live.workload import DUMP, submit_all


def main(out: Path) -> None:
    reason = missing()
    if reason:
        sys.exit(reason)
    with tempfile.TemporaryDirectory(prefix="baton-slurm-") as folder:
        Path(folder).chmod(0o755)
        slurm = Slurm(Path(folder))
        try:
            slurm.up()
            submit_all(slurm)
            dump = slurm.run(*DUMP)
            version = slurm.run("sacct", "--version").strip()
        finally:
            slurm.down()
    with out.open("wb") as raw, gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as file:
        file.write(dump.encode(errors="surrogateescape"))
    print(f"{version}: {dump.count(chr(10))} lines -> {out}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
