"""`python -m agent`: says what a release is, decides line by line, and refuses in one line."""

from __future__ import annotations

import contextlib
import io
import json
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent.__main__ import main
from agent.artifact import Artifact
from agent.cli import say
from tests.conftest import REPOSITORY

FEATURES = ["remaining_h", "free_nodes", "start_estimate_h"]
MANIFEST: dict[str, Any] = {
    "policy": "test", "kind": "constant-lead", "knob": "lead, h", "settings": [0.0, 2.0], "default_setting": 2.0,
    "features": FEATURES, "format_version": 1, "requirements": ["numpy"], "trained_on": {"cluster": "lab"},
}  # fmt: skip


@pytest.fixture(params=["", "artifacts/policy", "policy"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A release by itself, in an MLflow model, and as a training run keeps it."""
    Artifact(MANIFEST).save(tmp_path / "release" / request.param)
    return tmp_path / "release"


def test_it_says_what_it_is(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(folder)]) == 0
    message = json.loads(capsys.readouterr().out)
    assert (message["policy"], message["default_setting"], message["features"]) == ("test", 2.0, FEATURES)


def test_it_decides_line_by_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [{"free_nodes": 0, "remaining_h": hours, "start_estimate_h": 1} for hours in (5, 1.5, 0)]
    monkeypatch.setattr("sys.stdin", io.StringIO("\n\n".join(map(json.dumps, lines)) + "\n"))
    assert main([str(folder), "--decide"]) == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [answer["submit"] for answer in answers] == [False, True, True]
    assert [answer["score"] for answer in answers] == [-3.0, 0.5, 2.0]
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(lines[1])))
    assert main([str(folder), "--decide", "--setting", "0"]) == 0
    assert json.loads(capsys.readouterr().out) == {"submit": False, "score": -1.5}


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("{", "not JSON"),
        ("[1, 2, 3]", "a JSON object"),
        ('{"remaining_h": 1, "free_nodes": 2, "extra": 3}', "missing: ['start_estimate_h']; unknown: ['extra']"),
        ('{"remaining_h": 1, "free_nodes": "2", "start_estimate_h": 3}', "free_nodes is '2', not a number"),
        ('{"remaining_h": true, "free_nodes": 2, "start_estimate_h": 3}', "remaining_h is True"),
        ('{"remaining_h": NaN, "free_nodes": 2, "start_estimate_h": 3}', "not a finite number"),
    ],
)
def test_an_observation_that_is_none_is_refused_in_one_line(
    folder: Path, line: str, part: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(line))
    assert main([str(folder), "--decide"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("agent: standard input:1: ") and err.count("\n") == 1 and part in err


def test_a_folder_without_a_release(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 2
    assert "holds no released policy" in capsys.readouterr().err
    (tmp_path / "manifest.json").write_text("{}")
    assert main([str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_process_answers_each_line_before_it_is_given_the_next(tmp_path: Path) -> None:
    """An agent that waits for the answer would wait for ever for one that is held back in a buffer."""
    Artifact(MANIFEST).save(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-m", "agent", str(tmp_path), "--decide"],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
    ) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        for hours in (5, 1):
            print(json.dumps({"remaining_h": hours, "free_nodes": 0, "start_estimate_h": 1}), file=process.stdin)
            process.stdin.flush()
            assert select.select([process.stdout], [], [], 30)[0], "no answer while the next line is awaited"
            assert json.loads(process.stdout.readline())["submit"] is (hours == 1)
        print("[]", file=process.stdin)
        process.stdin.close()
        assert process.wait(30) == 2
        assert process.stderr.read().count("\n") == 1


@pytest.mark.parametrize("of_agent", [True, False])
def test_nobody_reads_the_answer_any_more(tmp_path: Path, of_agent: bool) -> None:
    """As behind `| head`: no traceback, and a status that says it."""
    Artifact(MANIFEST).save(tmp_path)
    given = ["agent.cli", "check", "--", "--nodes=2"] if of_agent else ["agent", str(tmp_path)]
    read, write = os.pipe()
    os.close(read)
    environment = {**os.environ, "PATH": "/nonexistent"}  # a Slurm that is not there: its absence is the answer
    try:
        done = subprocess.run(
            [sys.executable, "-m", *given], cwd=REPOSITORY, env=environment, stdout=write, stderr=subprocess.PIPE,
            text=True, timeout=60,
        )  # fmt: skip
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


def test_a_log_that_nobody_reads_does_not_end_a_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as closed:
        monkeypatch.setattr("sys.stderr", closed)
        say("told to nobody")
        monkeypatch.undo()
        with contextlib.suppress(BrokenPipeError):
            closed.close()


def test_a_setting_that_is_no_number_is_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([str(tmp_path), "--setting", "much"])
    assert "--setting: invalid float value: 'much'" in capsys.readouterr().err
