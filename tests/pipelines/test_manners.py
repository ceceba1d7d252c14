"""How soon the command line answers: `--help` and refusals import no large library that they do not need.

Imports are nearly all that an answer costs: with DuckDB, which finds a cluster's name, 0.25 to 0.5 s of processor time;
numpy and polars add 0.3 s, Dagster and MLflow seconds. Which libraries are imported is tested exactly. Time is bounded
by MOST_S on a machine where REFERENCE takes REFERENCE_S. The speed of a shared machine changes by half from one second
to the next, so REFERENCE is timed directly after each try that takes longer than the bound.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import NamedTuple

import pytest
import typer

from pipelines.cli import app
from tests.pipelines.conftest import SWF, dump

pytestmark = pytest.mark.alone

MOST_S = 0.5  # of user and system time
READING_S = 1.0  # where the text of a file must be read first: importing polars and numpy takes about .3 s of it
REFERENCE_S = 0.26  # what REFERENCE takes where MOST_S was set
REFERENCE = "import typer, duckdb; duckdb.connect().execute('SELECT 1')"
TRIES = 8
LARGE = ("numpy", "polars", "duckdb", "pyarrow", "scipy", "torch", "dagster", "mlflow")
# Runs the command line as `python -m pipelines.entry` does, and adds to a file which large libraries it imported.
ENTRY = f"""
import atexit, os, sys
sys.argv[0] = "baton"
sys.path.insert(0, os.getcwd())
@atexit.register
def _() -> None:
    open(os.environ["IMPORTED"], "w").write(" ".join(name for name in {LARGE} if name in sys.modules))
from pipelines.entry import main
main()
"""
COMMANDS = sorted(str(typer.main.get_command_name(c.name or c.callback.__name__)) for c in app.registered_commands)  # type: ignore[union-attr]

REFUSALS = (
    "--no-such-option",
    "no-such-command",
    "run --no-such-option",
    "run --raw {tmp}/none",
    "run --nodes 4",
    "analyze {tmp}/none",
    "analyze --format magic",
    "analyze --cluster nope",
    "ingest",
    "ingest {tmp}/none.psv --cluster lab",
    "ingest {dump} --cluster lab --format magic",
    "ingest {dump} --cluster lab --timezone Mars/Olympus",
    "ingest {dump} --cluster a/b",
    "generate",
    "simulate",
    "simulate --scheduler easy",
    "simulate --scheduler magic --cluster lab",
    "simulate --scheduler easy --trace {tmp}/none.swf",
    "simulate --scheduler easy --cluster nope",
    "simulate --scheduler easy --cluster ls6",
    "simulate --scheduler easy --cluster lab --pass never",
    "simulate --scheduler mirage --cluster lab --estimate exact",
    "simulate --scheduler slurm --cluster lab --slurm-conf {tmp}/none",
    "explain",
    "explain 99999",
    "explain --user nobody",
    "explain 101 --cluster nope",
    "calibrate --cluster nope",
    "calibrate --cluster lab --until soon",
    "train --cluster nope --policies all",
    "train --cluster lab --policies magic",
    "train --cluster lab --policies champion",
    "train --cluster lab --policies reactive --limit long",
    "train --cluster lab --policies reactive --world real",
    "evaluate --cluster lab --policies magic --from 2026-03-01 --to 2026-03-02",
    "evaluate --cluster lab --policies forest --from 2026-03-01 --to 2026-03-02",
    "evaluate --cluster lab --policies champion --from 2026-03-01 --to 2026-03-02",
    "promote",
    "promote 3 --cluster lab --reason tried",
    "rollback --cluster lab",
    "rollback --cluster policies",
    "report --section nope",
    "report --cluster nope",
    "export",
    "export --out {tmp}/x --format xml",
    "export --out {tmp}/x --cluster lab --processors cores",
    "export --out {tmp}/x --format csv --tables nope",
)
WAREHOUSE = {  # those of the above for which the warehouse is opened
    "simulate --scheduler easy --cluster ls6",
    "explain 99999",
    "explain --user nobody",
    "explain 101 --cluster nope",
    "report --cluster nope",
    "export --out {tmp}/x --format csv --tables nope",
}


class Answer(NamedTuple):
    code: int
    out: str
    err: str
    imported: set[str]
    """Which of LARGE were imported."""
    processor_s: float
    """Of the quickest of a few tries, each divided by how much slower than REFERENCE_S the machine was just then."""


def measured(
    code: str, arguments: list[str], environment: dict[str, str]
) -> tuple[subprocess.CompletedProcess[str], float]:
    """Run Python code in a process of its own; also returns its user and system time, in s."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def ask(arguments: list[str], data: Path | None = None, until_s: float = MOST_S) -> Answer:
    """Run the command in a process of its own. A try that takes less than `until_s` is the last."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    if data is not None:
        environment["BATON_DATA"] = str(data)
    best = float("inf")
    for _ in range(TRIES):
        with NamedTemporaryFile("r") as imported:
            done, seconds = measured(ENTRY, arguments, environment | {"IMPORTED": imported.name})
            names = set(imported.read().split())
        if seconds >= until_s:
            seconds /= max(1.0, measured(REFERENCE, [], environment)[1] / REFERENCE_S)
        best = min(best, seconds)
        if best < until_s:
            break
    return Answer(done.returncode, done.stdout, done.stderr, names, best)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A data folder with one small cluster, `lab`, and a sacct dump."""
    folder = tmp_path_factory.mktemp("manners")
    places = {"tmp": folder, "dump": dump(folder / "jobs.psv", jobs=9), "data": folder / "data"}
    assert ask(["ingest", str(places["dump"]), "--cluster", "lab"], places["data"]).code == 0
    return places


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_is_there_at_once(command: str) -> None:
    answer = ask([*command.split(), "--help"])
    assert answer.code == 0 and "Usage: " in answer.out and answer.err == ""
    assert answer.imported == set() and answer.processor_s < MOST_S, answer


@pytest.mark.timed
@pytest.mark.parametrize("line", REFUSALS)
def test_a_refusal_is_there_at_once(places: dict[str, Path], line: str) -> None:
    answer = ask([part.format(**places) for part in line.split()], places["data"])
    assert answer.code == (1 if line == "rollback --cluster lab" else 2), answer
    assert answer.out == "" and "Traceback" not in answer.err and answer.err.strip()
    assert answer.imported == ({"duckdb"} if line in WAREHOUSE else set()) and answer.processor_s < MOST_S, answer


@pytest.mark.timed
@pytest.mark.parametrize("command", ["mlflow-uri", "dagster-home"])
def test_where_things_lie_is_said_at_once(places: dict[str, Path], command: str) -> None:
    """Dagster and MLflow, which take seconds to import, are imported the first time only."""
    first = ask([command], places["data"], until_s=60)
    again = ask([command], places["data"])
    assert (again.code, again.out) == (0, first.out)
    assert again.imported == set() and again.processor_s < MOST_S, again


def test_the_version() -> None:
    answer = ask(["--version"])
    assert (answer.code, answer.out, answer.imported) == (0, "baton 0.1.0\n", set()) and answer.processor_s < MOST_S


def test_completion_knows_the_commands() -> None:
    script = subprocess.run(
        [sys.executable, "-m", "pipelines.entry", "--show-completion", "bash"],
        # or the shell is the first one found among the processes above, whose own completion typer may not know
        env={**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
        capture_output=True,
        text=True,
    )
    assert script.returncode == 0 and "complete" in script.stdout
    completed = subprocess.run(
        [sys.executable, "-m", "pipelines.entry"],
        env={**os.environ, "_BATON_COMPLETE": "complete_bash", "COMP_WORDS": "baton sim", "COMP_CWORD": "1"},
        capture_output=True,
        text=True,
    )
    assert completed.stdout.split() == ["simulate"]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("baton report --cluster la", {"lab"}),
        ("baton report --cluster ls6,la", {"ls6,lab"}),
        ("baton evaluate --cluster l", {"lab", "ls6", "longhorn-v100"}),  # the latter two by Baton's clusters.toml
        ("baton --data {data} wait --cluster la", {"lab"}),
        ("baton explain --data {data} --cluster la", {"lab"}),
        ("baton explain --data {tmp}/none --cluster la", set()),
        ("baton report --section wa", {"waits", "waste"}),
        ("baton train --policies forest,f", {"forest,fitted-q"}),
        ("baton train --policies c", {"champion"}),
        ("baton tune --policy dqn", {"dqn", "dqn-ahead"}),
        ("baton simulate --scheduler s", {"sjf", "slurm"}),
        ("baton simulate --compare fifo,e", {"fifo,easy"}),
        ("baton train --scheduler c", {"conservative"}),
        ("baton whatif --schedulers t", {"tetris", "tiresias", "tiresias-gittins", "tiresias-rounds", "themis"}),
        ("baton whatif --schedulers easy,", {f"easy,{name}" for name in ("fifo", "conservative", "mirage", "sjf")}),
        ("baton whatif --schedulers yarn,e", set()),
        ("baton advise --objective p", {"p90-wait", "p90-wait-small"}),
    ],
)
def test_completion_knows_names(places: dict[str, Path], line: str, offered: set[str]) -> None:
    words = line.format(**places)
    completed = subprocess.run(
        [sys.executable, "-m", "pipelines.entry"],
        env={
            **{name: value for name, value in os.environ.items() if name != "BATON_DATA"},
            **({} if "--data" in words else {"BATON_DATA": str(places["data"])}),
            "_BATON_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" ")),
        },
        capture_output=True,
        text=True,
    )  # fmt: skip
    assert set(completed.stdout.split()) == offered and completed.stderr == ""


def test_a_log_given_to_trace_is_sent_to_ingest(places: dict[str, Path]) -> None:
    """A line that is wrong further down is an error of an SWF trace, and is sent nowhere."""
    answer = ask(["simulate", "--scheduler", "easy", "--trace", str(places["dump"])], places["data"], READING_S)
    assert answer.code == 2 and answer.imported == {"numpy", "polars"} and answer.processor_s < READING_S, answer
    assert "jobs.psv:1" in answer.err and f"baton ingest {places['dump']} --cluster NAME" in answer.err
    broken = places["tmp"] / "broken.swf"
    broken.write_text(SWF + "5 x\n")
    answer = ask(["simulate", "--scheduler", "easy", "--trace", str(broken)], places["data"])
    assert "broken.swf:6" in answer.err and "ingest" not in answer.err
