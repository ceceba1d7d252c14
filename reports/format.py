"""Formatting of values for a person. Every function formats None as a dash."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from functools import partial
from typing import Any

from traces.visible import visible

MISSING = "–"


def duration(seconds: float | None) -> str:
    """Format seconds in at most two units: 42 s, 7 min, 3 h 20 min, 2 d 4 h. A negative one keeps its sign."""
    if seconds is None:
        return MISSING
    sign, rest = ("-" if seconds < 0 else ""), abs(seconds)
    if rest < 10 and rest != int(rest):
        return f"{sign}{rest:.1f} s"
    if rest < 59.5:
        return f"{sign}{rest:.0f} s"
    minutes = round(rest / 60)
    if minutes < 60:
        return f"{sign}{rest / 60:.1f} min" if rest < 570 else f"{sign}{minutes} min"
    if minutes < 48 * 60:
        return f"{sign}{minutes // 60} h" + (f" {minutes % 60} min" if minutes % 60 else "")
    hours = round(minutes / 60)
    return f"{sign}{hours // 24:,} d" + (f" {hours % 24} h" if hours % 24 else "")


def count(value: float | None) -> str:
    """Format an integer with thousands separators."""
    return MISSING if value is None else f"{round(value):,}"


def number(value: float | None) -> str:
    """Format a number: two decimals below 100, three digits below 1,000, thousands separators above."""
    if value is None:
        return MISSING
    if value != 0 and abs(value) < 0.005:
        return f"{value:.1g}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}" if abs(value) >= 100 else f"{value:.2f}"


def interval(ends: Sequence[float] | None) -> str:
    """Format both ends of an interval with two decimals."""
    return MISSING if ends is None else f"{ends[0]:.2f} to {ends[1]:.2f}"


def interval_s(ends: Sequence[float] | None) -> str:
    """Format both ends of an interval of seconds."""
    return MISSING if ends is None else f"{duration(ends[0])} to {duration(ends[1])}"


def percent(share: float | None) -> str:
    """Format a share in 0..1 as a percentage."""
    return MISSING if share is None else f"{100 * share:.1f} %"


def size(number_of_bytes: float | None) -> str:
    """Format bytes as B, kB, MB or GB (powers of 1,000)."""
    if number_of_bytes is None:
        return MISSING
    value = float(number_of_bytes)
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"


def moment(value: datetime | date | None) -> str:
    """Format a time to the minute; the tables are in UTC."""
    if value is None:
        return MISSING
    return f"{value:%Y-%m-%d %H:%M}" if isinstance(value, datetime) else f"{value:%Y-%m-%d}"


def day(value: datetime | None) -> str:
    """Format the date alone."""
    return MISSING if value is None else f"{value:%Y-%m-%d}"


def unit_time(seconds: float | None, unit: str = "GPU") -> str:
    """Format seconds of a unit (GPU, core, GiB or node) as its hours."""
    return MISSING if seconds is None else f"{number(seconds / 3600)} {unit} h"


def sentence(words: str) -> str:
    """Begin words with a capital; later capitals, as of names, stay."""
    return words[:1].upper() + words[1:]


def text(value: object) -> str:
    """Make untrusted text visible: control and direction characters become escapes.

    The template escapes HTML.
    """
    if value is None:
        return MISSING
    return visible(str(value))


FORMATS: dict[str, Any] = {
    "text": text,
    "name": text,
    "code": text,
    "interval": interval,
    "interval_s": interval_s,
    "count": count,
    "number": number,
    "duration": duration,
    "percent": percent,
    "bytes": size,
    "utc": moment,
    **{f"{unit.lower()}_time": partial(unit_time, unit=unit) for unit in ("GPU", "core", "GiB", "node")},
}
