"""Values, names and files as parts of an SQL statement."""

from __future__ import annotations

import glob
from pathlib import Path


def sql_text(value: str) -> str:
    """The value as an SQL string literal."""
    return "'" + value.replace("'", "''") + "'"


def sql_name(value: str) -> str:
    """The value as a quoted SQL identifier."""
    return '"' + value.replace('"', '""') + '"'


def parquet(*paths: Path) -> str:
    """Those files, and no others that a name with `*` or `[` would be a pattern of, as a table of an SQL statement."""
    return f"read_parquet([{', '.join(sql_text(glob.escape(str(path))) for path in paths)}])"
