"""What a job prints about its restarts, as the agent reads it from its output."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from agent.slurm.commands import Commands, SlurmError
from agent.slurm.output import TAIL_BYTES, JobOutputs, printed_times


class OneOutput(Commands):
    """A Slurm that knows the output of one job."""

    def __init__(self, answer: str | SlurmError) -> None:
        super().__init__({})
        self.answer, self.asked = answer, 0

    def run(self, *argv: str, pass_fds: Sequence[int] = (), environment: object = None) -> str:
        """The answer of scontrol."""
        self.asked += 1
        if isinstance(self.answer, SlurmError):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("baton: job 7 resumed after 312 s\n", {"resumed_s": 312}),
        ("99%|####| baton: job 7 resumed after 0.2 s\r\nbaton: job 7 saved in 20.5 s", {"resumed_s": 1, "saved_s": 21}),
        ("baton: job 7 saved in 9 s\nbaton: job 7 saved in 3 s\n", {"saved_s": 3}),
        ("baton: job 17 resumed after 5 s\nbaton: job 70 saved in 5 s\nbaton: resumed after 5 s", {}),
        ("baton: job 7 resumed after 1e3 s\nbaton: job 7 saved in -4 s\nbaton: job 7 saved in nan s", {}),
        ("baton: job 7 resumed after 12345678 s, baton: job 7 saved in 5 sec, baton: job 7 saved in 5 m", {}),
        ("baton: job 7 resumed after 9999999 s", {}),
        ("baton: job 7 resumed after ٣ s", {}),
    ],
)
def test_plain_numbers_of_the_job_alone_count(text: str, found: dict[str, int]) -> None:
    assert printed_times(text.encode(), "7") == found


def test_slurm_is_asked_once_where_the_output_of_a_living_job_goes(tmp_path: Path) -> None:
    path = tmp_path / "out | of job.txt"
    path.write_bytes(b"\xff\0" * TAIL_BYTES + b"\nbaton: job 7 resumed after 4 s\n")
    commands = OneOutput(f"JobId=7\n   StdIn=/dev/null\n   StdOut={path}\n   TresPerTask=cpu=1\n")
    outputs = JobOutputs(commands)
    assert outputs.restart_times("7", is_alive=False) == {}, "an ended job is not asked about"
    for is_alive in (True, True, False):
        assert outputs.restart_times("7", is_alive=is_alive) == {"resumed_s": 4}
    assert commands.asked == 1
    path.write_bytes(path.read_bytes() + b"x" * TAIL_BYTES)
    assert outputs.restart_times("7", is_alive=True) == {}, "too far from the end"


def test_an_output_that_cannot_be_read_is_no_error(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for answer in ("/dev/null", str(tmp_path / "pipe"), str(tmp_path / "gone"), str(tmp_path), "", "a\0b"):
        assert JobOutputs(OneOutput(f"   StdOut={answer}\n")).restart_times("7", is_alive=True) == {}
    refused = SlurmError("refused", "scontrol", "slurm_load_jobs error: Invalid job id specified")
    for without in (refused, "", "JobId=7"):
        assert JobOutputs(OneOutput(without)).restart_times("7", is_alive=True) == {}
