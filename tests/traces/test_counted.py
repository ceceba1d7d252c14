"""A number and its noun: 1 job, 2 jobs, everywhere by the one function."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from traces.counted import counted, plural

PACKAGES = ("traces", "simulator", "features", "agent", "models", "reports", "assets", "pipelines")
# Nouns that stand behind a number. Of constants, of figures that are no whole numbers, and of text in place of a number
# the plural is right.
NOUNS = re.compile(r" (?:[a-z]+ )?(jobs|nodes|users|rows|files|records|pairs|blocks|trials|links|tasks|steps|seeds)\b")
# A released model carries a copy of these.
APART = ("agent/artifact.py", "agent/kinds.py", "agent/trees.py", "agent/distribution.py")
# Text in place of a number, and numbers that are never 1.
ALWAYS_SEVERAL = {
    "models/tracking/training_runs.py: ' and '.join(map(str, scenario.pair_nodes)) nodes",
    "reports/advice/advice.py: best['blocks'] blocks",
    "reports/advice/advice.py: row['jobs'] jobs",
    "reports/advice/findings.py: fmt.duration(total) that jobs",
    "reports/hand_over.py: ' recorded' * self.is_recorded pairs",
    "reports/parts/delay_split.py: jobs behind jobs",
    "reports/parts/gpu_schedulers.py: counted(len(of_best), 'group') of jobs",
    "reports/parts/gpu_schedulers.py: word for jobs",
    "reports/sections/offenders.py: row['of_jobs'] completed jobs",
    "reports/sections/offenders.py: row['of_jobs'] jobs",
    "reports/sections/summary.py: held jobs",
    "simulator/gpu/policies/gandiva.py: counted(self.failed_trials, 'pair') of jobs",
    "simulator/gpu/policies/gandiva.py: counted(self.packed_pairs, 'pair') of jobs",
    "traces/clusters.py: where seeds",
}


@pytest.mark.parametrize(
    ("number", "noun", "shown"),
    [
        (0, "job", "0 jobs"), (1, "job", "1 job"), (2, "job", "2 jobs"), (1234, "raw file", "1,234 raw files"),
        (2, "policy", "2 policies"), (1, "policy", "1 policy"), (3, "entry", "3 entries"), (2, "GPU", "2 GPUs"),
    ],
)  # fmt: skip
def test_a_number_has_its_noun(number: int, noun: str, shown: str) -> None:
    assert counted(number, noun) == shown
    assert shown.endswith(plural(number, noun))


@pytest.mark.parametrize(
    ("number", "verb", "shown"),
    [(1, "is", "1 job is"), (2, "is", "2 jobs are"), (2, "was", "2 jobs were"), (1, "lacks", "1 job lacks"),
     (2, "lacks", "2 jobs lack"), (2, "has", "2 jobs have")],
)  # fmt: skip
def test_and_its_verb(number: int, verb: str, shown: str) -> None:
    assert counted(number, "job", verb) == shown


def _numbers_with_a_plural(path: Path) -> Iterator[str]:
    """Of the f-strings of a file those parts in which a plural stands behind a value, whatever that value is."""
    for text in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(text, ast.JoinedStr):
            continue
        for value, after in zip(text.values, text.values[1:], strict=False):
            if isinstance(value, ast.FormattedValue) and isinstance(after, ast.Constant):
                shown = ast.unparse(value.value)
                spec = "" if value.format_spec is None else ast.unparse(value.format_spec).strip("f'\"")
                match = NOUNS.match(str(after.value))
                if match and spec in ("", ",") and value.conversion == -1 and not shown.isupper():
                    yield f"{shown}{match[0]}"


def test_no_message_puts_a_plural_behind_any_number() -> None:
    found = {
        f"{path.relative_to(REPOSITORY)}: {part}"
        for package in PACKAGES
        for path in sorted((REPOSITORY / package).rglob("*.py"))
        if str(path.relative_to(REPOSITORY)) not in APART
        for part in _numbers_with_a_plural(path)
    }
    assert found <= ALWAYS_SEVERAL
