"""What a person sees of an asset in the UI: counts, Markdown tables, small plots."""

import base64
import io
from collections.abc import Mapping
from typing import Any

import dagster as dg
import polars as pl

SHOWN_ROWS, CELL_LENGTH = 20, 60
_HARMLESS = str.maketrans({character: f"&#{ord(character)};" for character in "&<>|`[]!*_~#"})


def table(frame: pl.DataFrame, rows: int = SHOWN_ROWS, length: int = CELL_LENGTH) -> dg.MarkdownMetadataValue:
    """The first rows as a Markdown table; user text is cut and cannot break out of its cell."""
    head = frame.head(rows)
    lines = ["| " + " | ".join(_cell(name, length) for name in head.columns) + " |", "|" + " --- |" * len(head.columns)]
    lines += ["| " + " | ".join(_cell(value, length) for value in row) + " |" for row in head.rows()]
    if len(frame) > rows:
        lines += ["", f"{rows} of {len(frame)} rows"]
    return dg.MetadataValue.md("\n".join(lines))


def figures(frame: pl.DataFrame) -> dg.MarkdownMetadataValue:
    """Key figures of every column as a Markdown table: rows that know it, distinct values, least, median, most.

    Text has no order that a person asks for, so it has distinct values alone.
    """
    rows = []
    for column in frame.get_columns():
        known = column.drop_nulls()
        ordered = known.dtype.is_numeric() or known.dtype.is_temporal()
        spread = (known.min(), known.median(), known.max()) if ordered and len(known) else (None, None, None)
        rows.append((column.name, len(known), known.n_unique(), *(None if v is None else _figure(v) for v in spread)))
    kinds = dict.fromkeys(("column", "known", "distinct", "least", "median", "most"), pl.String)
    kinds |= {"known": pl.Int64, "distinct": pl.Int64}  # type: ignore[dict-item]
    return table(pl.DataFrame(rows, schema=kinds, orient="row"), rows=len(rows))


def _figure(value: Any) -> str:
    if isinstance(value, float) and not value.is_integer():
        return f"{value:,.4g}"
    return f"{value:,.0f}" if isinstance(value, int | float) else str(value)


def _cell(value: Any, length: int) -> str:
    text = f"{value:,.3f}" if isinstance(value, float) else "" if value is None else str(value)
    text = " ".join(text.split())[:length]
    return text.translate(_HARMLESS)


def plot(series: Mapping[str, tuple[Any, Any]], *, x: str, y: str, log_x: bool = False) -> dg.MarkdownMetadataValue:
    """Lines of (x, y) by label as a PNG inside Markdown, so that the UI shows it without any other file."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3), layout="constrained")
    axes = figure.subplots()
    for label, (xs, ys) in series.items():
        axes.plot(xs, ys, label=label, linewidth=1)
    axes.set(xlabel=x, ylabel=y, xscale="symlog" if log_x else "linear")
    if len(series) > 1:
        axes.legend(fontsize=7)
    png = io.BytesIO()
    figure.savefig(png, format="png", dpi=80)
    return dg.MetadataValue.md(f"![{y}](data:image/png;base64,{base64.b64encode(png.getvalue()).decode()})")


def shown(
    *, rows: int, reused: bool = False, key: dg.AssetKey | None = None, **metadata: Any
) -> dg.MaterializeResult[None]:
    """A materialization with its row count, and whether it was there already."""
    counts: dict[str, Any] = {"dagster/row_count": rows, "reused": dg.MetadataValue.bool(reused)}
    return dg.MaterializeResult(asset_key=key, metadata={**counts, **metadata})
