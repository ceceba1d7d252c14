"""The helpers for links of a chain, and the chain of the examples: no link starts early or leaves half a checkpoint."""

from __future__ import annotations

import ast
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from agent.chains import chain as chains
from agent.slurm.output import printed_times
from examples.chain import baton_chain
from examples.chain.baton_chain import Link
from tests.examples.links import ENOUGH_S, SCRIPTS, WAITING, start_link


@pytest.fixture(autouse=True)
def _own_signals(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The handlers of this process come back, and it is no job of a Slurm that runs the tests."""
    numbers = (signal.SIGUSR1, signal.SIGTERM)
    handlers = [signal.getsignal(number) for number in numbers]
    for name in ("SLURM_JOB_ID", "SLURM_JOB_START_TIME", "SLURM_JOB_END_TIME", "BATON_CHAIN_DIR"):
        monkeypatch.delenv(name, raising=False)
    yield
    for number, handler in zip(numbers, handlers, strict=True):
        signal.signal(number, handler)


def test_it_is_one_short_file_of_the_standard_library() -> None:
    text = (SCRIPTS / "baton_chain.py").read_text(encoding="utf-8")
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {node.module or "" if isinstance(node, ast.ImportFrom) else node.names[0].name for node in nodes}
    assert len(text.splitlines()) <= 100 and {name.split(".")[0] for name in names} <= sys.stdlib_module_names
    assert chains.Chain.more_status == baton_chain.MORE == 85


@pytest.mark.parametrize(
    ("answer", "left_s"),
    [
        ("$(($(date +%s) - 60)) $(($(date +%s) + 7384))", 7384),
        ("1800000000 N/A", float("inf")), ("INVALID", float("inf")), ("", float("inf")), (None, float("inf")),
    ],
)  # fmt: skip
def test_the_time_left_is_what_squeue_says(
    answer: str | None, left_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    squeue = tmp_path / "squeue"
    text = (
        "exit 1"
        if answer is None
        else f'[ "$*" = "-h -j 17 -o %S %e" ] && [ "$SLURM_TIME_FORMAT" = %s ] && echo "{answer}"'
    )
    squeue.write_text(f"#!/bin/sh\n{text}\n")
    squeue.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert Link().time_left_s() == float("inf"), "asked outside Slurm"
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    assert Link().time_left_s() == pytest.approx(left_s, abs=2)
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time()) + 500))
    assert Link().time_left_s() == pytest.approx(500, abs=2)


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
def test_a_signal_saves_and_ends(number: signal.Signals, tmp_path: Path) -> None:
    with Link(folder=tmp_path) as link:
        assert not link.must_end() and not link.should_save()
        os.kill(os.getpid(), number)
        assert link.must_end() and link.should_save()


def test_the_end_of_the_limit_and_the_time_since_the_last_save_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time()) + 100))
    assert Link(margin_s=200).must_end() and not Link(margin_s=50).must_end()
    link = Link(save_every_s=0.05, margin_s=0, folder=tmp_path)
    assert not link.should_save()
    time.sleep(0.06)
    assert link.should_save() and not link.must_end()
    with link.replacing("checkpoint") as part:
        part.write_text("state")
    assert not link.should_save() and (tmp_path / "checkpoint").read_text() == "state"


def test_it_prints_what_the_agent_measures_a_restart_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """From the start of the job to the first question in the loop, without the time that the lock was taken."""
    for name, value in (("ID", 17), ("START_TIME", int(time.time()) - 100), ("END_TIME", int(time.time()) + 900)):
        monkeypatch.setenv(f"SLURM_JOB_{name}", str(value))
    with (tmp_path / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        threading.Timer(4, lock.close).start()
        with Link(folder=tmp_path) as link:
            assert not link.should_save() and not link.must_end()
            with link.replacing("checkpoint") as part:
                time.sleep(1.2)
                part.write_text("state")
    waiting, resumed, saved = capfd.readouterr().out.splitlines()
    assert waiting == WAITING and resumed.startswith("baton: job 17 resumed after 10")
    times = printed_times(f"{resumed}\n{saved}\n".encode(), "17")
    assert 100 <= times["resumed_s"] <= 103 and times["saved_s"] == 2


def test_a_save_that_fails_leaves_the_old_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").write_text("old")
    with suppress(ZeroDivisionError), Link(folder=tmp_path).replacing("checkpoint") as part:
        part.write_text("half")
        raise ZeroDivisionError
    assert (tmp_path / "checkpoint").read_text() == "old"


def test_a_link_that_waits_until_its_own_limit_asks_for_another(tmp_path: Path) -> None:
    first = start_link(tmp_path, "train.sh")
    first.until("step 10")
    first.signal(signal.SIGSTOP)
    second = start_link(tmp_path, "train.sh", SLURM_JOB_END_TIME="1")
    assert second.ends() == baton_chain.MORE and second.said.strip() == WAITING
    first.signal(signal.SIGKILL)
    first.ends()


SAVING = """
from baton_chain import Link
with Link() as link:
    for number in range(10**9):
        with link.replacing("checkpoint") as part:
            part.write_text(f"{number % 10}" * 3_000_000)
"""


def test_killed_at_any_time_the_checkpoint_is_whole(tmp_path: Path) -> None:
    env = os.environ | {"PYTHONPATH": str(SCRIPTS), "BATON_CHAIN_DIR": str(tmp_path)}
    for number in range(8):
        (tmp_path / "checkpoint").unlink(missing_ok=True)
        with subprocess.Popen([sys.executable, "-c", SAVING], env=env) as link:
            end = time.monotonic() + ENOUGH_S
            while not (tmp_path / "checkpoint").exists():
                assert time.monotonic() < end
                time.sleep(0.001)
            time.sleep(0.011 * number)
            link.kill()
        text = (tmp_path / "checkpoint").read_text()
        assert len(text) == 3_000_000 and len(set(text)) == 1


def test_the_chain_file_is_one() -> None:
    chain = chains.make(chains.from_file(SCRIPTS / "chain.toml"))
    assert (chain.links, chain.limit_s, chain.options, chain.name) == (5, 12 * 3600, ("--partition=gpu",), "train")
