"""Metadata of assets in the UI: figures that it plots over time, tables, small plots and links."""

import base64
import io
import math
from collections.abc import Mapping
from typing import Any

import dagster as dg
import polars as pl

from traces.counted import counted

SHOWN_ROWS, CELL_LENGTH = 20, 60
DIGITS = 5  # significant digits of a float; the tables hold full precision
Cell = str | int | float | bool | None


def table(frame: pl.DataFrame, rows: int = SHOWN_ROWS, length: int = CELL_LENGTH) -> dg.TableMetadataValue:
    """Return the first rows as a table; text is cut, and a last row says how many rows are not shown.

    The UI shows every cell as plain text, so user text cannot act as markup.
    """
    head = frame.head(rows)
    records = [
        dg.TableRecord({name: _cell(value, length) for name, value in row.items()})
        for row in head.iter_rows(named=True)
    ]
    if len(frame) > rows and head.columns:
        rest: dict[str, Cell] = dict.fromkeys(head.columns)
        records.append(dg.TableRecord(rest | {head.columns[0]: f"... {counted(len(frame) - rows, 'more row')}"}))
    columns = [dg.TableColumn(name, _type(dtype)) for name, dtype in head.schema.items()]
    return dg.MetadataValue.table(records, dg.TableSchema(columns))


def figure_metadata(frame: pl.DataFrame) -> dg.TableMetadataValue:
    """Return key figures of every column as a table: known rows, distinct values, least, median, most.

    Text has no useful order, so it has only distinct values.
    """
    rows = []
    for column in frame.get_columns():
        known = column.drop_nulls()
        ordered = known.dtype.is_numeric() or known.dtype.is_temporal()
        middle = (known.min(), known.median(), known.max()) if ordered and len(known) else (None, None, None)
        rows.append((column.name, len(known), known.n_unique(), *(None if v is None else _figure(v) for v in middle)))
    kinds = dict.fromkeys(("column", "known", "distinct", "least", "median", "most"), pl.String)
    kinds |= {"known": pl.Int64, "distinct": pl.Int64}  # type: ignore[dict-item]
    return table(pl.DataFrame(rows, schema=kinds, orient="row"), rows=len(rows))


def numbers(**named: float | int | None) -> dict[str, Any]:
    """Return figures that the UI plots over materializations, as int or float; None and NaN are left out."""
    known = {name: value for name, value in named.items() if value is not None and math.isfinite(value)}
    return {
        name: dg.MetadataValue.int(value) if isinstance(value, int) else dg.MetadataValue.float(_rounded(value))
        for name, value in known.items()
    }


def spread_metadata(seconds: pl.Series, name: str) -> dict[str, Any]:
    """Return mean, median and 95th percentile of durations in s as numbers in hours: `name_mean_h` and so on."""
    hours = seconds.drop_nulls() / 3600
    summary = {"mean": hours.mean(), "p50": hours.quantile(0.5), "p95": hours.quantile(0.95)}
    return numbers(**{f"{name}_{what}_h": _float(value) for what, value in summary.items()})


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def _float(value: Any) -> float | None:
    return None if value is None else float(value)


def _figure(value: Any) -> str:
    if isinstance(value, float) and not value.is_integer():
        return f"{value:,.4g}"
    return f"{value:,.0f}" if isinstance(value, int | float) else str(value)


def _cell(value: Any, length: int) -> Cell:
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return _rounded(value) if math.isfinite(value) else None
    return " ".join(str(value).split())[:length]


def _type(dtype: pl.DataType) -> str:
    if dtype.is_integer():
        return "int"
    return "float" if dtype.is_float() else "bool" if dtype == pl.Boolean else "string"


def png(series: Mapping[str, tuple[Any, Any]], *, x: str, y: str, log_x: bool = False) -> bytes:
    """Draw lines of (x, y) by label as a small picture."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3), layout="constrained")
    axes = figure.subplots()
    for label, (xs, ys) in series.items():
        axes.plot(xs, ys, label=label, linewidth=1)
    axes.set(xlabel=x, ylabel=y, xscale="symlog" if log_x else "linear")
    if len(series) > 1:
        axes.legend(fontsize=7)
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=80)
    return drawn.getvalue()


def plot(series: Mapping[str, tuple[Any, Any]], *, x: str, y: str, log_x: bool = False) -> dg.MarkdownMetadataValue:
    """Return `png` inside Markdown, so that the UI shows it without another file."""
    return picture(png(series, x=x, y=y, log_x=log_x), y)


def picture(drawn: bytes, title: str) -> dg.MarkdownMetadataValue:
    """Return a PNG inside Markdown."""
    return dg.MetadataValue.md(f"![{title}](data:image/png;base64,{base64.b64encode(drawn).decode()})")


def materialization(
    *, rows: int, reused: bool = False, key: dg.AssetKey | None = None, version: str | None = None, **metadata: Any
) -> dg.MaterializeResult[None]:
    """Return a materialization with its row count, and whether it was reused.

    `version` is the fingerprint of its inputs. If it stays the same, downstream assets are not outdated.
    """
    counts: dict[str, Any] = {"dagster/row_count": rows, "reused": dg.MetadataValue.bool(reused)}
    data_version = None if version is None else dg.DataVersion(version)
    return dg.MaterializeResult(asset_key=key, metadata={**counts, **metadata}, data_version=data_version)
