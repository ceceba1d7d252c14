"""Sizes of jobs: every amount is in the size whose name says so, in the order of the names."""

from __future__ import annotations

from typing import get_args

import polars as pl
import pytest

from features.resources.capacity import Resource
from features.resources.sizes import by_size, size_bucket, size_in_words, size_names

RESOURCES: tuple[Resource, ...] = get_args(Resource)


def test_sizes_of_gpus_are_those_of_the_philly_study() -> None:
    assert size_names("GPU") == ("0", "1", "2-4", "5-8", ">8")


@pytest.mark.parametrize("resource", RESOURCES)
def test_an_amount_is_in_the_size_that_names_it(resource: Resource) -> None:
    scale = 1024 if resource == "memory" else 1
    amounts = list(range(0 if resource == "GPU" else 1, 300))
    frame = pl.DataFrame({"amount": [None, *(scale * amount for amount in amounts)]})
    found = frame.select(size=size_bucket(pl.col("amount"), resource))["size"].to_list()
    assert found[0] is None
    for amount, name in zip(amounts, found[1:], strict=True):
        if name.startswith(">"):
            assert amount > int(name[1:])
        else:
            assert int(name.split("-")[0]) <= amount <= int(name.split("-")[-1])
    assert list(dict.fromkeys(found[1:])) == list(size_names(resource))


def test_a_part_of_a_gib_counts_as_one() -> None:
    assert pl.select(size_bucket(pl.lit(1025), "memory")).item() == "2-16"
    assert pl.select(size_bucket(pl.lit(500), "memory")).item() == "1"


@pytest.mark.parametrize("resource", RESOURCES)
def test_sizes_sort_in_order_and_unknown_last(resource: Resource) -> None:
    names = [None, *reversed(size_names(resource))]
    assert pl.DataFrame({"size": names}).sort(by_size("size"))["size"].to_list() == [*size_names(resource), None]


def test_words() -> None:
    words = [size_in_words(*of) for of in (("1", "GPU"), ("2-4", "GPU"), (">128", "core"), ("2-16", "GiB"))]
    assert words == ["1 GPU", "2 to 4 GPUs", "more than 128 cores", "2 to 16 GiB"]
