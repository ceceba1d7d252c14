"""One colour for each thing, the same in every figure, with a light and a dark value.

Figures are drawn with the light values. `to_css` turns each of them into a CSS variable, so that one drawing serves
both. Every value has a contrast of at least 3:1 against its background (4.5:1 for ink and muted).
"""

from __future__ import annotations

import re

# name -> (light, dark); the light values must be distinct, because `to_css` finds colours by them
COLOURS: dict[str, tuple[str, str]] = {
    "ink": ("#1b1f24", "#e8eaed"),
    "muted": ("#5b6470", "#a3abb6"),
    "grid": ("#dfe3e8", "#343a43"),
    "paper": ("#fffffe", "#181b20"),
    # policies
    "reactive": ("#6e7681", "#98a1ad"),
    "average-wait": ("#8f6207", "#d9a441"),
    "start-estimate": ("#1c6dba", "#6cb2f5"),
    "start-expected": ("#0f7d8c", "#4fc3d1"),
    "mirage-average": ("#7c5a2b", "#c9a36b"),
    "forest": ("#1d7f4e", "#5cc98d"),
    "xgboost": ("#bf580e", "#f59a56"),
    "lightgbm": ("#b4282f", "#ff8a80"),
    "fitted-q": ("#3d7a12", "#8fc95c"),
    "dqn": ("#6a40bf", "#b79bff"),
    "policy-gradient": ("#b73480", "#f28bc4"),
    "oracle": ("#1b1f25", "#e8eaee"),
    # players of chains
    "plan": ("#a3340b", "#ff9d73"),
    "plan-time-min": ("#c0392b", "#ff8f85"),
    "plan-elastic": ("#a05a00", "#e8a94f"),
    "longest-hand-over": ("#0b6e5f", "#46c7b2"),
    "longest": ("#31588a", "#8db4e6"),
    "shortest": ("#8a5a2b", "#d8a877"),
    "all-at-once": ("#7a4a8c", "#c99adb"),
    "two-ahead": ("#94324f", "#ee8fac"),
    "singleton": ("#5f6873", "#9aa3ae"),
    # schedulers
    "fifo": ("#6e7682", "#98a1ae"),
    "easy": ("#bf5812", "#f59a5a"),
    "conservative": ("#1d7f51", "#5cc990"),
    "mirage": ("#6a40bb", "#b79bfb"),
    "sjf": ("#b73484", "#f28bc8"),
    "slurm": ("#b42832", "#ff8a83"),
    # recorded data
    "recorded": ("#1c6dbb", "#6cb2f6"),
    "simulated": ("#bf580f", "#f59a57"),
    "fair_share": ("#6a40be", "#b79bfe"),
    "fragmentation": ("#b73481", "#f28bc5"),
    "allocated": ("#1c6dbc", "#6cb2f7"),
    "free": ("#1d7f4f", "#5cc98e"),
    "gang": ("#b42830", "#ff8a81"),
    # states
    "COMPLETED": ("#1d7f50", "#5cc98f"),
    "CANCELLED": ("#8f6208", "#d9a442"),
    "FAILED": ("#b42831", "#ff8a82"),
    "TIMEOUT": ("#6a40bd", "#b79bfd"),
    "NODE_FAIL": ("#b73482", "#f28bc6"),
    "OUT_OF_MEMORY": ("#bf5810", "#f59a58"),
    # ordered classes, small to large
    "class0": ("#2a9d8f", "#7be0d3"),
    "class1": ("#1c6dbd", "#6cb2f8"),
    "class2": ("#6a40bc", "#b79bfc"),
    "class3": ("#b73483", "#f28bc7"),
    "class4": ("#bf5811", "#f59a59"),
    # causes of waits in their order; any two also differ for readers who see no red or no green
    "cause-held": ("#00705e", "#3cc6df"),
    "cause-dependency": ("#122491", "#0e6fa5"),
    "cause-own-jobs": ("#b98109", "#b2ba80"),
    "cause-array-limit": ("#671753", "#845f58"),
    "cause-own-limit": ("#383fec", "#2a52ff"),
    "cause-cluster-full": ("#0297ff", "#c8e2ff"),
    "cause-nodes-down": ("#5c5095", "#8393ff"),
    "cause-fragmented": ("#fd44c7", "#8cf4a3"),
    "cause-reservation": ("#522c00", "#789623"),
    "cause-behind": ("#af3f01", "#ffd116"),
    "cause-unknown": ("#7d8590", "#8a929c"),
    # waits on the heatmap, short to long
    "heat0": ("#e3ecf6", "#323a45"),
    "heat1": ("#c9def3", "#26405c"),
    "heat2": ("#93bfe6", "#2c5f8f"),
    "heat3": ("#f3c26b", "#8a6a1f"),
    "heat4": ("#e88a3c", "#c07a2a"),
    "heat5": ("#c4442e", "#e0654c"),
    "heat6": ("#7d1d3f", "#f2a0b5"),
}
CLASSES = tuple(name for name in COLOURS if name.startswith("class"))
HEAT = tuple(name for name in COLOURS if name.startswith("heat"))
_BY_LIGHT = {light: name for name, (light, _dark) in COLOURS.items()}


def colour(name: str) -> str:
    """Return the light value of `name`, or the muted one for a name that the palette lacks."""
    return COLOURS.get(name, COLOURS["muted"])[0]


def css_variable(name: str) -> str:
    """Return `var(--c-...)` for a name of the palette."""
    return f"var(--c-{name if name in COLOURS else 'muted'})"


def to_css(svg: str) -> str:
    """Replace each colour of the palette in an SVG text by its CSS variable."""
    return re.sub(
        r"#[0-9a-f]{6}\b",
        lambda match: css_variable(_BY_LIGHT[match[0]]) if match[0] in _BY_LIGHT else match[0],
        svg,
    )


def style_sheet() -> str:
    """Return the CSS that declares the variables for light and dark; print is always light."""
    light = "".join(f"--c-{name}:{values[0]};" for name, values in COLOURS.items())
    dark = "".join(f"--c-{name}:{values[1]};" for name, values in COLOURS.items())
    return f":root{{{light}}}\n@media screen and (prefers-color-scheme: dark){{:root{{{dark}}}}}"
