"""One week against earlier ones: the bound holds by chance as often as it says, and what changes is named."""

from __future__ import annotations

from datetime import datetime, timedelta

import numpy as np
import polars as pl
import pytest

from features.load.bounds import CHANCE, LEAST_ROWS, LEAST_WEEKS
from features.load.drift import against
from features.load.load import stability_index

MONDAY = datetime(2026, 1, 5)
NUMBERS, NAMES = ("wait_s", "nodes"), ("user_name",)


def week(rng: np.random.Generator, number: int, *, rows: int = 100, factor: float = 1.0) -> pl.DataFrame:
    """Jobs of a week: waits of a level of its own, times `factor`, and users in shares of its own."""
    users = rng.choice([f"u{i}" for i in range(12)], rows, p=rng.dirichlet(np.full(12, 2.0)))
    return pl.DataFrame(
        {
            "week_utc": [MONDAY + timedelta(weeks=number)] * rows,
            "wait_s": rng.lognormal(7 + rng.normal(0, 0.3), 1, rows) * factor,
            "nodes": rng.integers(1, 9, rows),
            "user_name": users,
        }
    )


def weeks(rng: np.random.Generator, count: int, **named: int) -> pl.DataFrame:
    return pl.concat([week(rng, number, **named) for number in range(count)])


@pytest.mark.parametrize(("count", "chance"), [(6, 1 / 7), (19, 1 / 20), (45, 2 / 46)])
def test_a_week_like_the_others_is_beyond_as_often_as_said(count: int, chance: float) -> None:
    rng, tries = np.random.default_rng(count), 200
    found = [against(weeks(rng, count), week(rng, count), numbers=NUMBERS, names=NAMES) for _ in range(tries)]
    result = {(one.weeks, one.chance) for one in found if one is not None}
    assert result == {(count, chance)} and chance <= max(CHANCE, 1 / (count + 1))
    beyond = sum(bool(one.beyond) for one in found if one is not None) / tries
    assert abs(beyond - chance) < 3.5 * (chance * (1 - chance) / tries) ** 0.5


def test_what_changed_is_named() -> None:
    rng = np.random.default_rng(3)
    before = weeks(rng, 25)
    found = against(before, week(rng, 25, factor=20), numbers=NUMBERS, names=NAMES)
    assert found is not None and found.beyond == ["wait_s"]
    strangers = week(rng, 25).with_columns(user_name=pl.lit("stranger"))
    found = against(before, strangers, numbers=NUMBERS, names=NAMES)
    assert found is not None and found.beyond == ["user_name"]


def test_the_distance_is_the_stability_index_over_bins_of_all() -> None:
    rng = np.random.default_rng(4)
    before, now = weeks(rng, 8), week(rng, 8)
    found = against(before, now, numbers=(), names=NAMES)
    assert found is not None
    (one,) = found.distances
    names = sorted({*before["user_name"], *now["user_name"]})
    counts = [np.array([part["user_name"].to_list().count(name) for name in names]) for part in (before, now)]
    assert one.psi == pytest.approx(stability_index(*counts)) and (one.n_before, one.n) == (800, 100)
    number = against(before, now, numbers=("nodes",))
    assert number is not None
    values = [part["nodes"].to_numpy() for part in (before, now)]
    edges = np.unique(np.quantile(np.concatenate(values), np.arange(1, 10) / 10, method="inverted_cdf"))
    bins = [np.bincount(np.searchsorted(edges, part), minlength=len(edges) + 1)[: len(edges)] for part in values]
    assert edges[-1] == 8, "the last bin is empty"
    assert number.distances[0].psi == pytest.approx(stability_index(*bins))


def test_the_bound_of_one_feature_is_the_most_that_an_earlier_week_differed() -> None:
    rng = np.random.default_rng(5)
    before, now = weeks(rng, LEAST_WEEKS), week(rng, LEAST_WEEKS)
    found = against(before, now, numbers=("nodes",))
    assert found is not None
    everything = pl.concat([before, now])
    values = everything["nodes"].to_numpy()
    edges = np.unique(np.quantile(values, np.arange(1, 10) / 10, method="inverted_cdf"))
    counts = [
        np.bincount(np.searchsorted(edges, part["nodes"].to_numpy()), minlength=len(edges))
        for _, part in everything.group_by("week_utc", maintain_order=True)
    ]
    distances = [stability_index(sum(counts) - one, one) for one in counts]
    assert found.distances[0].bound == pytest.approx(max(distances[:-1]))


def test_where_nothing_can_be_told() -> None:
    rng = np.random.default_rng(6)
    before, now = weeks(rng, LEAST_WEEKS), week(rng, LEAST_WEEKS)
    assert against(before, now, numbers=NUMBERS) is not None
    assert against(weeks(rng, LEAST_WEEKS - 1), now, numbers=NUMBERS) is None
    assert against(before, now.head(LEAST_ROWS - 1), numbers=NUMBERS) is None
    assert against(weeks(rng, LEAST_WEEKS, rows=LEAST_ROWS - 1), now, numbers=NUMBERS) is None
    constant = [part.with_columns(nodes=pl.lit(1)) for part in (before, now)]
    assert against(*constant, numbers=("nodes",)) is None
    unknown = now.with_columns(wait_s=pl.lit(None, pl.Float64))
    found = against(before, unknown, numbers=NUMBERS)
    assert found is not None and [one.feature for one in found.distances] == ["nodes"]
