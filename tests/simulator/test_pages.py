"""Every scheduler has a page, and the common page names every reason for which a job is left out."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from simulator import workload
from simulator.names import ESTIMATES, PASSES, SCHEDULERS
from tests.features.test_dictionary import generator

PAGES = Path(__file__).resolve().parents[2] / "docs" / "schedulers"


def test_every_scheduler_has_a_page_and_it_is_up_to_date() -> None:
    pages = generator().scheduler_pages() | generator().gpu_scheduler_pages()
    assert {page.stem for page in pages} >= {*SCHEDULERS, "gpu-schedulers", "gpu-rounds"}
    for page, text in pages.items():
        assert page.read_text(encoding="utf-8") == text, f"{page.name}: run `make docs`"


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_a_page_says_more_than_a_name(scheduler: str) -> None:
    page = (PAGES / f"{scheduler}.md").read_text()
    assert "**A pass.**" in page or "**A tick**" in page
    assert "| queue order |" in page, "a table of the knobs"


def test_the_common_page_names_every_knob_and_every_reason() -> None:
    page = (PAGES / "README.md").read_text()
    reasons = {
        line.split('"')[1]
        for function in (workload.left_out, workload.from_swf)
        for line in inspect.getsource(function).splitlines()
        if line.strip().startswith('"') and not line.strip().startswith('"""')
    }
    assert len(reasons) == 8
    for word in (*ESTIMATES, *PASSES, *reasons):
        assert f"`{word}`" in page, word
