"""Every file, test and module that a page names exists, so that a move of code is followed by the pages."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.docs.pages import pages

_SETTINGS = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
_PACKAGES = _SETTINGS["tool"]["importlinter"]["root_packages"]
_FOLDERS = "|".join([*_PACKAGES, "bench", "docs", "examples", "tests"])
_PATH = re.compile(rf"(?<![\w/.-])((?:{_FOLDERS})/[\w./*-]*[\w*])(?:::(\w+))?")
_DOTTED = re.compile(rf"(?<![\w/.-])((?:{'|'.join(_PACKAGES)})(?!\.(?:md|csv)\b)(?:\.\w+)+)(?![\w/-])")
_MADE_BY_A_RUN = {"reports/report.html"}  # in the data folder


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_what_a_page_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    wrong = {path for path, test in _PATH.findall(text) if not _is_path(path, test)}
    wrong |= {name for name in _DOTTED.findall(text) if not _is_code(name)}
    assert not wrong - _MADE_BY_A_RUN, f"{page.name} names what is not there: {sorted(wrong - _MADE_BY_A_RUN)}"


def test_what_is_not_there_is_noticed() -> None:
    assert _is_path("traces/ingest.py") and _is_path("docs/decisions/0013") and _is_path("tests/traces/*/test_*.py")
    assert not _is_path("traces/ingested.py") and not _is_path("docs/decisions/9999")
    assert not _is_path("tests/docs/test_named_code.py", "test_of_no_such_name")
    assert _is_code("traces.store.warehouse.made_from") and _is_code("models.provisioning.protocol.Policy")
    assert not _is_code("simulator.no_such_module") and not _is_code("traces.store.warehouse.no_such_name")


def _is_path(path: str, test: str = "") -> bool:
    """Whether a file or folder has this path (or a decision this number), and the file this test if one is named."""
    if test:
        file = REPOSITORY / path
        return file.is_file() and bool(re.search(rf"^ *def {test}", file.read_text(encoding="utf-8"), re.MULTILINE))
    pattern = f"{path}-*" if re.fullmatch(r"docs/decisions/\d+", path) else path
    return next(REPOSITORY.glob(pattern), None) is not None or (REPOSITORY / f"{path}.py").is_file()


def _is_code(name: str) -> bool:
    """Whether a dotted name leads to a room or a module, or to a name that is written in the module's source."""
    at, parts = REPOSITORY, name.split(".")
    while parts and (at / parts[0]).is_dir():
        at = at / parts.pop(0)
    module = at / f"{parts.pop(0)}.py" if parts and (at / f"{parts[0]}.py").is_file() else at / "__init__.py"
    return not parts or bool(re.search(rf"\b{parts[0]}\b", module.read_text(encoding="utf-8")))
