"""The entry point `baton`: run the command line if the extra `pipeline` is installed, else say what to install."""

from __future__ import annotations

import sys
from importlib.util import find_spec

NEEDED = ("typer", "polars", "duckdb")  # nothing runs without the first; the others are most often missing


def main() -> None:
    """Run the command line. If it is not installed, print one line without traceback and exit with status 2."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        sys.stderr.write(
            f"baton: {', '.join(missing)} not installed: this is the base installation, which needs only numpy and "
            "loads released policies (`python -m agent FOLDER`); for the command line, install the extra in a "
            "checkout: pip install '.[pipeline]' (or: make setup)\n"
        )
        sys.exit(2)
    from pipelines.process.interrupts import orderly_end

    with orderly_end():
        from pipelines.cli import main as run

        run()


if __name__ == "__main__":
    main()
