"""An hour in which programs of Slurm answer nothing, with status 0 or 1: the chain goes on, no link lost or doubled.

By default the agent looks every two minutes; `BATON_LIVE=full` takes cycles of 10 s too, and every program alone.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agent.chains.test_faults import IS_FULL, check
from tests.agent.faults import Outage, kept

EACH = ("squeue", "sinfo", "sacct", "sacctmgr", "scontrol", "sbatch", "sdiag")
OUT = {"all": EACH, "all but sacct": tuple(name for name in EACH if name != "sacct")}
OUT |= {name: (name,) for name in EACH if IS_FULL or name == "sbatch"}


@pytest.mark.parametrize("cycle_s", [10.0, 120.0] if IS_FULL else [120.0])
@pytest.mark.parametrize("from_h", [0.0, 0.3, 1.4], ids=["at the start", "as a link runs", "as a link ends"])
@pytest.mark.parametrize("how", ["empty", "silent"])
@pytest.mark.parametrize("names", OUT)
def test_an_hour_of_answers_that_say_nothing_costs_no_link(
    tmp_path: Path, names: str, how: str, from_h: float, cycle_s: float
) -> None:
    lab, said = kept(tmp_path, Outage(how, OUT[names], from_h + 0.001), cycle_s)
    check(lab)
    assert sum(line.startswith("chain train (") for line in said) == 1, f"one agent was enough: {said}"
