"""Slurm's answers, refusals and silences are told apart; nothing of the caller's environment changes what is asked."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from agent.slurm import commands as module
from agent.slurm.commands import Commands, SlurmError, cleaned

# As Slurm 22.05 prints them, and as slurm_errno.c of later versions has them.
AWAY = (
    "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
    "slurm_load_jobs error: Zero Bytes were transmitted or received",
    "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
    "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
    "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying",
    "slurm_load_partitions: Slurm backup controller in standby mode",
    "sacct: error: Problem talking to the database: Connection refused",
    "squeue: fatal: Could not establish a configuration source",
    "squeue: error: If munged is up, restart with --num-threads=10",
    "slurm_load_jobs error: Protocol authentication error",
    "slurm_load_jobs error: Rate limit exceeded, please retry momentarily",
)
REFUSED = (
    "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified",
    "sbatch: error: Batch job submission failed: Invalid partition name specified",
    "sbatch: error: Batch job submission failed: Invalid qos specification",
    "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size "
    "and/or time limits)",
    "sbatch: error: Batch job submission failed: Requested node configuration is not available",
    "sbatch: unrecognized option '--bogus'",
    "slurm_load_jobs error: Invalid job id specified",
    "scancel: error: Kill job error on job id 2: Access/permission denied",
    "Slurm accounting storage is disabled",
)


def program(folder: Path, name: str, body: str) -> Path:
    path = folder / name
    path.write_text(f"#!{sys.executable}\n{body}\n")
    path.chmod(0o755)
    return path


def commands(folder: Path, timeout_s: float = 20.0, **variables: str) -> Commands:
    return Commands({**variables, "PATH": f"{folder}:{os.environ['PATH']}"}, timeout_s)


@pytest.mark.parametrize(
    ("message", "kind"), [*((one, "away") for one in AWAY), *((one, "refused") for one in REFUSED)]
)
def test_a_failure_is_told_by_what_slurm_says(tmp_path: Path, message: str, kind: str) -> None:
    program(tmp_path, "squeue", f"import sys; sys.exit({message!r})")
    with pytest.raises(SlurmError) as caught:
        commands(tmp_path).run("squeue")
    assert (caught.value.kind, caught.value.command) == (kind, "squeue")
    assert caught.value.detail == " ".join(message.split())


def test_no_answer_in_time_is_away_and_nothing_is_left_running(tmp_path: Path) -> None:
    mark = tmp_path / "alive"
    body = (
        f"import os, time\nopen({str(mark)!r}, 'w').write(str(os.getpid()))\nprint('half', flush=True)\ntime.sleep(60)"
    )
    program(tmp_path, "sbatch", body)
    began = time.monotonic()
    with pytest.raises(SlurmError) as caught:
        commands(tmp_path, timeout_s=2.0).run("sbatch")
    assert (caught.value.kind, caught.value.detail) == ("away", "no answer within 2 s")
    assert time.monotonic() - began < 20
    with pytest.raises(ProcessLookupError):
        os.kill(int(mark.read_text()), 0)


def test_a_program_that_the_kernel_does_not_end_is_left_alone_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that waits for a dead network file system: SIGKILL has no effect until the file system answers."""
    left: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda pid, _: left.append(pid))
    monkeypatch.setattr(module, "END_S", 0.1)
    monkeypatch.setattr(module, "MOST_STUCK", 1)
    program(tmp_path, "squeue", "import time; time.sleep(60)")
    slurm = commands(tmp_path, timeout_s=0.1)
    began = time.monotonic()
    said = []
    for _ in range(3):
        with pytest.raises(SlurmError) as caught:
            slurm.run("squeue")
        assert caught.value.kind == "away"
        said.append(caught.value.detail)
    assert time.monotonic() - began < 20
    assert said[:2] == [f"no answer within 0.1 s; its process {pid} was killed and does not end" for pid in left]
    assert said[2] == "cannot be run: 2 killed programs of Slurm do not end", "so that they do not become ever more"
    monkeypatch.undo()
    slurm._timeout_s = 20.0
    for pid in left:
        os.killpg(pid, signal.SIGKILL)
    program(tmp_path, "squeue", "print('back')")
    os.waitid(os.P_PID, left[0], os.WEXITED | os.WNOWAIT)
    assert slurm.run("squeue") == "back\n"


def test_a_program_that_is_killed_is_away_and_one_that_is_not_there_is_refused(tmp_path: Path) -> None:
    program(tmp_path, "sinfo", "import os; os.kill(os.getpid(), 9)")
    for name, kind, detail in (("sinfo", "away", "ended by signal 9"), ("snone", "refused", "No such file")):
        with pytest.raises(SlurmError) as caught:
            commands(tmp_path).run(name)
        assert caught.value.kind == kind and detail in caught.value.detail


def test_an_endless_answer_is_nonsense(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 1 << 20)
    program(tmp_path, "squeue", "while True: print('x' * 1000)")
    with pytest.raises(SlurmError) as caught:
        commands(tmp_path).run("squeue")
    assert caught.value.kind == "nonsense"


def test_a_message_is_one_visible_line(tmp_path: Path) -> None:
    program(tmp_path, "squeue", r"import sys; sys.exit('a\x1b[2Jb\nc ' + 'd' * 999)")
    with pytest.raises(SlurmError) as caught:
        commands(tmp_path).run("squeue")
    assert caught.value.detail.startswith(r"a\x1b[2Jb c ddd") and len(caught.value.detail) < 320
    assert "\n" not in str(caught.value)


def test_arguments_arrive_as_they_are_and_nothing_waits_for_input(tmp_path: Path) -> None:
    body = "import json, sys; print(json.dumps([sys.argv[1:], sys.stdin.read()]))"
    program(tmp_path, "sbatch", body)
    hostile = ("--comment=$(touch x); `id` 'a\"", "--x=a b\nc")
    assert json.loads(commands(tmp_path).run("sbatch", *hostile)) == [list(hostile), ""]
    reader, writer = os.pipe()
    try:
        program(tmp_path, "squeue", f"import os; os.write({writer}, b'k')")
        commands(tmp_path).run("squeue", pass_fds=[writer])
        assert os.read(reader, 1) == b"k"
    finally:
        os.close(reader)
        os.close(writer)


def test_calls_are_counted(tmp_path: Path) -> None:
    program(tmp_path, "squeue", "")
    now = [1000.0]
    commands = Commands({"PATH": f"{tmp_path}:{os.environ['PATH']}"}, clock=lambda: now[0])
    for now[0] in (1000.0, 1030.0, 1059.0, 1061.0):
        commands.run("squeue")
    assert commands.calls == {"squeue": 4}
    assert commands.calls_in_last_minute() == 3


def test_variables_that_change_an_answer_are_taken_out() -> None:
    given = {
        "PATH": "/bin", "SLURM_CONF": "/etc/slurm.conf", "SLURM_JWT": "token", "SLURM_JOB_ID": "7",
        "SLURM_CLUSTERS": "b", "SLURM_TIME_FORMAT": "relative", "SQUEUE_FORMAT": "%i", "SQUEUE_STATES": "PD",
        "SINFO_FORMAT": "%N", "SACCT_FORMAT": "JobID", "SBATCH_PARTITION": "debug", "SALLOC_QOS": "x",
        "TZ": "Asia/Tokyo", "HOME": "/home/me",
    }  # fmt: skip
    kept = {name: given[name] for name in ("PATH", "SLURM_CONF", "SLURM_JWT", "HOME")}
    assert cleaned(given, "squeue") == {**kept, "TZ": "UTC", "SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0"}
    assert cleaned(given, "sbatch") == {**kept, "TZ": "Asia/Tokyo"}  # a job inherits it


def test_another_environment_is_cleaned_too(tmp_path: Path) -> None:
    program(tmp_path, "sbatch", "import os, json; print(json.dumps(dict(os.environ)))")
    own = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SBATCH_QOS": "x", "WANDB": "1"}
    seen = json.loads(commands(tmp_path, HOME="/a").run("sbatch", environment=own))
    assert "SBATCH_QOS" not in seen and "HOME" not in seen and seen["WANDB"] == "1"
