"""Training, evaluation, a queue-time release and a what-if, killed before their writes, and rollbacks beside work.

By default one kill of an evaluation and one rollback; `BATON_KILLS=1` kills all of them before every write.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.conftest import REPOSITORY

IS_LONG = "BATON_KILLS" in os.environ
CASES = ("evaluate", "rollback", *(("train", "queue time", "what if") if IS_LONG else ()))
POLICIES = ["average-wait", "reactive"]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.models.killed_work", str(tmp_path_factory.mktemp("work")), *CASES],
        cwd=REPOSITORY, capture_output=True, text=True, timeout=3000,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    cases: dict[str, list[dict[str, Any]]] = json.loads(done.stdout)
    return cases


def killed(cases: list[dict[str, Any]], at_least: int) -> dict[str, Any]:
    """The last of the cases; in the long form it is undisturbed, and was killed before each write in those before."""
    assert [one["code"] for one in cases] == ([-9] * (len(cases) - 1) + [0] if IS_LONG else [-9])
    assert len(cases) > at_least or not IS_LONG
    return cases[-1]


def test_an_evaluation_killed_anywhere_is_completed_by_the_next(found: dict[str, list[dict[str, Any]]]) -> None:
    """Its figures, windows, data sets and files are in MLflow as without a kill."""
    last = killed(found["evaluate"], 8)
    for one in found["evaluate"]:
        assert (one["open"], one["finished"], one["left"], one["digests"]) == (0, POLICIES, [], last["digests"]), one
        for status, figures, windows, inputs, files in one["fits"].values():
            assert (status, files) == ("FINISHED", ["policy"]) and {"report_cost_w1_h", "setting_1n"} <= {*figures}, one
            assert sorted(windows) == ["report_window", "select_window"] and len(inputs) == 3, one
        assert one["fits"] == last["fits"] and one["trainings"] == last["trainings"], one
        ((_, _, inputs, files),) = one["trainings"]
        assert len(inputs) == 3 and files == ["comparison.csv", "curve.png"], one


@pytest.mark.skipif(not IS_LONG, reason="the long form: set BATON_KILLS")
def test_a_training_killed_anywhere_is_completed_by_the_next(found: dict[str, list[dict[str, Any]]]) -> None:
    """The run of a fit that was closed in MLflow but not kept yet stays there, and the fit is made again."""
    last = killed(found["train"], 25)
    for one in found["train"]:
        assert one["digests"] == last["digests"] and sorted(one["digests"]) == POLICIES, one
        assert one["fits"] == last["fits"] and one["open"] == 0, one
        assert sorted(set(one["finished"])) == POLICIES and len(one["finished"]) <= 3, one
        assert not [path for path in one["left"] if "/policies/" in path], one


@pytest.mark.skipif(not IS_LONG, reason="the long form: set BATON_KILLS")
def test_a_queue_time_release_killed_anywhere_is_made_once(found: dict[str, list[dict[str, Any]]]) -> None:
    last = killed(found["queue time"], 10)
    for one in found["queue time"]:
        assert (one["reused"], one["is_pointed_at"], one["open"]) == (True, True, 0), one
        assert len(one["versions"]) == len(set(one["versions"])) == 2 and len(one["log"]) == 1, one
        assert {**one, "write": 0, "code": 0} == {**last, "write": 0}, one


@pytest.mark.skipif(not IS_LONG, reason="the long form: set BATON_KILLS")
def test_a_what_if_killed_anywhere_is_answered_by_the_next(found: dict[str, list[dict[str, Any]]]) -> None:
    last = killed(found["what if"], 4)
    assert {row[0] for row in last["rows"]} == {"fifo", "sjf"} and last["jobs"] > 100
    for one in found["what if"]:
        assert {**one, "write": 0, "code": 0} == {**last, "write": 0} and one["left"] == [], one


def test_a_rollback_beside_a_release_or_a_training_leaves_registry_folder_and_log_in_agreement(
    found: dict[str, list[dict[str, Any]]],
) -> None:
    """It waits for the release. If that changed the champion, nothing is rolled back, and it says so."""
    promoted = found["rollback"][0]
    assert promoted["codes"] == [0, 1] and promoted["message"].startswith("waiting for the release of ")
    assert (promoted["champion"], promoted["folder"], promoted["history"]) == (3, "3", [1, 2]), promoted
    assert promoted["rolled_back"] == [] and [row[0] for row in promoted["log"]] == [1, 2, 3]
    for one in found["rollback"][1:]:
        assert one["codes"] == [0, 0], one
        assert (one["champion"], one["folder"], one["history"], one["rolled_back"]) == (1, "1", [], [2]), one
    if IS_LONG:
        rejected, training = found["rollback"][1:]
        assert rejected["challenger"] == 3 and rejected["message"].startswith("waiting for the release of ")
        assert training["message"] == "", "a training and a rollback do not wait for each other"
