"""One self-contained HTML file from the warehouse: sections, rendered by an autoescaping template.

The file holds no reference to anything outside it, and its content security policy forbids any: inline styles, and the
one script whose digest the policy names.
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
from reports.sections.offenders import beside, write_offenders
from reports.sections.philly_study import study
from reports.sections.policies import policies
from reports.sections.start import start
from reports.sections.summary import lead, summary
from reports.sections.waits import waits
from reports.sections.waste import waste
from reports.source import Names, Remarks, Source, cluster_names
from traces.errors import InputError
from traces.files.whole import write_text
from traces.progress import Progress
from traces.store import warehouse
from traces.store.folder import DataFolder

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
FIRST = "summary"  # shown at once; what comes after it opens on demand
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

    `clusters` None means all in the warehouse. `anonymise` replaces users, accounts and job names by keyed hashes, with
    `key` or, without one, a key that is made for this report and forgotten. `section` keeps one of SECTIONS.
    `remarks` are what the warehouse does not say, by cluster. Real clusters come before generated ones.

    Raises InputError for an unknown cluster or section or an absent warehouse, WorkError where the file cannot be
    written.
    """
    names = Names((key or secrets.token_bytes(32)) if anonymise else None)
    wanted = _known_sections(section)
    path = out or data.reports / "report.html"
    with warehouse.published(data):  # held open: of one warehouse, whatever is built meanwhile, and opened once
        sources = [
            Source(data, cluster, names, (remarks or {}).get(cluster, Remarks()))
            for cluster in _known_clusters(data, clusters)
        ]
        pages: list[dict[str, Any]] = []
        with Progress("writing the report", len(sources) * len(wanted), "sections", stays=False) as progress:
            for source in sorted(sources, key=lambda source: source.is_generated):
                sections = []
                for name in wanted:
                    sections.append(SECTIONS[name](source))
                    progress.reach(len(pages) * len(wanted) + len(sections))
                pages.append(
                    {
                        "source": source,
                        "sections": [made for made in sections if made.applies or section],
                        "lead": None if section or source.jobs.is_empty() else lead(source),
                        "explore": None if section else embedded(source),
                    }
                )
        listed = beside(path)
        offenders = listed.name if not section and write_offenders(listed, sources) else ""
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
    """One section as plain JSON values: sentences, tables as rows of raw values (s, h, shares; an interval is
    [low, high]), actions with their effect and how far to trust it, what is missing.

    Raises InputError for an unknown cluster or section.
    """
    (wanted,) = _known_sections(name)
    (known,) = _known_clusters(data, [cluster])
    names = Names((key or secrets.token_bytes(32)) if anonymise else None)
    source = Source(data, known, names, (remarks or {}).get(known, Remarks()))
    section = SECTIONS[wanted](source)
    return {
        "cluster": known,
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


def _known_clusters(data: DataFolder, wanted: list[str] | None) -> list[str]:
    known = cluster_names(data)
    for cluster in wanted or []:
        if cluster not in known:
            listed = ", ".join(fmt.text(name) for name in known) or "none"
            raise InputError(f"no cluster {fmt.text(cluster)!r} in {data.warehouse}: known are {listed}")
    return known if wanted is None else list(dict.fromkeys(wanted))


def render(pages: list[dict[str, Any]], *, is_anonymised: bool = False, offenders: str = "") -> str:
    """The page: of each entry `source` (slug, cluster, is_generated), `sections`, and where there are `lead` (a line
    under the name) and `explore` (reports.sections.explore, base64); all text in it is escaped.

    A page of one section shows it; of several the first is shown and the others open on demand. `offenders` names
    the list of offenders that lies beside the page, empty for none.
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
                "tiles": of_page,
                "terms": explained(page["sections"]),
                "explore": page.get("explore"),
            }
            for page, of_page in zip(pages, tiles, strict=True)
        ],
        first_section=FIRST,
        index_labels=list(dict.fromkeys(label for of_page in tiles for label in of_page)),
        is_anonymised=is_anonymised,
        offenders=offenders,
        made_utc=fmt.moment(datetime.now(UTC)),
        text=fmt.text,
        sparkline=lambda values: Markup(sparkline(values)),  # noqa: S704 - made of numbers alone
        svg=lambda figure: Markup(figure.svg),  # noqa: S704 - made by reports.figures, which escapes text
        style=Markup(style_sheet() + (_TEMPLATES / "report.css").read_text(encoding="utf-8")),  # noqa: S704 - written in this package
        script=Markup(script),  # noqa: S704 - written in this package
        script_digest=digest,
    )


_UNIT = re.compile(r"(?<=\d) (?=(?:%|s|min|h|d|GPU)\b|%)")


def _tight(words: str) -> str:
    """No line breaks between a number and its unit."""
    return _UNIT.sub("\u00a0", words)
