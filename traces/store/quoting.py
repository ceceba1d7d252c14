"""Quote values, names and file paths for SQL statements."""

from __future__ import annotations

import glob
from pathlib import Path


def sql_text(value: str) -> str:
    """Return the value as an SQL string literal."""
    return "'" + value.replace("'", "''") + "'"


def sql_value(value: str | float | None) -> str:
    """Return text, a finite number or None as an SQL literal."""
    if isinstance(value, str):
        return sql_text(value)
    return "NULL" if value is None else repr(value)


def sql_name(value: str) -> str:
    """Return the value as a quoted SQL identifier."""
    return '"' + value.replace('"', '""') + '"'


def parquet(*paths: Path) -> str:
    """Return a table expression for exactly these Parquet files; `*` and `[` in names are not read as patterns."""
    return f"read_parquet([{', '.join(sql_text(glob.escape(str(path))) for path in paths)}])"
