"""Drawings: functions that turn arrays into inline SVG text (matplotlib's object interface, no global state).

Colours come from `reports.palette` and become CSS variables. No user text goes into a drawing.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from features.conventions import ORACLE
from reports.palette import CLASSES, HEAT, colour, to_css

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH_IN, HEIGHT_IN = 5.2, 3.1  # small, so that text stays readable when a phone shrinks the drawing
MOST_POINTS = 300
_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.size": 9.5,
    "axes.edgecolor": colour("muted"),
    "axes.labelcolor": colour("ink"),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": colour("grid"),
    "grid.linewidth": 0.8,
    "xtick.color": colour("muted"),
    "ytick.color": colour("muted"),
    "text.color": colour("ink"),
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.linewidth": 1.7,
}
_TIME_TICKS_S = {1: "1 s", 60: "1 min", 600: "10 min", 3600: "1 h", 36_000: "10 h", 345_600: "4 d", 3_456_000: "40 d"}
HEAT_BOUNDS_S = (0, 60, 600, 3600, 4 * 3600, 12 * 3600, 24 * 3600, np.inf)
HEAT_LABELS = ("under 1 min", "1 to 10 min", "10 min to 1 h", "1 to 4 h", "4 to 12 h", "12 to 24 h", "over 24 h")
_TICKS = (0, 0.1, 0.2, 0.5, 1, 1.5, 2, 3, 5, 10, 20, 50, 100)
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")


def _drawing(paint: Callable[[Axes], None], *, name: str, height_in: float = HEIGHT_IN) -> str:
    """Run `paint` on fresh axes and return the SVG element; `name` makes its ids unique in the page and stable."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    style: Any = {**_STYLE, "svg.hashsalt": name}  # the stubs want every key as a literal
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
        FigureCanvasSVG(figure)
        paint(figure.add_subplot())
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    return _inline(buffer.getvalue(), name)


def _inline(svg: str, name: str) -> str:
    """Reduce an SVG file to what belongs in an HTML page: no prolog, metadata, global style or fixed size."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<style[^>]*>.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<svg [^>]*?(viewBox="[^"]+")[^>]*>', r'<svg \1 aria-hidden="true">', svg, count=1)
    # matplotlib gives groups the same ids in every file (axes_1, text_3, ...), which would clash in one page
    svg = re.sub(r'<g id="[^"]*">', "<g>", svg)
    svg = re.sub(r" font-family: [^;\"]*;", "", svg)
    svg = re.sub(r"-?\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}", svg)
    svg = svg.replace("xlink:href", "href")
    svg = re.sub(r'(id="|"#|url\(#)', rf"\g<1>{name}-", svg)
    return re.sub(r"\n\s*", "\n", to_css(svg)).strip()


def ecdf(
    name: str,
    curves: Mapping[str, tuple[NDArray[np.float64], str]],
    x_label: str,
    dashed: Sequence[str] = (),
    of: str = "jobs",
) -> str:
    """Plot the share of jobs (or `of`) at or under a duration, on a log axis; zeros count as 1 s.

    `curves`: label -> (seconds of shape (n,), colour name).
    """

    def paint(axes: Axes) -> None:
        for label, (values, tint) in curves.items():
            shares = np.linspace(0.0, 1.0, min(MOST_POINTS, max(2, len(values))))
            xs = np.quantile(np.maximum(values, 1.0), shares, method="inverted_cdf")
            style = (0, (4, 2)) if label in dashed else "solid"
            axes.step(xs, shares, where="post", color=colour(tint), label=label, linestyle=style)
        _time_axis(axes)
        axes.set(xlabel=x_label, ylabel=f"share of {of}", ylim=(0, 1.02))
        axes.yaxis.set_major_formatter(lambda share, _position: f"{100 * share:.0f} %")
        axes.legend(loc="lower right" if len(curves) < 4 else "best")

    return _drawing(paint, name=name)


def _time_axis(axes: Axes) -> None:
    from matplotlib.ticker import NullLocator

    axes.set_xscale("log")
    low, high = axes.get_xlim()
    axes.set_xlim(max(low, 0.9), max(high, 120))
    ticks = [tick for tick in _TIME_TICKS_S if tick <= axes.get_xlim()[1]]
    axes.set_xticks(ticks, [_TIME_TICKS_S[tick] for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())


def heatmap(name: str, seconds: NDArray[np.float64]) -> str:
    """Plot seconds by hour of the week, shape (7, 24), in seven classes; NaN where nothing was submitted."""
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    def paint(axes: Axes) -> None:
        classes = np.searchsorted(np.asarray(HEAT_BOUNDS_S[1:]), seconds, side="right").astype(float)
        classes[np.isnan(seconds)] = np.nan
        colours = ListedColormap([colour(tint) for tint in HEAT])
        axes.pcolormesh(np.ma.masked_invalid(classes), cmap=colours, vmin=-0.5, vmax=len(HEAT) - 0.5, edgecolors="none")
        axes.set(yticks=np.arange(7) + 0.5, xticks=np.arange(0, 25, 4), xlabel="hour of submission (local time)")
        axes.set_yticklabels(WEEKDAYS)
        axes.invert_yaxis()
        axes.grid(visible=False)
        axes.tick_params(length=0)
        used = sorted({int(value) for value in classes[~np.isnan(classes)]})
        axes.legend(
            handles=[Patch(color=colour(HEAT[index]), label=HEAT_LABELS[index]) for index in used],
            loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4, handlelength=1, columnspacing=1, fontsize=8.5,
        )  # fmt: skip

    return _drawing(paint, name=name)


def over_time(
    name: str,
    times: Sequence[Any],
    series: Mapping[str, tuple[NDArray[np.float64], str]],
    y_label: str,
    *,
    fill: bool = False,
    as_share: bool = False,
) -> str:
    """Plot series over naive UTC times, each as the mean over at most `MOST_POINTS` equal runs of rows.

    `series`: label -> (values, colour name); NaN breaks a line.
    """

    def paint(axes: Axes) -> None:
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

        stamps = np.asarray(times, dtype="datetime64[s]").astype("int64")
        pieces = np.array_split(np.arange(len(stamps)), min(MOST_POINTS, len(stamps)))
        at = np.array([stamps[piece].mean() for piece in pieces]).astype("datetime64[s]")
        for label, (values, tint) in series.items():
            means = np.array([_mean(values[piece]) for piece in pieces])
            axes.plot(at, means, color=colour(tint), label=label, linewidth=1.4)
            if fill:
                axes.fill_between(at, means, color=colour(tint), alpha=0.18, linewidth=0)
        locator = AutoDateLocator(minticks=3, maxticks=7)  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
        axes.set_ylabel(y_label)
        axes.set_ylim(0, 1.03 if as_share else None)
        if as_share:
            axes.yaxis.set_major_formatter(lambda share, _position: f"{100 * share:.0f} %")
        if len(series) > 1:
            axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)

    return _drawing(paint, name=name)


_STEP_DAYS = {"hour": 1 / 24, "day": 1.0, "week": 7.0, "month": 28.0}


def stacked(
    name: str, times: Sequence[Any], step: str, series: Mapping[str, tuple[NDArray[np.float64], str]], y_label: str
) -> str:
    """Plot stacked bars, one per `step` (hour, day, week or month) that begins at a naive UTC time.

    `series`: label -> (values of shape (times,), colour name), stacked upwards in that order.
    """

    def paint(axes: Axes) -> None:
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num

        at = date2num(np.asarray(times, dtype="datetime64[s]"))  # type: ignore[no-untyped-call]
        floor = np.zeros(len(at))
        for label, (values, tint) in series.items():
            axes.bar(at, values, 0.86 * _STEP_DAYS[step], floor, align="edge", color=colour(tint), label=label)
            floor = floor + values
        axes.xaxis_date()
        locator = AutoDateLocator(minticks=3, maxticks=7)  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
        axes.yaxis.set_major_formatter(
            lambda hours, _position: f"{hours:,.0f}" if hours >= 1 or not hours else f"{hours:g}"
        )
        axes.set_ylabel(y_label)
        axes.grid(visible=False, axis="x")
        if len(series) > 1:
            axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, handlelength=1, columnspacing=1)

    return _drawing(paint, name=name)


def _mean(values: NDArray[np.float64]) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")


def shares(name: str, labels: Sequence[str], groups: Mapping[str, Sequence[float]], tints: Sequence[str]) -> str:
    """Plot horizontal stacked shares: one bar per group, one piece per label.

    `groups`: bar -> shares in 0..1, in the order of `labels`.
    """

    def paint(axes: Axes) -> None:
        left = np.zeros(len(groups))
        for index, label in enumerate(labels):
            widths = np.array([values[index] for values in groups.values()])
            bars = axes.barh(list(groups), widths, left=left, height=0.62, color=colour(tints[index]), label=label)
            words = [f"{100 * width:.0f} %" if width >= 0.08 else "" for width in widths]
            axes.bar_label(bars, words, label_type="center", color=colour("paper"), fontsize=9)
            left += widths
        axes.set_xlim(0, 1)
        axes.xaxis.set_major_formatter(lambda share, _position: f"{100 * share:.0f} %")
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0)
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, handlelength=1, columnspacing=1)

    return _drawing(paint, name=name, height_in=1.1 + 0.42 * len(groups) + 0.2 * ((len(labels) + 2) // 3))


def pareto(
    name: str,
    curves: Mapping[str, tuple[NDArray[np.float64], NDArray[np.float64]]],
    chosen: Mapping[str, tuple[float, float]],
) -> str:
    """Plot mean interruption against mean overlap, h per pair: one curve per policy, a ring at the chosen setting.

    `curves`: policy -> (overlap h, interruption h) in order of overlap; `chosen`: policy -> one such point.
    """

    def paint(axes: Axes) -> None:
        for index, (policy, (overlap, interruption)) in enumerate(curves.items()):
            is_bound = policy == ORACLE
            axes.plot(
                overlap, interruption, color=colour(policy), label=policy, zorder=4 if is_bound else 3,
                marker="*" if is_bound else MARKERS[index % len(MARKERS)], markersize=8 if is_bound else 4,
                linestyle=(0, (4, 2)) if is_bound else "solid", linewidth=1.3,
            )  # fmt: skip
        for policy, point in chosen.items():
            axes.plot(*point, marker="o", markersize=10, markerfacecolor="none", color=colour(policy), zorder=5)
        axes.set(
            xlabel="mean overlap, h per pair (linear to 1 h, then logarithmic)", ylabel="mean interruption, h per pair"
        )
        axes.set_xscale("symlog", linthresh=1.0, linscale=1.0)
        ticks = [tick for tick in (0, 0.25, 0.5, 1, 2, 5, 10, 20, 40) if tick <= axes.get_xlim()[1]]
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
        axes.set_xlim(left=-0.05)
        axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
        axes.legend(loc="upper right", fontsize=8.5)

    return _drawing(paint, name=name, height_in=3.6)


def intervals(name: str, ends: Mapping[str, tuple[float, float, float]], x_label: str) -> str:
    """Plot mean and interval of each policy, on a log axis (linear to 0.1). `ends`: policy -> (mean, low, high)."""

    def paint(axes: Axes) -> None:
        for place, (policy, (mean, low, high)) in enumerate(ends.items()):
            axes.hlines(place, low, high, color=colour(policy), linewidth=2.4, alpha=0.6)
            axes.plot(mean, place, "o", color=colour(policy), markersize=5)
        axes.set_yticks(range(len(ends)), list(ends))
        axes.set_xscale("symlog", linthresh=_TICKS[1])
        lowest = 0.9 * min(low for _, low, _ in ends.values()) or -0.02
        axes.set(xlabel=x_label, xlim=(lowest, axes.get_xlim()[1]))
        ticks = [tick for tick in _TICKS if lowest <= tick <= axes.get_xlim()[1]]
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")

    return _drawing(paint, name=name, height_in=0.9 + 0.24 * len(ends))


def over_days(
    name: str, edges_d: NDArray[np.float64], series: Mapping[str, tuple[NDArray[np.float64], str]], y_label: str
) -> str:
    """Plot means between neighbouring edges, in days since the first submission, one line per series.

    `edges_d` has shape (bins + 1,); `series`: label -> (values of shape (bins,), colour name).
    """

    def paint(axes: Axes) -> None:
        for label, (values, tint) in series.items():
            axes.stairs(values, edges_d, color=colour(tint), label=label, linewidth=1.2, baseline=None)
        axes.set(xlabel="days since the first submission", ylabel=y_label, xlim=(edges_d[0], edges_d[-1]))
        axes.set_ylim(bottom=0)
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4)

    return _drawing(paint, name=name)


def gantt(
    name: str,
    bars: NDArray[np.float64],
    classes: NDArray[np.int64],
    labels: Sequence[str],
    limits: Sequence[float],
    y_label: str,
) -> str:
    """Plot units against hours.

    `bars`, shape (n, 4), are (begin h, length h, first unit, units), and `classes`, shape (n,), select their colours.
    `limits` are the first and last hour shown, and the number of units.
    """

    def paint(axes: Axes) -> None:
        for index in np.unique(classes):
            begin, length, first, units = bars[classes == index].T
            axes.barh(
                first, length, units, begin, align="edge", color=colour(CLASSES[index]), label=labels[index],
                edgecolor=colour("paper"), linewidth=0.4,
            )  # fmt: skip
        axes.set(xlabel="hours since the first submission", ylabel=y_label, xlim=limits[:2], ylim=(0, limits[2]))
        axes.grid(visible=False)
        if len(bars):
            axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4, handlelength=1, columnspacing=1)

    return _drawing(paint, name=name, height_in=3.6)


def predicted(
    name: str,
    low_s: NDArray[np.float64],
    high_s: NDArray[np.float64],
    real_s: NDArray[np.float64],
    is_within: NDArray[np.bool_],
) -> str:
    """Plot actual waits over the predicted band of each, s, all of shape (n,), on log axes; zeros count as 1 s."""

    def paint(axes: Axes) -> None:
        low, high, real = (np.maximum(values, 1.0) for values in (low_s, high_s, real_s))
        for label, tint, chosen in (
            ("as predicted", "recorded", is_within),
            ("not as predicted", "simulated", ~is_within),
        ):
            if chosen.any():
                axes.hlines(real[chosen], low[chosen], high[chosen], color=colour(tint), linewidth=1.2, alpha=0.6)
                axes.plot(high[chosen], real[chosen], "o", color=colour(tint), label=label, markersize=3.5)
        end = max(float(high.max()), float(real.max()), 120.0) * 1.5
        axes.plot((0.9, end), (0.9, end), color=colour("muted"), linestyle=(0, (4, 2)), linewidth=1.0)
        ticks = [tick for tick in _TIME_TICKS_S if tick <= end]
        axes.set(xscale="log", yscale="log", xlim=(0.9, end), ylim=(0.9, end))
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_ticks(ticks, [_TIME_TICKS_S[tick] for tick in ticks])
        axes.minorticks_off()
        axes.set(xlabel="predicted wait, from expected run times to limits", ylabel="actual wait")
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)

    return _drawing(paint, name=name, height_in=3.6)


def sparkline(values: Sequence[float]) -> str:
    """Draw a trend without axes, for a number of the summary; '' under three values. The caller leaves out nulls."""
    if len(values) < 3:
        return ""
    low, high = min(values), max(values)
    spread = (high - low) or 1.0
    step = 100.0 / (len(values) - 1)
    points = " ".join(
        f"{index * step:.1f},{24 - 20 * (value - low) / spread:.1f}" for index, value in enumerate(values)
    )
    return (
        '<svg class="spark" viewBox="0 0 100 28" preserveAspectRatio="none" aria-hidden="true">'
        f'<polyline points="{points}" fill="none" stroke="currentColor" stroke-width="1.6" '
        'vector-effect="non-scaling-stroke"/></svg>'
    )
