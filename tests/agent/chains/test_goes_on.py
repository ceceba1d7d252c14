"""A running agent ends for three reasons alone; whatever else fails is a line in its log and another try."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import pytest

from agent import cli
from agent.chains import loop
from agent.chains.loop import DONE, UNWRITTEN, Agent
from agent.chains.state import Busy, Folder
from agent.sight import ClusterObservation
from agent.slurm.commands import Commands, SlurmError
from tests.agent.fake_slurm import START_S, FakeSlurm
from tests.agent.lab import FakeEyes, Lab, advance_until, artifact, job, lab_of

ERRORS = (
    OSError(errno.ESTALE, "Stale file handle"), OSError(errno.EIO, "Input/output error"),
    PermissionError(errno.EACCES, "Permission denied"), OSError(errno.ENOSPC, "No space left on device"),
    OverflowError("int too large"), MemoryError(), RuntimeError("two\nlines"),
)  # fmt: skip


def failing(error: Exception, calls: int = 3) -> Callable[..., Any]:
    """A function that raises so often, and then is the test's to replace."""
    left = iter(range(calls))

    def fail(*_: Any, **__: Any) -> Any:
        if next(left, None) is not None:
            raise error
        raise AssertionError("called too often")

    return fail


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__ + str(getattr(error, "errno", "")))
@pytest.mark.parametrize("where", ["look", "sight", "more", "time"])
def test_an_error_anywhere_in_a_cycle_is_a_line_and_another_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, where: str
) -> None:
    lab = lab_of(tmp_path, links=2)
    agent = lab.agent()
    advance_until(lab, agent, 0.2)
    with monkeypatch.context() as broken:
        if where == "time":
            broken.setattr(agent.world.time, "now_s", failing(error, 20))
        elif where == "more":
            broken.setattr(Path, "exists", failing(error, 20))
        else:
            broken.setattr(FakeEyes, where, failing(error, 20))
        for _ in range(12):
            lab.pause(agent.cycle())
    said = [line for line in lab.log if str(error).split("\n")[0] in line]
    assert said and all("\n" not in line for line in said)
    assert agent.run() == DONE
    assert [name for name, _ in lab.links()] == ["1.1", "2.1"]


def test_a_script_that_is_gone_for_a_while_ends_no_chain(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, links=2)
    agent = lab.agent()
    advance_until(lab, agent, 0.2)
    script = lab.chain.script.read_text()
    lab.chain.script.unlink()
    advance_until(lab, agent, 1.6)
    assert agent.state.status == "going" and len(lab.slurm.jobs) == 1
    assert sum("the options read before stay in use" in line for line in lab.log) >= 1
    lab.chain.script.write_text(script)
    assert agent.run() == DONE
    assert [name.partition(".")[0] for name, _ in lab.links()] == ["1", "2"]


def test_a_state_that_cannot_be_written_for_long_ends_the_agent_but_not_the_chain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = lab_of(tmp_path, links=1)
    agent = lab.agent()
    with monkeypatch.context() as full:
        full.setattr(Folder, "save", failing(OSError(errno.ENOSPC, "No space left on device"), 10_000))
        assert agent.run() == UNWRITTEN
    assert lab.slurm.now_s - START_S >= 86_400
    assert lab.slurm.jobs == [] and lab.log[-1] == "stopped: the state could not be written for 24 h"
    assert lab.run() == DONE
    assert [name for name, _ in lab.links()] == ["1.1"]


def test_a_disk_that_is_full_for_less_ends_no_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "MOST_UNWRITTEN_S", 500.0)
    lab = lab_of(tmp_path, links=1)
    agent = lab.agent()
    save, tries = Folder.save, iter(range(1000))

    def sometimes(folder: Folder, state: Any) -> None:
        if next(tries) % 8:
            raise OSError(errno.ENOSPC, "No space left on device")
        save(folder, state)

    monkeypatch.setattr(Folder, "save", sometimes)
    assert agent.run() == DONE


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """The folder cannot be written to; for root, whom modes do not bind, as a mount that is read-only."""
    if os.geteuid():
        (folder / "lock").chmod(0o400)
        folder.chmod(0o500)
        try:
            yield
        finally:
            folder.chmod(0o700)
            (folder / "lock").chmod(0o600)
        return
    if subprocess.run(["mount", "--bind", folder, folder], capture_output=True).returncode:
        pytest.skip("this system allows root no mount")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", folder], check=True)
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_state_folder_that_is_read_only_for_hours_costs_no_link(tmp_path: Path) -> None:
    """From before the successor of link 1 is due until after the end of link 1."""
    lab = lab_of(tmp_path, links=2)
    agent = lab.agent()
    advance_until(lab, agent, 0.2)
    with read_only(lab.folder.path):
        advance_until(lab, agent, 3)
    assert len(lab.slurm.jobs) == 1
    assert sum("nothing is submitted until the state can be written" in line for line in lab.log) == 1
    advance_until(lab, agent, 3.2)
    agent.folder.unlock()
    with read_only(lab.folder.path):
        code = cli.main(["run", str(lab.chain.script), "--links", "2", "--state", str(lab.folder.path)])
        assert code == UNWRITTEN, "a later agent cannot start, and a supervisor starts it again"
    assert lab.run() == DONE
    assert [name for name, _ in lab.links()] == ["1.1", "2.1"] and lab.state.status == "done"
    assert [one["link"] for one in lab.journal("ended")] == [1, 2], "what could not be written is written later"


# -- the lock ---------------------------------------------------------------------------------------------------------


def remove(folder: Folder) -> None:
    (folder.path / "lock").unlink(missing_ok=True)


def test_a_removed_lock_is_made_again_and_the_chain_goes_on(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, links=2)
    agent = lab.agent()
    advance_until(lab, agent, 0.2)
    remove(lab.folder)
    lab.pause(agent.cycle())
    with pytest.raises(Busy):
        Folder(lab.folder.path).lock(0.0)
    assert sum("its lock was removed or replaced; locked again" in line for line in lab.log) == 1
    assert agent.run() == DONE
    assert [name for name, _ in lab.links()] == ["1.1", "2.1"]


def test_a_removed_folder_is_made_again_with_its_state(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, links=2)
    agent = lab.agent()
    advance_until(lab, agent, 0.2)
    shutil.rmtree(lab.folder.path)
    assert agent.run() == DONE
    assert [name for name, _ in lab.links()] == ["1.1", "2.1"] and lab.state.status == "done"


def test_an_agent_beside_another_submits_nothing_and_takes_up_its_state_when_it_has_gone(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, links=3)
    agent = lab.agent()
    advance_until(lab, agent, 0.2)
    remove(lab.folder)
    other = Lab.agent(second(lab))
    advance_until(lab, other, 2.5)
    submitted = len(lab.slurm.jobs)
    assert submitted == 2
    for _ in range(5):
        lab.pause(agent.cycle())
    assert len(lab.slurm.jobs) == submitted
    assert sum("another agent keeps this chain" in line for line in lab.log) == 1
    other.folder.unlock()
    assert agent.run() == DONE
    assert [name for name, _ in lab.links()] == ["1.1", "2.1", "3.1"]


def second(lab: Lab) -> Lab:
    """Another process's view of the same chain: its own folder object, and so its own lock."""
    other = Lab.__new__(Lab)
    other.__dict__.update(lab.__dict__)
    other.folder, other.log = Folder(lab.folder.path), []
    return other


class Intruder:
    """At one step of an agent (a write, or a call that is no look) the lock goes, and a second agent does two cycles.

    It then lives on, or ends. `count`: the steps of the first agent.
    """

    def __init__(self, lab: Lab, at: int, gap: str, lives_on: bool) -> None:
        self.lab, self.at, self.gap, self.lives_on, self.count = lab, at, gap, lives_on, 0
        self.agent: Any = None
        self._is_in = False
        save = lab.folder.save

        def watched(state: Any) -> None:
            self.step("before", ("write",))
            save(state)
            self.step("after", ("write",))

        lab.commands.before = lambda argv: self.step("before", argv)
        lab.commands.after = lambda argv: self.step("after", argv)
        lab.folder.save = watched  # type: ignore[method-assign]

    def step(self, gap: str, argv: tuple[str, ...]) -> None:
        if self._is_in or argv[0] == "sdiag" or ("--all" in argv and self.count):
            return
        self.count += gap == "before"
        if (gap, self.count) == (self.gap, self.at) and self.agent is None:
            self._is_in = True
            remove(self.lab.folder)
            self.agent = second(self.lab).agent()
            for _ in range(2):
                self.agent.cycle()
            if not self.lives_on:
                self.agent.folder.unlock()
            self._is_in = False


@pytest.mark.parametrize("lives_on", [True, False])
@pytest.mark.parametrize("gap", ["before", "after"])
def test_a_lock_that_is_removed_at_any_step_leads_to_no_second_submission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gap: str, lives_on: bool
) -> None:
    monkeypatch.setattr(loop, "MOST_UNWRITTEN_S", 300.0)
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    steps, number = 2, 1
    while number <= steps:
        lab = lab_of(tmp_path / str(number), links=2, cycle_s=300)
        agent = lab.agent()
        intruder = Intruder(lab, number, gap, lives_on)
        status = agent.run()
        if status == UNWRITTEN:
            assert lives_on and intruder.agent.run() == DONE
        else:
            assert status == DONE
        assert lab.state.status == "done"
        check_links(lab, f"at {number}")
        steps, number = max(steps, intruder.count), number + 1
    assert steps > 12


def check_links(lab: Lab, where: str) -> None:
    """Each link ran to its end once, and no two jobs of one link were alive at the same time."""
    jobs = [(one.name.rpartition("-")[2][0], one.submit_s, one.end_s, one.state) for one in lab.slurm.jobs]
    assert sorted(link for link, _, _, state in jobs if state == "TIMEOUT") == ["1", "2"], f"{where}: {jobs}"
    for link in "12":
        spans = sorted((submit_s, end_s) for of, submit_s, end_s, _ in jobs if of == link)
        assert all(end_s is not None and end_s <= later for (_, end_s), (later, _) in pairwise(spans)), (where, jobs)


# -- programs and files -----------------------------------------------------------------------------------------------


def test_a_call_to_slurm_needs_no_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "squeue"
    program.write_text(f"#!{sys.executable}\nprint('fine')\n")
    program.chmod(0o755)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "gone"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    assert Commands({"PATH": f"{tmp_path}:{os.environ['PATH']}"}).run("squeue") == "fine\n"


@pytest.mark.parametrize(
    ("number", "kind"),
    [(errno.EIO, "away"), (errno.ESTALE, "away"), (errno.ENOMEM, "away"), (errno.EMFILE, "away"),
     (errno.ENOENT, "refused"), (errno.EACCES, "refused"), (errno.ENOEXEC, "refused")],
)  # fmt: skip
def test_a_program_that_cannot_be_started_now_is_away_and_one_that_never_will_is_refused(
    monkeypatch: pytest.MonkeyPatch, number: int, kind: str
) -> None:
    monkeypatch.setattr("subprocess.Popen", failing(OSError(number, os.strerror(number))))
    with pytest.raises(SlurmError) as caught:
        Commands({}).run("squeue")
    assert (caught.value.kind, caught.value.detail) == (kind, f"cannot be run: {os.strerror(number)}")


def test_an_answer_that_cannot_be_read_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "squeue"
    program.write_text("#!/bin/sh\necho fine\n")
    program.chmod(0o755)
    monkeypatch.setattr(Commands, "_read", failing(OSError(errno.EIO, "Input/output error")))
    with pytest.raises(SlurmError) as caught:
        Commands({"PATH": f"{tmp_path}:{os.environ['PATH']}"}).run("squeue")
    assert (caught.value.kind, caught.value.detail) == ("away", "its answer could not be read: Input/output error")


@pytest.mark.parametrize("first", ["manifest.json", "arrays.npz"])
def test_an_artifact_that_is_replaced_in_place_is_taken_up_though_a_look_falls_between_its_files(
    tmp_path: Path, first: str
) -> None:
    lab = lab_of(tmp_path, links=2)
    artifact(tmp_path / "new", 1.0, policy="later")
    agent = lab.agent()
    advance_until(lab, agent, 0.2)
    old = lab.released
    # So that a version half replaced cannot be loaded, its files differ: an array more.
    shutil.copy(tmp_path / "new" / first, old / first)
    if first == "arrays.npz":
        (old / first).write_bytes((tmp_path / "new" / first).read_bytes() + b"x")
    advance_until(lab, agent, 0.4)
    for name in ("manifest.json", "arrays.npz"):
        stamp = (old / name).stat()
        shutil.copy(tmp_path / "new" / name, old / name)
        os.utime(old / name, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    advance_until(lab, agent, 0.6)
    assert sum("loaded a new version of the policy: later" in line for line in lab.log) == 1
    assert agent.run() == DONE
    assert job(lab, "2.1").start_s is not None


def test_a_new_version_that_never_can_be_loaded_is_reported_once(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, FakeSlurm(), links=2)
    agent = lab.agent()
    (lab.released / "arrays.npz").write_bytes(b"nothing")
    assert agent.run() == DONE
    assert sum("cannot be used, so lead, lead, h" in line for line in lab.log) == 1


@pytest.mark.parametrize("fault", ["missing", "damaged", "other settings"])
def test_a_chain_is_resumed_without_a_usable_artifact_and_takes_it_up_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """Through `keep`, as after a restart of the host; a new chain is refused and leaves nothing."""
    lab = lab_of(tmp_path, links=2, setting=1.0)
    lab.extra = {"start_estimate_h": 0.1}
    agent = lab.agent()
    advance_until(lab, agent, 0.2)
    agent.folder.unlock()
    sound = tmp_path / "sound"
    lab.released.rename(sound)
    if fault == "damaged":
        shutil.copytree(sound, lab.released)
        (lab.released / "arrays.npz").write_bytes(b"nothing")
    elif fault == "other settings":
        artifact(lab.released, 2.0, settings=[2.0, 4.0])
    new = Folder(tmp_path / "another")
    with pytest.raises(ValueError, match=r"released|setting is 1; allowed"):
        cli.keep(lab.chain, new, lab.world())
    assert not new.path.exists()

    run = Agent.run

    def run_and_repair(agent: Agent) -> int:
        advance_until(lab, agent, 0.6)
        shutil.rmtree(lab.released, ignore_errors=True)
        shutil.copytree(sound, lab.released)
        return run(agent)

    monkeypatch.setattr(Agent, "run", run_and_repair)
    assert cli.keep(lab.chain, lab.folder, lab.world()) == DONE
    assert sum("the start estimate decides until it can be" in line for line in lab.log) == 1
    assert sum("loaded a new version of the policy: lead" in line for line in lab.log) == 1
    decided = [name for name, _ in groupby(line["policy"] for line in lab.journal("decision"))]
    assert decided == ["lead", "start-estimate", "lead"]
    assert [name for name, _ in lab.links()] == ["1.1", "2.1"] and lab.state.status == "done"


def test_a_sight_that_fails_falls_back_on_the_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> ClusterObservation:
        raise OverflowError("Python int too large to convert to C long")

    monkeypatch.setattr(FakeEyes, "sight", broken)
    lab = lab_of(tmp_path, links=2)
    assert lab.run() == DONE
    assert "cannot be observed: OverflowError: Python int too large" in lab.journal("decision")[0]["reason"]
