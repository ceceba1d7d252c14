"""The README works word by word: its commands are taken from its text and run, on a small log of the columns it names.

Placeholders in capitals (JOBID, USER) stand for a job and a user of that log. `make run` and `make test` are read, not
run; all else is. A block that no test here knows is a failure.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import tomllib
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import typer

from agent.artifact import Artifact
from agent.cli import parser
from pipelines.cli import app
from tests.conftest import REPOSITORY
from tests.models.pair_tables import artifact
from traces import clusters
from traces.store.folder import DataFolder

TEXT = (REPOSITORY / "README.md").read_text(encoding="utf-8")
BLOCKS = [match[0] for match in re.finditer(r"(?:^    .*\n)+", TEXT, re.MULTILINE)]
BATON = f"{sys.executable} -m pipelines.entry"
KNOWN = {
    "$ baton explain": "sample",
    "make setup": "setup",
    "TZ=UTC sacct": "sacct",
    ".venv/bin/baton analyze": "analyze",
    "[mycluster]": "toml",
    "make run": "make",
    "sudo make": "make system",
    ".venv/bin/baton run": "run",
    "export MLFLOW": "export",
    "import mlflow": "load",
    ".venv/bin/python -m agent": "agent",
    "baton-agent check": "keeper",
    "make dev": "interfaces",
}


def block(name: str) -> str:
    """The only block of that name, without its indentation."""
    starts = [start for start, known in KNOWN.items() if known == name]
    (found,) = [text for text in BLOCKS if text.strip().startswith(tuple(starts))]
    return re.sub("^    ", "", found, flags=re.MULTILINE)


def values(name: str) -> dict[str, str]:
    """Values of sacct's columns for one job of the log."""
    job = {"JobID": name, "JobIDRaw": name, "JobName": "train", "User": "anna", "Account": "physics", "QOS": "normal"}
    held = "billing=8,cpu=8,gres/gpu=4,node=1"
    day = f"2026-03-0{int(name) - 100}"
    times = {
        "Submit": f"{day}T00:00:00", "Eligible": f"{day}T00:00:00", "Start": f"{day}T01:00:00",
        "End": f"{day}T03:00:00", "ElapsedRaw": "7200", "TimelimitRaw": "2880",
    }  # fmt: skip
    size = {"NNodes": "1", "NCPUS": "8", "ReqTRES": held, "AllocTRES": held, "ReqMem": "64G", "NodeList": "n01"}
    rest = {"Partition": "gpu", "State": "COMPLETED", "ExitCode": "0:0", "Priority": "7", "Flags": "", "Reason": "None"}
    return {**job, **times, **size, **rest}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkout by links, so that what the README writes beside it does not stay; with a dump of its sacct line.

    Its .venv is ready as of now: make would set it up again otherwise, and point it at this folder.
    """
    folder = tmp_path_factory.mktemp("readme")
    environment = Path(sys.executable).parents[1]
    (folder / ".venv").mkdir()
    for home, paths in ((folder, REPOSITORY.iterdir()), (folder / ".venv", environment.iterdir())):
        for path in paths:
            if path.name not in (".venv", ".ready"):
                (home / path.name).symlink_to(path)
    (folder / ".venv" / ".ready").touch()
    columns = shlex.split(block("sacct"))[-3].removeprefix("--format=").split(",")
    jobs = [values(str(number)) for number in range(101, 107)]
    assert set(columns) == set(jobs[0])
    lines = ["|".join(columns), *("|".join(job[column] for column in columns) for job in jobs)]
    (folder / "mycluster.psv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def environment(checkout: Path) -> dict[str, str]:
    """What the commands run in: a data folder of their own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MLFLOW_", "DAGSTER_HOME"))}
    return {**kept, "BATON_DATA": str(checkout / "own-data")}


def shell(command: str, checkout: Path, environment: dict[str, str]) -> str:
    """Standard output of a command of the README, which must do its work."""
    done = subprocess.run(
        ["bash", "-c", f"set -e\n{command}"], cwd=checkout, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_every_block_is_known() -> None:
    for text in BLOCKS:
        assert text.strip().startswith(tuple(KNOWN)), text
    assert len(BLOCKS) == len(KNOWN)


def test_every_command_is_in_the_table_and_every_link_leads_somewhere() -> None:
    named = set(re.findall(r"^\|.*$", TEXT, re.MULTILINE))
    found = {name for row in named for name in re.findall(r"`baton ([a-z-]+)", row.split("|")[1])}
    there = {typer.main.get_command_name(c.name or c.callback.__name__) for c in app.registered_commands}  # type: ignore[union-attr]
    there |= {str(group.name) for group in app.registered_groups}
    assert found == there
    for target in re.findall(r"\]\(([^)#]+)", TEXT):
        assert (REPOSITORY / target).exists(), target


def test_set_up_and_the_targets_of_make(checkout: Path, environment: dict[str, str]) -> None:
    shell(block("setup"), checkout, environment)
    for name in ("make", "make system"):
        for line in block(name).splitlines():
            dry = re.sub(r"^sudo ", "", line).replace("make ", "make -n ", 1)
            assert shell(dry, checkout, environment).strip()


def test_the_declaration_of_a_cluster(tmp_path: Path) -> None:
    (tmp_path / "clusters.toml").write_text(block("toml"))
    assert clusters.load(DataFolder(tmp_path))["mycluster"].nodes == tomllib.loads(block("toml"))["mycluster"]["nodes"]


@pytest.fixture(scope="module")
def analysed(checkout: Path, environment: dict[str, str]) -> list[str]:
    """The lines that the first five minutes print, a text a command."""
    commands = block("analyze").replace("JOBID", "103").replace("USER", "anna").splitlines()
    return [shell(command, checkout, environment) for command in commands]


def test_the_first_five_minutes(analysed: list[str]) -> None:
    report, job, user = analysed
    path = Path(report.splitlines()[-1])
    assert path.is_file() and path.name == "report.html" and path.with_name("offenders.csv").is_file()
    assert job.startswith("job 103 of anna on cluster mycluster") and "waited 1 h" in job
    assert user.startswith("user anna on cluster mycluster: 6 jobs")


def test_a_log_too_short_for_policies_ends_in_the_report(
    checkout: Path, environment: dict[str, str], analysed: list[str]
) -> None:
    done = shell(block("run"), checkout, environment)
    assert "no policies: " in done and "report.html" in done


@pytest.fixture(scope="module")
def released(checkout: Path, environment: dict[str, str], analysed: list[str]) -> Artifact:
    """A champion in the registry of that data folder, as `make run` leaves one."""
    from models.release.champion import promote
    from models.tracking import versions as tracking

    data, policy = DataFolder(Path(environment["BATON_DATA"])), artifact()
    version = tracking.register(data, "mycluster", policy, tags={}, description="waits", metrics={})
    promote(data, "mycluster", version, "the first")
    return policy


def test_the_released_policy_is_loaded(checkout: Path, environment: dict[str, str], released: Artifact) -> None:
    export, python = block("export").splitlines()
    script = checkout / "load.py"
    script.write_text(block("load"))
    done = shell(f"{export}\n{python} {script}", checkout, environment)
    assert "submit" in done and "True" in done  # the predecessor has ended: remaining_h is 0


def test_without_mlflow(checkout: Path, environment: dict[str, str], released: Artifact) -> None:
    features = released.manifest["features"]
    (checkout / "observations.jsonl").write_text(json.dumps(dict.fromkeys(features, 0)) + "\n")
    here = block("agent").replace("data/artifacts", f"{environment['BATON_DATA']}/artifacts")
    what, decide = here.splitlines()
    assert json.loads(shell(what, checkout, environment))["policy"] == released.manifest["policy"]
    assert json.loads(shell(decide, checkout, environment))["submit"] is True


def test_the_commands_of_the_agent_are_what_it_takes() -> None:
    for line in block("keeper").splitlines():
        program, *arguments = shlex.split(line, comments=True)
        assert program == "baton-agent" and parser().parse_args(arguments).command == arguments[0]


@pytest.mark.timed
@pytest.mark.parametrize(("place", "word"), [(0, "Dagster"), (1, "MLflow")])
def test_a_user_interface_answers_and_ends_on_sigterm(
    checkout: Path, environment: dict[str, str], analysed: list[str], place: int, word: str
) -> None:
    line = block("interfaces").splitlines()[place]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    own = {**environment, "PORT": str(port), "MLFLOW_PORT": str(port)}
    # As a shell starts a background job. SIGTERM is ignored here after a test that ran Dagster, if SIGINT was.
    background = ["env", "--default-signal=TERM", "bash", "-c", f"trap '' INT; exec {line}"]
    with (checkout / f"{word}.txt").open("w+") as log:
        server = subprocess.Popen(background, cwd=checkout, env=own, stdout=log, stderr=log, start_new_session=True)
        try:
            assert word in answered(f"http://127.0.0.1:{port}", server), log.seek(0) or log.read()
            server.terminate()
            assert ended(server), f"processes of {line!r} outlive SIGTERM"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)
            server.wait(10)


def ended(server: subprocess.Popen[bytes], within_s: int = 150) -> bool:
    """Whether the server and every process that it started end within that time."""
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        server.poll()
        try:
            os.killpg(server.pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.5)
    return False


def answered(address: str, server: subprocess.Popen[bytes], within_s: int = 180) -> str:
    """The page at that address as soon as it answers; empty where the server ends, or the time is over."""
    until = time.monotonic() + within_s
    while time.monotonic() < until and server.poll() is None:
        try:
            with urllib.request.urlopen(address, timeout=10) as page:
                return str(page.read().decode())
        except OSError:
            time.sleep(0.5)
    return ""


@pytest.fixture(scope="module")
def a100(shared_traces: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    data = tmp_path_factory.mktemp("a100")
    log = shared_traces / "tacc-lonestar6" / "ls6-a100.log"
    environment = {**os.environ, "BATON_DATA": str(data)}
    shell(f"{BATON} ingest {log} --cluster ls6", REPOSITORY, environment)
    yield data
    shutil.rmtree(data)


def test_the_sample_of_the_output_is_what_is_printed(a100: Path) -> None:
    command, *lines = block("sample").splitlines()
    done = shell(command.replace("$ baton", BATON), REPOSITORY, {**os.environ, "BATON_DATA": str(a100)})
    for line in lines:
        assert line in done.splitlines(), line
