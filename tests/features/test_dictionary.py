"""The column dictionary holds every table and is up to date."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

import pytest

from features.dictionary import render
from tests.conftest import REPOSITORY
from traces.schema import INT, Column, Table


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", REPOSITORY / "docs" / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_columns_md_is_up_to_date() -> None:
    module = generator()
    assert module.COLUMNS.read_text(encoding="utf-8") == module.columns(), "run `make docs`"


def test_every_declared_table_is_in_it() -> None:
    """A table declared in any module that the asset graph loads is in the dictionary."""
    pytest.importorskip("assets")
    named = {table.name for tables in generator().sections().values() for table in tables}
    declared = {
        value.name
        for name, module in list(sys.modules.items())
        if name.split(".")[0] in {"traces", "simulator", "features", "models", "reports", "assets"}
        for value in vars(module).values()
        if isinstance(value, Table)
    }
    assert declared <= named


def test_no_two_tables_share_a_name() -> None:
    names = [table.name for tables in generator().sections().values() for table in tables]
    assert len(names) == len(set(names))


def test_a_pipe_in_a_meaning_does_not_end_the_cell() -> None:
    page = render({"S": [Table("t", "a | b", (Column("c", INT, "x|y", "m | n", nullable=False),), key=("c",))]})
    assert "| `c` | BIGINT | x\\|y | no | m \\| n |" in page and "Key: `c`." in page
