"""Waits for nodes asked for by name, by hand: what ran on these nodes meanwhile."""

from __future__ import annotations

import pytest

from tests.features.toy import job
from tests.features.waits import OPEN, delays, on, spent


@pytest.mark.parametrize(
    ("reason", "idle"),
    [("ReqNodeNotAvail", "nodes_down"), ("ReqNodeNotAvail, May be reserved for other job", "reservation")],
)
def test_a_wait_for_a_named_node_is_of_what_ran_on_that_node(reason: str, idle: str) -> None:
    """x names n0: its user's own job runs there to 100, another user's to 250, nothing to 300. n1 is free."""
    jobs = [
        job("own", 0, 0, 100, 4, nodes=1, user_name="ann"), job("other", 0, 100, 250, 4, nodes=1, user_name="bob"),
        job("x", 0, 300, 400, 4, nodes=1, user_name="ann"), job("seen", -20, -20, -10, 4, nodes=1, user_name="cyd"),
        OPEN,
    ]  # fmt: skip
    placed = [*on("own", "n0", gpus=4), *on("other", "n0", gpus=4), *on("x", "n0", gpus=4), *on("seen", "n1", gpus=4)]
    placed += on("open", "n1", gpus=0)
    found = delays(jobs, placed, reason={"x": reason})["x"]
    assert spent(found) == {"own_jobs": 100, "cluster_full": 150, idle: 50}
    assert spent(delays(jobs, placed)["x"]) != spent(found)  # without the reason n1 would have done
