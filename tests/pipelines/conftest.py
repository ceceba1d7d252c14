"""Runs the command line in this process, and makes small raw logs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pipelines.cli import main

HEADER = (
    "JobID|JobIDRaw|JobName|User|Account|Partition|State|Submit|Eligible|Start|End|ElapsedRaw|TimelimitRaw|NNodes|"
    "AllocTRES|ExitCode"
)
ROW = (
    "{id}|{id}|train|anna|physics|gpu|{state}|2026-03-0{day}T00:00:00|2026-03-0{day}T00:00:00|2026-03-0{day}T01:00:00|"
    "2026-03-0{day}T03:00:00|7200|2880|{nodes}|billing=8,cpu=8,gres/gpu=4,node={nodes}|0:0"
)

# 10 processors; job 4 was cancelled before it ran
SWF = """; MaxProcs: 10
1 0 -1 100 6 -1 -1 6 100 -1 1 1 1 1 1 1 -1 -1
2 5 -1 100 6 -1 -1 6 100 -1 1 1 1 1 1 1 -1 -1
3 6 -1 50 4 -1 -1 4 60 -1 1 1 1 1 1 1 -1 -1
4 7 -1 -1 4 -1 -1 4 60 -1 5 1 1 1 1 1 -1 -1
"""


class Result(NamedTuple):
    """Exit code and streams of one command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """Standard output, which must be one JSON object and nothing else."""
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found


Baton = Callable[..., Result]


@pytest.fixture
def baton(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Baton:
    """Run `baton ARGUMENTS`; BATON_DATA of the tester's shell does not count."""
    monkeypatch.delenv("BATON_DATA", raising=False)

    def run(*arguments: object) -> Result:
        capfd.readouterr()
        with pytest.raises(SystemExit) as stopped:
            main([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        code = stopped.value.code
        return Result(int(code) if code is not None else 0, out, err)

    return run


def dump(path: Path, jobs: int = 6, *, nodes: int = 1, state: str = "COMPLETED") -> Path:
    """A small sacct -P dump: one job a day, each an hour in the queue and two hours long."""
    rows = [ROW.format(id=100 + day, day=day, nodes=nodes, state=state) for day in range(1, jobs + 1)]
    path.write_text("\n".join([HEADER, *rows]) + "\n")
    return path
