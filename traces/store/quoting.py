"""Quote values, names and file paths for SQL statements."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TypeAlias


def sql_text(value: str) -> str:
    """Return the value as an SQL string literal."""
    return "'" + value.replace("'", "''") + "'"


SqlValue: TypeAlias = str | float | datetime | Sequence[str] | None


def sql_value(value: SqlValue) -> str:
    """Return text, a finite number, an instant, None or a list of texts as an SQL literal."""
    if isinstance(value, str):
        return " || chr(0) || ".join(map(sql_text, value.split("\0")))  # no literal holds a NUL
    if isinstance(value, datetime):
        return f"{'TIMESTAMP' if value.tzinfo is None else 'TIMESTAMPTZ'} {sql_text(value.isoformat())}"
    if isinstance(value, Sequence):
        return f"[{', '.join(map(sql_value, value))}]"
    return "NULL" if value is None else repr(value)


def sql_name(value: str) -> str:
    """Return the value as a quoted SQL identifier."""
    return '"' + value.replace('"', '""') + '"'


def parquet(*paths: Path) -> str:
    """Return a table expression for exactly these Parquet files; `*` and `[` in names are not read as patterns."""
    return f"read_parquet([{', '.join(sql_text(glob.escape(str(path))) for path in paths)}])"
