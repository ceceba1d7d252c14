"""Fixtures of the tests of `models`."""

from __future__ import annotations

import pytest

from models.provisioning.protocol import PairTable
from tests.models.generated import identity_table, queue_table


@pytest.fixture(scope="session")
def fit_table() -> PairTable:
    """Generated pairs to fit on."""
    return queue_table(seed=0)


@pytest.fixture(scope="session")
def report_table() -> PairTable:
    """Generated pairs of another seed, to judge on."""
    return queue_table(seed=1)


@pytest.fixture(scope="session")
def identity() -> PairTable:
    """Pairs whose wait is in plain sight."""
    return identity_table()
