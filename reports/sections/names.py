"""Names of the report's sections, in the order of the page; what makes them is in `reports.build`."""

from __future__ import annotations

from reports import format as fmt
from traces.errors import InputError

SECTION_NAMES = (
    "summary", "waits", "start", "waste", "fails",
    "change", "load", "policies", "deployed", "fidelity", "study", "read",
)  # fmt: skip


def check_section(name: str) -> None:
    """Raises InputError for a section that there is not, listing those that there are."""
    if name not in SECTION_NAMES:
        raise InputError(f"unknown section {fmt.text(name)!r}: known are {', '.join(SECTION_NAMES)}")
