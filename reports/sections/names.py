"""The names of the report's sections, in the order of the page; `reports.build` makes the sections."""

from __future__ import annotations

from reports import format as fmt
from traces.errors import InputError

SECTION_NAMES = (
    "summary", "waits", "start", "waste", "fails",
    "change", "load", "policies", "deployed", "fidelity", "study", "read",
)  # fmt: skip


def check_section(name: str) -> None:
    """Raise InputError for an unknown section name, and list the known ones."""
    if name not in SECTION_NAMES:
        raise InputError(f"unknown section {fmt.text(name)!r}; known sections: {', '.join(SECTION_NAMES)}")
