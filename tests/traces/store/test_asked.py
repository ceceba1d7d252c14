"""Parameters of a query: text that needs quoting, numbers, NULL, and no import of pandas."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime

import pytest

from traces.store.connections import ask, in_memory
from traces.store.quoting import SqlValue

INSTANT = datetime(2024, 2, 29, 23, 59, 59, 999_999)


@pytest.mark.parametrize(
    "value",
    [
        INSTANT,
        INSTANT.replace(tzinfo=UTC),
        "it's",
        "?",
        "a\0b; DROP",
        "\0",
        "'; DROP TABLE x; --",
        "ü\n\\",
        "",
        ["it's", '"'],
        [],
        3,
        -2.5,
        1e300,
        True,
        None,
    ],
)
def test_a_parameter_comes_back(value: SqlValue) -> None:
    with in_memory() as connection:
        for _ in range(2):  # the statement of the last query is replaced
            assert ask(connection, "SELECT ? AS value, '?' AS text", [value]).fetchall() == [(value, "?")]
        assert ask(connection, "SELECT 1", []).fetchall() == [(1,)]


def test_a_parameter_does_not_import_pandas() -> None:
    code = (
        "import sys; from traces.store.connections import ask, in_memory\n"
        "with in_memory() as c: print(ask(c, 'SELECT ?', ['x']).fetchall(), 'pandas' in sys.modules)"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed == "[('x',)] False\n"
