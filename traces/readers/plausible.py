"""Find rows with a number or a time beyond any real cluster's; `traces.schema` holds the bounds."""

from __future__ import annotations

from datetime import datetime, timedelta

import polars as pl

from traces import schema

_TIME = "%Y-%m-%d %H:%M:%S"
_FIRST, _LAST = ((at - datetime(1970, 1, 1)) // timedelta(microseconds=1) for at in (schema.FIRST_UTC, schema.LAST_UTC))


def implausible(rows: pl.DataFrame) -> pl.Series:
    """Return the column `wrong`: the first column of each row that is out of bounds, with the bounds, or null.

    Times are columns that end in `_utc` or `_local`. Numeric columns without a bound in `schema.MOST` are not checked.
    """
    reasons: list[pl.Expr] = []
    for name, kind in rows.schema.items():
        most = schema.most(name)
        if kind.is_numeric() and most is not None:
            allowed, values = (0, most), rows[name]
        elif kind == pl.Datetime and name.endswith(("_utc", "_local")):
            allowed, values = (_FIRST, _LAST), rows[name].cast(pl.Datetime("us")).to_physical()
        else:
            continue
        lowest, highest = values.min(), values.max()
        if lowest is None or (lowest >= allowed[0] and highest <= allowed[1]):  # type: ignore[operator]
            continue
        shown = pl.col(name).dt.to_string(_TIME) if kind == pl.Datetime else pl.col(name)
        span = f"{schema.FIRST_UTC} to {schema.LAST_UTC}" if kind == pl.Datetime else f"0 to {most:,}"
        beyond = (pl.lit(values) < allowed[0]) | (pl.lit(values) > allowed[1])
        reasons.append(pl.when(beyond).then(pl.format(f"{name} {{}} is not from {span}", shown)))
    if not reasons:
        return pl.Series("wrong", [None], dtype=pl.String).new_from_index(0, len(rows))
    return rows.select(pl.coalesce(reasons).alias("wrong"))["wrong"]


def check_plausible(column: str, value: float) -> None:
    """Raise ValueError for a number that `implausible` rejects in that column."""
    most = schema.most(column)
    if most is not None and not 0 <= value <= most:
        raise ValueError(f"{column} {value} is not from 0 to {most:,}")
