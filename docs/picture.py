"""The two pictures of docs/architecture.md (`make docs`): the rooms, from the imports; the data's way, from the assets.

Between the markers of the page everything is written by this module; the rest of the page is written by hand.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from docs.house import ROOT, Rooms, packages, rooms

PAGE = Path(__file__).parent / "architecture.md"
ASSETS = ROOT / "tests" / "golden" / "asset_graph.json"  # a test holds it to what Dagster loads
BEGIN, END = "<!-- {part}: written by make docs -->\n", "<!-- end of {part} -->\n"

# The words above an asset's name in the picture of the data's way, and above those of a group that is drawn as one.
GROUPS = {"warehouse": "warehouse", "features": "analytics"}
WORDS = {
    "raw_file": "raw logs seen",
    "trace_files": "lake",
    "simulation_replay": "replay",
    "simulation_calibration": "calibration",
    "simulation_what_if": "what-if",
    "simulation_advice": "advice",
    "simulation_what_if_schedulers": "GPU schedulers",
    "pair_tables": "pairs",
    "trained_policies": "fits",
    "policy_comparison": "comparison",
    "provisioning_policy": "gate and registry",
    "queue_time_model": "queue time",
    "warehouse/derived_tables": "analytics in the warehouse",
    "warehouse/policy_tables": "policies in the warehouse",
}


def package_of(module: str) -> str:
    """The package that a module or room is in."""
    return module.partition(".")[0]


def between_packages(house: Rooms) -> dict[str, set[str]]:
    """The other packages that each package imports."""
    edges: dict[str, set[str]] = {package_of(module): set() for module in house.of_module}
    for a, b in house.crossing:
        edges[package_of(a)].add(package_of(b))
    return {package: imported - {package} for package, imported in edges.items()}


def without_detours(edges: dict[str, set[str]]) -> set[tuple[str, str]]:
    """The arrows that no path of others replaces: the transitive reduction, in which circles keep their arrows."""
    reached = {start: _reached(edges, start) for start in edges}

    def is_implied(a: str, b: str) -> bool:
        return any(b in reached[c] and a not in reached[c] and c not in reached[b] for c in edges[a] - {b})

    return {(a, b) for a in edges for b in edges[a] if not is_implied(a, b)}


def _reached(edges: dict[str, set[str]], start: str) -> set[str]:
    """Whatever a path of arrows leads to."""
    reached: set[str] = set()
    ahead = [*edges[start]]
    while ahead:
        here = ahead.pop()
        if here not in reached:
            reached.add(here)
            ahead += edges[here]
    return reached


def rooms_diagram(house: Rooms, order: list[str]) -> str:
    """The Mermaid text of the rooms: a box a package, its rooms in it, an arrow for each import.

    Arrows leave out what a path of others implies. Inside a package, those into the files that lie directly in it are
    left out too, since every room may use them. `order` is that of the boxes.
    """
    lines = ["flowchart TD"]
    for package in order:
        inside = [room for room in house.names if package_of(room) == package]
        if inside == [package]:
            lines.append(f"    {package}")
            continue
        lines.append(f"    subgraph {package}")
        lines += [f'        {_key(room)}["{_label(room)}"]' for room in inside]
        lines += [f"        {arrow}" for arrow in _arrows(house, package)]
        lines.append("    end")
    lines += [f"    {a} --> {b}" for a, b in sorted(without_detours(between_packages(house)))]
    return "\n".join(lines) + "\n"


def _arrows(house: Rooms, package: str) -> Iterable[str]:
    """The arrows between the rooms of one package, sorted; one with two heads for rooms that import each other."""
    edges: dict[str, set[str]] = {room: set() for room in house.names if package_of(room) == package}
    for a, b in house.crossing:
        if a in edges and b in edges and b != package:
            edges[a].add(b)
    for a, b in sorted(without_detours(edges)):
        if a not in edges[b]:
            yield f"{_key(a)} --> {_key(b)}"
        elif a < b:
            yield f"{_key(a)} <--> {_key(b)}"


def _key(room: str) -> str:
    """A name that Mermaid takes for a node, other than that of the package's box."""
    return "in_" + room.replace(".", "_")


def _label(room: str) -> str:
    """What stands in the room's box: its folder within the package."""
    return room.partition(".")[2].replace(".", "/") or "(its own files)"


def rooms_table(root: Path, house: Rooms, order: list[str]) -> str:
    """A row a room, in the order of the layers: its folder, and the first paragraph of its docstring."""
    lines = ["| room | holds |", "|---|---|"]
    for package in order:
        for room in (room for room in house.names if package_of(room) == package):
            folder = room.replace(".", "/")
            text = (root / folder / "__init__.py").read_text(encoding="utf-8")
            paragraph, _, _ = (ast.get_docstring(ast.parse(text)) or "").partition("\n\n")
            lines.append(f"| `{folder}` | {' '.join(paragraph.split())} |")
    return "\n".join(lines) + "\n"


def flow_diagram(assets: dict[str, dict[str, Any]]) -> str:
    """The Mermaid text of the data's way: an arrow from what an asset reads, detours left out.

    `assets` is the graph as tests/golden/asset_graph.json keeps it: name to its group and the names it depends on.
    The assets of a group named in `GROUPS` are one box, those that the reports package writes back excepted.
    """
    box = {name: _box(name, asset) for name, asset in assets.items()}
    edges: dict[str, set[str]] = {own: set() for own in box.values()}
    for name, asset in assets.items():
        for read in asset["deps"]:
            edges[box[read]].add(box[name])
    edges = {own: read_by - {own} for own, read_by in edges.items()}
    lines = ["flowchart TD", '    logs(["raw logs"])', '    agent(["agent"])']
    for own in edges:
        words = GROUPS.get(own) or WORDS.get(own)
        second_line = f"the group {own}" if own in GROUPS else own
        lines.append(f'    {_node(own)}["{words}<br/>{second_line}"]' if words else f'    {_node(own)}["{own}"]')
    lines += [f"    logs --> {_node(name)}" for name, asset in assets.items() if not asset["deps"]]
    lines += [f"    {_node(a)} --> {_node(b)}" for a, b in sorted(without_detours(edges))]
    lines += [f"    {_node(name)} --> agent" for name, asset in assets.items() if asset["group"] == "release"]
    return "\n".join(lines) + "\n"


def _box(name: str, asset: dict[str, Any]) -> str:
    """The box of an asset: its group where that is drawn as one, else its own name."""
    return asset["group"] if asset["group"] in GROUPS else name


def _node(own: str) -> str:
    """A name that Mermaid takes for the node of a box."""
    return own.replace("/", "_")


def page(text: str) -> str:
    """The page's text with both parts between markers written again."""
    house, order = rooms(ROOT), packages(ROOT)
    assets = json.loads(ASSETS.read_text(encoding="utf-8"))
    drawn = _fenced(rooms_diagram(house, order)) + "\n" + rooms_table(ROOT, house, order)
    return _replaced(_replaced(text, "rooms", drawn), "flow", _fenced(flow_diagram(assets)))


def _fenced(diagram: str) -> str:
    """A diagram as a block that GitHub draws."""
    return f"```mermaid\n{diagram}```\n"


def _replaced(text: str, part: str, written: str) -> str:
    """The text with what stands between the markers of a part replaced."""
    before, begin, rest = text.partition(BEGIN.format(part=part))
    _, end, after = rest.partition(END.format(part=part))
    if not (begin and end):
        raise ValueError(f"{PAGE.name} lacks the lines that begin and end its part `{part}` ({BEGIN}{END})")
    return f"{before}{begin}\n{written}\n{end}{after}"
