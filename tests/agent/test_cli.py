"""A chain kept from the command line: what is refused before a submission, one agent a chain, its state, `check`."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent import cli
from agent.chains import submission
from agent.chains.look import LookedUpJob
from agent.chains.state import Busy, Folder, LinkAttempt, new_chain_state
from agent.slurm.commands import SlurmError
from features.observe import VERSION
from tests.agent.fake_slurm import CONFIG, ME, START_S, CheckedSlurm
from tests.agent.lab import Lab, artifact, chain_of, run
from tests.conftest import REPOSITORY


def lab_of(path: Path, **values: Any) -> Lab:
    return Lab(path, CheckedSlurm(), values)


def keep(lab: Lab, **options: Any) -> int:
    return cli.keep(lab.chain, lab.folder, lab.world(), **options)


def test_a_chain_from_its_beginning_and_once_more_after_its_end(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, links=2)
    assert keep(lab) == 0
    assert [name for name, _ in lab.links()] == ["1.1", "2.1"]
    assert keep(lab) == 0
    assert "for a new one give another --state" in lab.log[-1] and len(lab.links()) == 2


def test_a_running_job_may_be_the_first_link(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, links=2, first="100")
    lab.slurm.submit("mine")
    assert keep(lab) == 0
    assert [job.name.rpartition("-")[2] for job in lab.slurm.jobs] == ["mine", "2.1"]


def refused(lab: Lab, **options: Any) -> str:
    """The message with which a chain is refused; nothing may have been submitted, nor a state be left."""
    jobs = len(lab.slurm.jobs)
    with pytest.raises(ValueError) as caught:  # noqa: PT011  each caller looks at the text
        keep(lab, **options)
    assert len(lab.slurm.jobs) == jobs and lab.folder.load() is None
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_the_cluster_does_not_allow_is_said_before_anything_is_submitted(tmp_path: Path) -> None:
    lab = lab_of(tmp_path / "a", first="100")
    assert "no job with that id" in refused(lab)
    lab.slurm.submit("theirs", user="somebody")
    assert f"that job belongs to somebody; give a job of {ME}" in refused(lab)
    lab = lab_of(tmp_path / "b", options=("--time=13:00:00",))
    assert refused(lab) == (
        "the time limit is 13 h, but partition gpu allows at most 12 h: lower --time or choose another partition"
    )
    lab = lab_of(tmp_path / "c", options=("--partition=fast",))
    assert "unknown partition fast; known: gpu" in refused(lab)
    lab = lab_of(tmp_path / "d")
    assert isinstance(lab.slurm, CheckedSlurm)
    lab.slurm.refusal = "Requested node configuration is not available"
    assert refused(lab).endswith("Slurm would reject this job: Requested node configuration is not available")


@pytest.mark.parametrize(("capacity", "is_allowed"), [(4, True), (5, True), (6, False), (171, False), ("4", True)])
def test_a_policy_of_a_cluster_of_another_size_is_refused(tmp_path: Path, capacity: Any, is_allowed: bool) -> None:
    lab = lab_of(tmp_path, links=1)
    artifact(lab.released, trained_on={"capacity": capacity})
    if is_allowed:
        assert keep(lab) == 0
    else:
        assert f"trained on a cluster of {capacity} nodes; this cluster has 4" in refused(lab)


def test_a_policy_of_another_observation_version_is_refused(tmp_path: Path) -> None:
    lab = lab_of(tmp_path)
    artifact(lab.released, observe_version=1)
    assert f"made for observation version 1, but this program uses version {VERSION}" in refused(lab)


def test_a_folder_that_holds_another_chain_is_refused(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, links=1)
    lab.folder.make()
    lab.folder.save(new_chain_state("train", "/somewhere/else.sh", 3))
    with pytest.raises(ValueError, match=r"holds the chain of /somewhere/else\.sh"):
        keep(lab)


def unreadable(*_: Any, **__: Any) -> Any:
    raise OSError(errno.EIO, "Input/output error")


BROKEN_FILES = {
    "agent.chains.state.Folder.make": "Input/output error", "agent.chains.state.Folder.lock": "Input/output error",
    "agent.chains.state.read_file": "state.json: Input/output error", "agent.model_folder.read_file": "unreadable",
    "pathlib.Path.open": "job.sh: Input/output error", "pathlib.Path.read_text": "chain.toml: Input/output error",
    "os.lstat": "",
}  # fmt: skip


@pytest.mark.parametrize("where", BROKEN_FILES)
@pytest.mark.parametrize("is_begun", [True, False])
def test_a_chain_of_which_a_file_cannot_be_read_at_the_start_is_resumed_and_no_wrong_argument(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], where: str, is_begun: bool
) -> None:
    """A supervisor starts an agent again that ends with status 5, and not one that ends with 2."""
    chain, folder = chain_of(tmp_path), Folder(tmp_path / "s")
    (tmp_path / "chain.toml").write_text("links = 2\n")
    given = [str(chain.script), "--artifact", str(chain.artifact), "--state", str(folder.path)]
    given += ["--chain", str(tmp_path / "chain.toml")] if where == "pathlib.Path.read_text" else ["--links", "2"]
    if is_begun:
        folder.make()
        folder.save(new_chain_state("train", str(chain.script), 2))
    with monkeypatch.context() as broken:
        if where == "os.lstat":
            broken.setattr(Folder, "lock", unreadable)
        broken.setattr(where, unreadable)
        code = cli.main(["run", *given])
    (said,) = capsys.readouterr().err.splitlines()
    is_resumed = is_begun or where in ("os.lstat", "pathlib.Path.read_text")
    assert (code, said.endswith("; run again to resume the chain")) == ((5, True) if is_resumed else (2, False)), said
    assert said.startswith("baton-agent: ") and BROKEN_FILES[where] in said


# -- one agent a chain ------------------------------------------------------------------------------------------------


HOLD = """
import sys, time
from pathlib import Path
from agent.chains.state import Folder
folder = Folder(Path(sys.argv[1])); folder.make(); folder.lock()
if sys.argv[2:]:
    import subprocess
    subprocess.Popen(["sleep", sys.argv[2]], pass_fds=[folder.lock_fd], start_new_session=True)
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path: Path) -> Any:
    """Starts processes that hold the lock of tmp_path/s, and ends them."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(tmp_path / "s"), *arguments], stdout=subprocess.PIPE, cwd=REPOSITORY
        )
        started.append(process)
        assert process.stdout is not None and process.stdout.readline() == b"held\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_a_second_agent_is_told_who_keeps_the_chain(tmp_path: Path, holder: Callable[..., Any]) -> None:
    first = holder()
    with pytest.raises(Busy, match=rf"another agent keeps this chain: process {first.pid} on "):
        Folder(tmp_path / "s").lock(0.3)
    first.kill()
    first.wait()
    Folder(tmp_path / "s").lock(0.3)


def test_take_over_ends_the_other_agent(tmp_path: Path, holder: Callable[..., Any]) -> None:
    first = holder()
    mine = Folder(tmp_path / "s")
    mine.end_holder(10)
    assert first.wait(10) == -signal.SIGTERM
    assert mine.holder()["pid"] == os.getpid()


def test_take_over_ends_nothing_that_is_no_agent(tmp_path: Path, holder: Callable[..., Any]) -> None:
    first = holder()
    said = Folder(tmp_path / "s").holder()
    other = subprocess.Popen(["sleep", "60"])
    for lie in ({"host": "elsewhere"}, {"pid": other.pid}, {"pid": str(first.pid)}, {"started": None}):
        (tmp_path / "s" / "lock").write_text(json.dumps(said | lie))
        with pytest.raises(Busy, match="it is not an agent on this host"):
            Folder(tmp_path / "s").end_holder(0.3)
    assert first.poll() is None and other.poll() is None
    other.kill()
    other.wait()


def test_a_submission_of_a_killed_agent_keeps_others_out_until_it_ends(
    tmp_path: Path, holder: Callable[..., Any]
) -> None:
    first = holder("2")
    first.kill()
    first.wait()
    with pytest.raises(Busy):
        Folder(tmp_path / "s").lock(0.5)
    Folder(tmp_path / "s").lock(10)


def test_the_lock_is_handed_to_sbatch(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, links=1)
    given: list[Any] = []
    call = lab.commands.run

    def run_and_note(*argv: str, **more: Any) -> str:
        given.append((argv[0], more.get("pass_fds")))
        return call(*argv, **more)

    lab.commands.run = run_and_note  # type: ignore[method-assign]
    assert keep(lab) == 0
    fds = [fds for program, fds in given if program == "sbatch" and fds is not None]
    assert len(fds) == 1 and len(fds[0]) == 1


# -- the state --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"state_version": 2}', '{"state_version": 1, "attempts": [{"link": "1"}]}',
     '{"state_version": 1, "attempts": [], "chain": "../../etc", "name": "n", "script": "s", "links": 1}'],
)  # fmt: skip
def test_a_damaged_state_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    folder = Folder(tmp_path)
    folder.file.write_text(text)
    with pytest.raises(ValueError, match="invalid state of a chain"):
        folder.load()


def test_a_state_comes_back_as_it_was(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    attempt = LinkAttempt(
        1, 1, "train-00000000-1.1", START_S, "after:1", "7", 1, 2, None, "r", False, "w", "LOST", 85, True, 2
    )
    state = replace(new_chain_state("train", "/j.sh", 3), attempts=(attempt,), why="ü")
    folder.save(state)
    loaded = folder.load()
    assert loaded == state


@pytest.mark.parametrize(
    ("status", "expected"),
    [("21760", 85), ("0", 0), ("85:0", 85), ("0:15", None), ("15", None), ("", None), ("9999999", None)],
)
def test_exit_statuses_of_squeue_and_sacct(status: str, expected: int | None) -> None:
    found = submission._newest("squeue", [["7", "FAILED", status, "1", "N/A", "3"]])
    assert found == LookedUpJob("7", "FAILED", expected, 1, None, 3)


def test_rows_that_are_none_are_nonsense() -> None:
    for row in (["7", "FAILED"], ["x", "FAILED", "0", "1", "2", "3"], ["7", "FAILED", "0", "soon", "2", "3"]):
        with pytest.raises(SlurmError) as caught:
            submission._newest("sacct", [row])
        assert caught.value.kind == "nonsense"


def test_stopping_a_real_process_takes_no_time(tmp_path: Path) -> None:
    """SIGTERM ends the pause at once; the programs of this Slurm are scripts that know nothing."""
    chain = chain_of(tmp_path)
    programs = tmp_path / "bin"
    programs.mkdir()
    answers = {"scontrol": f"printf '%s' '{CONFIG}'", "sbatch": "echo 7", "sdiag": "true"}
    for name, text in (answers | dict.fromkeys(("squeue", "sinfo", "sacct"), "exit 1")).items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    command = [sys.executable, "-m", "agent.cli", "run", str(chain.script), "--links", "2", "--artifact",
               str(chain.artifact), "--state", str(tmp_path / "s")]  # fmt: skip
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "SLURM_CONF": "/nonexistent"}
    process = subprocess.Popen(command, cwd=REPOSITORY, env=environment, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    while "look at Slurm failed" not in process.stderr.readline():
        assert process.poll() is None
    begun = time.monotonic()
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 4 and time.monotonic() - begun < 5


def test_check_without_a_slurm_and_with_wrong_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    script = chain_of(tmp_path).script
    assert cli.main(["check", str(script), "--", "--nodes=2-4"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("problem  slurm: cannot be read: squeue: cannot be run: No such file or directory; run this")
    assert out.count("\n") == 1
    assert run(capsys, "check", "--", "-N", "0") == (
        2,
        "baton-agent: invalid --nodes '0' in the sbatch options; allowed: 1 to 100000\n",
    )
    assert run(capsys, "status", "--", "-N", "1") == (
        2,
        "baton-agent: status takes no sbatch options: remove everything from -- on\n",
    )


@pytest.fixture
def slurm_of_four(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Programs of a Slurm with four nodes and an empty queue; the folder that they lie in."""
    programs = tmp_path / "bin"
    programs.mkdir()
    answers = {"scontrol": f"printf '%s' '{CONFIG}'", **dict.fromkeys(("sbatch", "sdiag", "squeue", "sinfo"), "true")}
    for name, text in (answers | dict.fromkeys(("sacct", "sacctmgr"), "exit 1")).items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return programs


REFUSED_BY_RUN: dict[str, dict[str, Any]] = {
    "a policy of a larger cluster": {"trained_on": {"capacity": 171}},
    "a policy of another observation": {"observe_version": 1},
    "a limit over the partition's": {"more": ["--", "--time=13:00:00"]},
    "an own dependency": {"more": ["--", "--dependency=afterok:1"]},
    "a first link that is not there": {"more": ["--first", "100"]},
    "another chain's folder": {"state": "/somewhere/else.sh"},
    "what Slurm refuses": {"sbatch": "echo sbatch: error: no >&2; exit 1"},
    "a bound that is none": {"more": ["--most-overlap", "soon"]},
    "a setting outside": {"more": ["--setting", "9"]},
    "a plan without a limit": {"more": ["--plan", "auto", "--restart-cost", "5h"]},
}


@pytest.mark.parametrize("given", [pytest.param(given, id=name) for name, given in REFUSED_BY_RUN.items()])
def test_check_refuses_what_run_would(
    tmp_path: Path, slurm_of_four: Path, given: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    chain = chain_of(tmp_path)
    assert chain.artifact is not None
    artifact(chain.artifact, **{key: given[key] for key in ("trained_on", "observe_version") if key in given})
    folder = Folder(tmp_path / "s")
    if "state" in given:
        folder.make()
        folder.save(new_chain_state("train", given["state"], 3))
    if "sbatch" in given:
        (slurm_of_four / "sbatch").write_text(f"#!/bin/sh\n{given['sbatch']}\n")
    where = [str(chain.script), "--artifact", str(chain.artifact), "--state", str(folder.path), "--links", "2"]
    more = given.get("more", [])
    assert cli.main(["run", *where, *more]) == 2
    (refusal,) = capsys.readouterr().err.splitlines()[-1:]
    assert cli.main(["check", *where, *more]) in (1, 2)
    out, err = capsys.readouterr()
    said = [line for line in (out + err).splitlines() if line.startswith(("problem", "baton-agent: "))]
    assert len(said) == 1 and (said[0].rpartition(": ")[2].split("(")[0] in refusal or "13 h" in said[0])


def test_check_finds_no_problem_in_a_chain_that_run_would_keep(
    tmp_path: Path, slurm_of_four: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chain = chain_of(tmp_path)
    where = [str(chain.script), "--artifact", str(chain.artifact), "--state", str(tmp_path / "s")]
    assert cli.main(["check", *where]) == 0
    out = capsys.readouterr().out
    assert "problem" not in out and "a successor that starts more than 1 h early is cancelled (--most-overlap)" in out
    assert not (tmp_path / "s").exists()


@pytest.mark.timed
@pytest.mark.parametrize("command", ["run", "check"])
def test_ctrl_c_ends_within_a_second_also_in_a_call_to_slurm(tmp_path: Path, slurm_of_four: Path, command: str) -> None:
    chain = chain_of(tmp_path)
    for name in ("squeue", "scontrol"):
        (slurm_of_four / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/called\nexec sleep 25\n")
    given = [command, str(chain.script), "--links", "2", "--artifact", str(chain.artifact), "--state", str(tmp_path)]
    process = subprocess.Popen(
        [sys.executable, "-m", "agent.cli", *given], cwd=REPOSITORY, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    while not (tmp_path / "called").exists():
        assert process.poll() is None
        time.sleep(0.02)
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    code = process.wait(10)
    assert time.monotonic() - begun < 1.0
    assert process.stderr is not None
    lines = process.stderr.read().strip().splitlines()
    assert lines[-1].endswith("interrupted; run again to resume") and "Traceback" not in "".join(lines)
    assert code == (4 if command == "run" else 130)
