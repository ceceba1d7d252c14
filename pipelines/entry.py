"""The entry point `baton`: the command line where the extra `pipeline` is installed, else what to install."""

from __future__ import annotations

import sys
from importlib.util import find_spec

NEEDED = ("typer", "polars", "duckdb")  # without the first nothing runs; the others are most likely to be left out


def main() -> None:
    """Run the command line. Exit status 2, one line and no traceback where it is not installed."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        sys.stderr.write(
            f"baton: {', '.join(missing)} not installed: this is the base installation, which holds the loader of "
            "released policies (`python -m agent FOLDER`) and needs numpy alone; for the command line install the "
            "extra, in a checkout: pip install '.[pipeline]' (or: make setup)\n"
        )
        sys.exit(2)
    from pipelines.process.interrupts import orderly_end

    with orderly_end():
        from pipelines.cli import main as run

        run()


if __name__ == "__main__":
    main()
