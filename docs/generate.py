"""Write the pages that are generated from code and results (`make docs`).

docs/columns.md from the tables and features that the code declares, docs/oddities.md from the tests' rows, a page for
each flat scheduler and a section for each GPU scheduler from its module's docstring, the lists of the schedulers in
docs/schedulers/README.md and docs/README.md, docs/results.md from the files of `bench/results/` (`docs/measured.py`),
and the pictures of docs/architecture.md (`docs/picture.py`).
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import models.queue_time.tables
import models.tables
import models.what_if.advice.table
import simulator.tables
from docs import measured, picture
from features.catalog import FEATURES
from features.dictionary import observation_table, render
from simulator.gpu import registry as gpu
from simulator.gpu.scheduler import EventScheduler, RoundScheduler
from simulator.names import SCHEDULERS
from tests.traces.readers import agent_lines
from tests.traces.readers import oddities as slurm
from tests.traces.readers.node_lists import oddities as node_lists
from tests.traces.readers.philly import oddities as philly_oddities
from tests.traces.readers.published import logs as published
from traces.lake.listing import FILES
from traces.lake.warehouses import WAREHOUSES
from traces.schema import CANONICAL, Table

COLUMNS = Path(__file__).parent / "columns.md"
ODDITIES = Path(__file__).parent / "oddities.md"
SCHEDULER_PAGES = Path(__file__).parent / "schedulers"
LISTS = (SCHEDULER_PAGES / "README.md", Path(__file__).parent / "README.md")
GPU_PAGES = {
    EventScheduler: Path(__file__).parent / "gpu-schedulers.md",
    RoundScheduler: Path(__file__).parent / "gpu-rounds.md",
}


def sections() -> dict[str, tuple[Table, ...]]:
    """Every table of the warehouse and of the shared lake, by where it comes from."""
    return {
        "Canonical tables (`traces/schema.py`)": CANONICAL,
        **{
            f"Analytics: {name} (`{module.__name__.replace('.', '/')}.py`)": module.TABLES
            for name, module in FEATURES.items()
        },
        "Simulation (`simulator/tables.py`)": simulator.tables.TABLES,
        "Policies (`models/tables.py`)": models.tables.TABLES,
        "Advice (`models/what_if/advice/table.py`)": models.what_if.advice.table.TABLES,
        "Queue time (`models/queue_time/tables.py`)": models.queue_time.tables.TABLES,
        "The shared lake alone (`traces/lake`)": (FILES, WAREHOUSES),
    }


def columns() -> str:
    """Render the column dictionary, and the features of `observe` below it."""
    observed = [
        "",
        "## The observation of a policy (`features/observe.py`)",
        "",
        "All numbers are float32. `limit` is the predecessor's limit in hours, `capacity` the nodes of the cluster.",
        "",
        *observation_table(),
    ]
    return render(sections()) + "\n".join(observed) + "\n"


_HARMLESS = {n: f"\\u{n:04x}" for n in (*range(32), 127, 0xFEFF)} | {ord("|"): "\\|", ord("<"): "&lt;"}


def oddities() -> str:
    """Render the page of every tested oddity of a raw log and how Baton reads it."""
    lines = [
        "# Oddities of raw logs",
        "",
        "This page lists oddities of raw logs and how Baton reads them. Each row is a test in tests/traces/readers: "
        "`published/logs.py` (run by `test_published.py`), `philly/oddities.py` (`test_reader.py`), `agent_lines.py` "
        "(`test_agent.py`), `node_lists/oddities.py` (`test_node_lists.py`) and `oddities.py` (`test_oddities.py`). "
        "Rows of sacct show only the columns that differ from a plain job's. `make docs` writes this page.",
        "",
        "| format | oddity | source | in the log | how Baton reads it |",
        "|---|---|---|---|---|",
    ]
    rows = [("sacct", row.name, row.source, _differing(row.raw), row.becomes) for row in slurm.ODDITIES]
    rows += [("sacct", odd.name, odd.source, _shown(odd.data, slurm.HEADER), odd.becomes) for odd in slurm.FILES]
    rows += [
        (row.format, row.name, "published schema", row.lines, row.becomes)
        for row in (*published.ROWS, *philly_oddities.ROWS)
    ]
    rows += [("agent", row.name, "docs/agent.md", row.lines, row.becomes) for row in agent_lines.ROWS]
    rows += [(row.format, row.name, row.source, row.lines, row.becomes) for row in node_lists.ROWS]
    return "\n".join([*lines, *("| " + " | ".join(map(_cell, row)) + " |" for row in rows)]) + "\n"


def _differing(raw: str) -> str:
    """What a line of the table of sacct's oddities has other than the plain one; the whole text where it is no line."""
    names, plain = slurm.HEADER.split("|"), slurm.row().split("|")
    differences = []
    for line in raw.split("\n"):
        values = line.split("|")
        if len(values) != len(names):
            return raw
        differences.append(
            ", ".join(f"{n}={v}" for n, v, p in zip(names, values, plain, strict=True) if v != p) or "as plain"
        )
    return " / ".join(differences)


def _shown(data: bytes, header: str) -> str:
    """The text of a whole dump, the usual header replaced by its name; nothing of what is packed."""
    text = data[:20_000].decode("utf-8", errors="replace")
    return "(packed)" if text.startswith(("\x1f", "(", "P*M")) else text.replace(header, "HEADER").strip()


def _cell(text: str, most: int = 110) -> str:
    """Text that cannot leave its cell; a long one is cut."""
    shown = " / ".join(text.split("\n"))
    return (shown if len(shown) <= most else shown[: most - 1] + "...").translate(_HARMLESS)


def scheduler_pages() -> dict[Path, str]:
    """The page of each flat scheduler, and the two lists of them."""
    pages, rows, links = {}, ["| scheduler | | page |", "|---|---|---|"], []
    for name, module in SCHEDULERS.items():
        text = (import_module(module).__doc__ or "").strip()
        source = module.replace(".", "/") + ".py"
        common = f"What schedulers share: [README](README.md). `make docs` makes this page from `{source}`."
        pages[SCHEDULER_PAGES / f"{name}.md"] = f"# `--scheduler {name}`\n\n{text}\n\n{common}\n"
        rows.append(f"| `{name}` | {text.splitlines()[0]} | [{name}]({name}.md) |")
        links.append(f"[{name}](schedulers/{name}.md)")
    for page, lines in zip(LISTS, (rows, [", ".join(links)]), strict=True):
        pages[page] = _with_list(page.read_text(encoding="utf-8"), "flat", "\n".join(lines))
    return pages


def gpu_scheduler_pages() -> dict[Path, str]:
    """The pages of the two clocks of GPU schedulers, with a section for each scheduler."""
    sections: dict[Path, list[str]] = {page: [] for page in GPU_PAGES.values()}
    for name, module in gpu.SCHEDULERS.items():
        text = (import_module(module).__doc__ or "").strip()
        values = ", ".join(f"`{key}` {gpu.default_text(name, key)}" for key in gpu.parameters(name)) or "none"
        source = module.replace(".", "/") + ".py"
        sections[GPU_PAGES[type(gpu.scheduler(name))]].append(
            f"### {name}\n\n{text}\n\nParameters: {values}. Source: `{source}`.\n"
        )
    return {page: _with_list(page.read_text(encoding="utf-8"), "GPU", "\n".join(own)) for page, own in sections.items()}


def _with_list(page: str, kind: str, made: str) -> str:
    """The page with the text between its two marks replaced."""
    begin, end = f"<!-- {kind} schedulers, by `make docs` -->\n", "<!-- end -->"
    replaced, times = re.subn(f"(?s){re.escape(begin)}.*?{re.escape(end)}", lambda _: f"{begin}{made}\n{end}", page)
    if times != 1:
        raise ValueError(f"{times} lists of schedulers between {begin.strip()} and {end}, one is needed: {page[:60]!r}")
    return replaced


if __name__ == "__main__":
    for path, text in (scheduler_pages() | gpu_scheduler_pages()).items():
        path.write_text(text, encoding="utf-8")
    ODDITIES.write_text(oddities(), encoding="utf-8")
    COLUMNS.write_text(columns(), encoding="utf-8")
    measured.PAGE.write_text(measured.page(), encoding="utf-8")
    picture.PAGE.write_text(picture.page(picture.PAGE.read_text(encoding="utf-8")), encoding="utf-8")
