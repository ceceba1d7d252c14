"""The report: one self-contained HTML file from the warehouse, rendered by an autoescaping template.

The file refers to nothing outside itself. Its content security policy allows only inline styles and the one script
whose digest the policy names.
"""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from reports import format as fmt
from reports.figures import sparkline
from reports.glossary import explained
from reports.layout import Section
from reports.palette import style_sheet
from reports.sections.change import change
from reports.sections.deployed import deployed
from reports.sections.explore import embedded
from reports.sections.fails import fails
from reports.sections.fidelity import fidelity
from reports.sections.intake import intake
from reports.sections.load import load
from reports.sections.names import SECTION_NAMES, check_section
from reports.sections.offenders import offenders_path, write_offenders
from reports.sections.philly_study import study
from reports.sections.policies import policies
from reports.sections.start import start
from reports.sections.summary import lead, summary
from reports.sections.waits import waits
from reports.sections.waste import waste
from reports.source import Names, Remarks, Source
from traces.errors import InputError
from traces.files.whole import write_text
from traces.progress import Progress
from traces.store import warehouse
from traces.store.contents import cluster_names
from traces.store.folder import DataFolder
from traces.store.memory import duckdb_limit

SECTIONS: dict[str, Callable[[Source], Section]] = {
    "summary": summary,
    "waits": waits,
    "start": start,
    "waste": waste,
    "fails": fails,
    "change": change,
    "load": load,
    "policies": policies,
    "deployed": deployed,
    "fidelity": fidelity,
    "study": study,
    "read": intake,
}
assert tuple(SECTIONS) == SECTION_NAMES
MOST_READING = 1 << 30  # bytes of DuckDB: the frames of 4 million jobs take 2 GB beside it
FIRST = "summary"  # open at once; the sections after it open on demand
_TEMPLATES = Path(__file__).parent / "templates"


def build_report(
    data: DataFolder,
    *,
    out: Path | None = None,
    clusters: list[str] | None = None,
    anonymise: bool = False,
    section: str | None = None,
    key: bytes | None = None,
    remarks: Mapping[str, Remarks] | None = None,
) -> Path:
    """Write the report (default: report.html in the data folder's reports) and return its path.

    `clusters` None means every cluster in the warehouse. `anonymise` replaces users, accounts and job names by keyed
    hashes; without a `key`, a random key is used for this report and then discarded. `section` restricts the report to
    one of SECTIONS. `remarks` hold facts that the warehouse does not, by cluster. Recorded clusters come before
    generated ones.

    Raises InputError for an unknown cluster or section or a missing warehouse, and WorkError if the file cannot be
    written.
    """
    names = Names((key or secrets.token_bytes(32)) if anonymise else None)
    section_names = _known_sections(section)
    path = out or data.reports / "report.html"
    limit = f"{min(duckdb_limit(), MOST_READING)}B"
    with warehouse.published(data, limit):  # one connection: all sections read one warehouse, even if another is built
        sources = [
            Source(data, cluster, names, (remarks or {}).get(cluster, Remarks()))
            for cluster in _known_clusters(data, clusters)
        ]
        pages: list[dict[str, Any]] = []
        with Progress("writing the report", len(sources) * len(section_names), "sections", stays=False) as progress:
            for source in sorted(sources, key=lambda source: source.is_generated):
                sections = []
                for name in section_names:
                    sections.append(SECTIONS[name](source))
                    progress.reach(len(pages) * len(section_names) + len(sections))
                pages.append(
                    {
                        "source": source,
                        "sections": [one for one in sections if one.applies or section],
                        "lead": None if section or source.jobs.is_empty() else lead(source),
                        "explore": None if section else embedded(source),
                    }
                )
                source.free()  # many clusters need no more memory than the largest
        offenders_file = offenders_path(path)
        offenders = offenders_file.name if not section and write_offenders(offenders_file, sources) else ""
        write_text(path, render(pages, is_anonymised=names.are_hidden, offenders=offenders))
    return path


def section_data(
    data: DataFolder,
    cluster: str,
    name: str,
    *,
    anonymise: bool = False,
    key: bytes | None = None,
    remarks: Mapping[str, Remarks] | None = None,
) -> dict[str, Any]:
    """Return one section of one cluster as plain JSON values.

    It holds the sentences, the tables as rows of raw values (s, h, shares; an interval is [low, high]), the actions
    with their effect and how far to trust it, and what is missing.

    Raises InputError for an unknown cluster or section.
    """
    (section_name,) = _known_sections(name)
    (cluster_name,) = _known_clusters(data, [cluster])
    names = Names((key or secrets.token_bytes(32)) if anonymise else None)
    source = Source(data, cluster_name, names, (remarks or {}).get(cluster_name, Remarks()))
    section = SECTIONS[section_name](source)
    return {
        "cluster": cluster_name,
        "section": section.name,
        "title": section.title,
        "is_generated": source.is_generated,
        "sentences": section.sentences,
        "lead": lead(source) if name == FIRST and not source.jobs.is_empty() else None,
        "numbers": {tile.label: tile.value for tile in section.tiles},
        "counted": {tile.label: tile.counted for tile in section.tiles},
        "tables": {
            table.name: [{column.name: _plain(row.get(column.name)) for column in table.columns} for row in table.rows]
            for table in section.tables
        },
        "actions": [asdict(action) for action in section.actions],
        "missing": section.missing,
    }


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime | date) else value


def _known_sections(name: str | None) -> list[str]:
    if name is None:
        return list(SECTIONS)
    check_section(name)
    return [name]


def _known_clusters(data: DataFolder, requested: list[str] | None) -> list[str]:
    known = cluster_names(data)
    for cluster in requested or []:
        if cluster not in known:
            listed = ", ".join(fmt.text(name) for name in known) or "none"
            raise InputError(f"no cluster {fmt.text(cluster)!r} in {data.warehouse}; known clusters: {listed}")
    return known if requested is None else list(dict.fromkeys(requested))


def render(pages: list[dict[str, Any]], *, is_anonymised: bool = False, offenders: str = "") -> str:
    """Render the page as HTML; all text in it is escaped.

    Each entry of `pages` has `source` (slug, cluster, is_generated) and `sections`. It may have `lead` (a line under
    the name) and `explore` (base64 from reports.sections.explore). A page with one section shows it open. With several
    sections, the first is open and the others open on demand. `offenders` is the name of the list of offenders in the
    same folder, or ''.
    """
    tiles = [{tile.label: tile for section in page["sections"] for tile in section.tiles} for page in pages]
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["tight"] = _tight
    filters = ("explore.js", "explore_page.js") if any(page.get("explore") for page in pages) else ()
    script = "".join((_TEMPLATES / name).read_text(encoding="utf-8") for name in ("report.js", *filters))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template("report.html").render(
        pages=[
            {
                "lead": None,
                **page,
                "tiles": tiles_of_page,
                "terms": explained(page["sections"]),
                "explore": page.get("explore"),
            }
            for page, tiles_of_page in zip(pages, tiles, strict=True)
        ],
        first_section=FIRST,
        index_labels=list(dict.fromkeys(label for tiles_of_page in tiles for label in tiles_of_page)),
        is_anonymised=is_anonymised,
        offenders=offenders,
        made_utc=fmt.moment(datetime.now(UTC)),
        text=fmt.text,
        sparkline=lambda values: Markup(sparkline(values)),  # noqa: S704 - numbers only
        svg=lambda figure: Markup(figure.svg),  # noqa: S704 - made by reports.figures, which escapes text
        style=Markup(style_sheet() + (_TEMPLATES / "report.css").read_text(encoding="utf-8")),  # noqa: S704 - written in this package
        script=Markup(script),  # noqa: S704 - written in this package
        script_digest=digest,
    )


_UNIT = re.compile(r"(?<=\d) (?=(?:%|s|min|h|d|GPU)\b|%)")


def _tight(words: str) -> str:
    """Put no-break spaces between numbers and their units."""
    return _UNIT.sub("\u00a0", words)
