"""Answers in the form of other Slurm versions, from their documentation: all are seen alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.check import GOOD, TESTED, WARNING, check_agent
from agent.eyes import Eyes
from agent.sight import ClusterObservation, SlurmRequest
from agent.slurm.commands import Commands, SlurmError
from agent.slurm.settings import read_settings
from agent.slurm_time import SlurmTime

FOLDER = Path(__file__).parent / "versions"
VERSIONS = ("23.11", "24.11", "25.11")
NOW = 1_795_361_075
REQUEST = SlurmRequest(2, 8 * 3600, "ada", account="science", qos="normal")


class Printed(Commands):
    """Answers from the files of a version. form: in which squeue and sinfo answer."""

    def __init__(self, version: str, form: str = "txt") -> None:
        super().__init__({}, clock=lambda: NOW)
        self.folder, self.form = FOLDER / version, form

    def run(self, *argv: str, **_: Any) -> str:
        self.calls[argv[0]] += 1
        if argv[0] == "sacctmgr":
            return "|normal|normal,high||||||\n" if "association" in argv else "normal|||node=6||||||\n"
        if argv[0] == "scontrol":
            return self._file("config.txt" if argv[-1] == "config" else "partitions.txt")
        if argv[0] not in ("squeue", "sinfo"):
            return self._file(f"{argv[0]}.txt")
        if ("--json" in argv) != (self.form == "json"):
            raise SlurmError("refused", argv[0], "unrecognized option")
        text = self._file(f"{argv[0]}.{self.form}")
        layout = next((word for word in argv if word.startswith("--Format=")), "")
        return text.replace("<|>", layout[layout.rfind("|", 0, -1) :]) if layout else text

    def _file(self, name: str) -> str:
        return (self.folder / name).read_text(encoding="utf-8")


def sight(version: str, form: str) -> tuple[Eyes, ClusterObservation]:
    eyes = Eyes(Printed(version, form), REQUEST)
    queue = eyes.look(NOW)
    assert queue.unread == 0 and (len(queue.jobs), len(queue.ended)) == (11, 2)
    return eyes, eyes.sight(next(job for job in queue.jobs if job.id == "101"))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_version_is_seen_whole(version: str) -> None:
    eyes, seen = sight(version, "txt")
    assert seen.hidden == {} and eyes.context is not None and eyes.context.nodes is not None
    assert seen.snapshot.usable == 5 and seen.snapshot.capacity == 6  # one node of six is drained
    assert seen.snapshot.pending_held.tolist() == [0, 1, 1, 0, 1, 1, 1, 1]  # 106, 105, 107, 109, the array, 108
    assert sum(seen.snapshot.running_nodes) == 3  # the job of the partition `wide` holds none of these nodes
    assert (seen.snapshot.user_max_nodes, len(seen.snapshot.recent_wait_s)) == (6, 7)
    assert read_settings(Printed(version)).version.startswith(version)
    assert SlurmTime(Printed(version), lambda: NOW + 9.0, lambda: 0.0).now_s() == NOW


@pytest.mark.parametrize("version", VERSIONS)
def test_its_text_and_its_json_say_the_same(version: str) -> None:
    text, by_text = sight(version, "txt")
    other, by_json = sight(version, "json")
    assert text.queue is not None and other.queue is not None and text.context is not None and other.context is not None
    assert {job.id: job for job in text.queue.jobs} == {job.id: job for job in other.queue.jobs}
    assert text.context.nodes == other.context.nodes
    assert by_text.observation == by_json.observation


def test_all_versions_are_observed_alike() -> None:
    first, *others = (sight(version, "txt")[1].observation for version in VERSIONS)
    assert all(one == first for one in others)


@pytest.mark.parametrize("version", VERSIONS)
def test_check_says_which_versions_are_proven(version: str) -> None:
    found = check_agent(Printed(version), REQUEST, now_s=lambda: float(NOW))
    level = GOOD if version in TESTED else WARNING
    (text,) = (one.text for one in found if one.subject == "slurm" and one.level == level)
    assert text.startswith(f"version {version}") and text.endswith(", ".join(TESTED))
