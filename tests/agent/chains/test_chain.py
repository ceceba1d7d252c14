"""Options as sbatch takes them, and a disk that is full when a chain begins."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from agent import cli
from agent.chains.chain import least_limit, option
from tests.agent.fake_slurm import CheckedSlurm, FakeCommands
from tests.agent.lab import chain_of, run


@pytest.mark.parametrize(
    ("options", "limit_s"),
    [
        (["--time=5"], 300), (["--time", "5"], 300), (["--tim=5"], 300), (["--ti", "5"], 300), (["-t", "5"], 300),
        (["-t5"], 300), (["--time-min=5"], None), (["--time=5", "--time-min=1"], 300), (["--t=5"], None),
        (["--time"], None),
    ],
)  # fmt: skip
def test_an_option_is_found_as_sbatch_takes_it(options: list[str], limit_s: int | None) -> None:
    text = option(options, "--time", "-t")
    assert (None if text is None else int(text) * 60) == limit_s


@pytest.mark.parametrize(
    ("options", "least_s"),
    [
        (["--time=5", "--time-min=1"], 60), (["--time-min", "1:00:00", "-t", "5"], 3600), (["--time-m=2"], 120),
        (["--time=5"], None), (["--ti", "5"], None), ([], None), (["--time-min=UNLIMITED"], None),
    ],
)  # fmt: skip
def test_the_least_limit_is_found_as_sbatch_takes_it(options: list[str], least_s: int | None) -> None:
    assert least_limit(options) == least_s


def test_a_full_disk_at_the_start_is_one_line_that_names_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    chain, commands = chain_of(tmp_path), FakeCommands(CheckedSlurm())
    monkeypatch.setattr(cli, "Commands", lambda: commands)
    monkeypatch.setattr("os.fsync", full)
    where = ("--artifact", str(chain.artifact), "--state", str(tmp_path / "s"))
    code, err = run(capsys, "run", str(chain.script), "--links", "2", *where)
    assert (code, err) == (2, f"baton-agent: {tmp_path}/s/state.json: No space left on device\n")
    assert commands.calls["sbatch"] == 1 and commands.slurm.jobs == []  # it was tried, not submitted
