"""The command line on small logs: what it prints, and what it leaves behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from pipelines.cli import app
from tests.pipelines.conftest import SWF, Baton, dump


def test_ingest_counts_and_a_second_time_adds_nothing(baton: Baton, tmp_path: Path) -> None:
    raw, data = dump(tmp_path / "jobs.psv"), tmp_path / "data"
    first = baton("ingest", raw, "--cluster", "lab", "--data", data, "--json")
    second = baton("ingest", raw, "--cluster", "lab", "--data", data, "--json")
    (file,) = first.json["files"]
    needed = "path format rows allocations steps samples duplicates rejects jobs attempts sha256 seconds"
    assert set(needed.split()) <= set(file)
    assert (file["rows"], file["jobs"], first.json["tables"]["jobs"]) == (6, 6, 6)
    assert (second.json["files"][0]["duplicates"], second.json["tables"]["jobs"]) == (6, 6)


def test_ingest_without_a_warehouse(baton: Baton, tmp_path: Path) -> None:
    result = baton("ingest", dump(tmp_path / "j.psv"), "--cluster", "lab", "--no-build", "--data", tmp_path / "data")
    assert result.code == 0 and "6 jobs" in result.out
    assert not (tmp_path / "data" / "warehouse.duckdb").exists()


def test_one_is_told_in_the_singular(baton: Baton, tmp_path: Path) -> None:
    raw, data = dump(tmp_path / "jobs.psv", jobs=1), tmp_path / "data"
    assert baton("ingest", raw, "--cluster", "lab", "--data", data).out == (
        f"{raw}: sacct, 1 record: 1 allocation, 0 rejects; 1 job\n"
    )


def test_data_before_the_command_after_it_and_in_the_environment(
    baton: Baton, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = dump(tmp_path / "jobs.psv")
    assert baton("--data", tmp_path / "before", "ingest", raw, "--cluster", "lab").code == 0
    assert baton("ingest", raw, "--cluster", "lab", "--data", tmp_path / "after").code == 0
    monkeypatch.setenv("BATON_DATA", str(tmp_path / "environment"))
    assert baton("ingest", raw, "--cluster", "lab").code == 0
    for name in ("before", "after", "environment"):
        assert (tmp_path / name / "warehouse.duckdb").is_file()


def test_generate_gives_the_same_bytes_for_a_seed(baton: Baton, tmp_path: Path) -> None:
    def bytes_of(folder: str, seed: int) -> bytes:
        result = baton("generate", "--out", tmp_path / folder, "--jobs", 300, "--seed", seed, "--json")
        (path,) = result.json["files"]
        return Path(path).read_bytes()

    assert bytes_of("a", 1) == bytes_of("b", 1) != bytes_of("c", 2)


def test_one_section_as_json(baton: Baton, tmp_path: Path) -> None:
    data = tmp_path / "data"
    baton("ingest", dump(tmp_path / "jobs.psv"), "--cluster", "lab", "--data", data)
    found = baton("report", "--section", "read", "--json", "--data", data).json
    (read,) = found["sections"]
    assert (read["cluster"], read["section"]) == ("lab", "read") and Path(found["path"]).is_file()
    (tables,) = [rows for rows in read["tables"].values() if "records" in rows[0]]
    assert (tables[0]["records"], tables[0]["jobs"]) == (6, 6)


def test_a_part_of_the_report_never_replaces_the_whole(baton: Baton, tmp_path: Path) -> None:
    data = tmp_path / "data"
    baton("ingest", dump(tmp_path / "jobs.psv"), "--cluster", "lab", "--data", data)
    whole = Path(baton("report", "--data", data).out.strip())
    before = whole.read_bytes()
    assert whole == data / "reports" / "report.html" and b"Who waits" in before
    for options, name in (
        (("--section", "read"), "report-read.html"),
        (("--cluster", "lab"), "report-lab.html"),
        (("--anonymise",), "report-anonymised.html"),
    ):
        assert Path(baton("report", *options, "--data", data).out.strip()).name == name
        refused = baton("report", *options, "--out", whole, "--data", data)
        assert refused.code == 2 and "whole report" in refused.err
        assert whole.read_bytes() == before
    unknown = baton("report", "--section", "none", "--data", data)
    assert unknown.code == 2 and "waits" in unknown.err
    assert sorted(path.name for path in whole.parent.iterdir()) == [
        "offenders-anonymised.csv", "offenders-lab.csv", "offenders.csv",
        "report-anonymised.html", "report-lab.html", "report-read.html", "report.html",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("command", "option"),
    [
        (("report",), "--out"),
        (("report",), "--offenders"),
        (("export", "--cluster", "lab"), "--out"),
        (("simulate", "--cluster", "lab", "--scheduler", "fifo"), "--starts"),
        (("simulate", "--cluster", "lab", "--scheduler", "fifo"), "--jobs"),
        (("simulate", "--cluster", "lab", "--scheduler", "fifo"), "--plots"),
    ],
)
def test_a_folder_that_does_not_exist_is_created_when_asked_for(
    baton: Baton, tmp_path: Path, command: tuple[str, ...], option: str
) -> None:
    data, target = tmp_path / "data", tmp_path / "new" / "folder" / "file"
    baton("ingest", dump(tmp_path / "jobs.psv"), "--cluster", "lab", "--data", data)
    refused = baton(*command, option, target, "--data", data)
    why = f"baton: {option} {target}: the folder {target.parent} does not exist; add --mkdir to create it\n"
    assert (refused.code, refused.out, refused.err) == (2, "", why)
    assert not (tmp_path / "new").exists()
    assert baton(*command, option, target, "--mkdir", "--data", data).code == 0
    assert target.is_file()


def test_dagster_home_is_ready_and_telemetry_is_off(baton: Baton, tmp_path: Path) -> None:
    home = Path(baton("dagster-home", "--data", tmp_path / "data").out.strip())
    assert home == tmp_path / "data" / "dagster"
    text = (home / "dagster.yaml").read_text()
    assert text.count("enabled: false") == 2
    assert list(home.rglob("*.db"))


def test_help_is_quick_and_imports_nothing_heavy() -> None:
    program = (
        "import sys\nfrom pipelines import cli\ntry:\n cli.main(['--help'])\nexcept SystemExit: pass\n"
        "print([m for m in ('dagster', 'torch', 'mlflow', 'xgboost', 'lightgbm', 'numba') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("[]\n")


def test_help_gives_no_reason_for_the_length_of_the_code() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    helps = {name: command.get_help(typer.Context(command)) for name, command in commands.items()}
    assert len(helps) > 20 and not [name for name, text in helps.items() if "Over 50 lines" in text]


def test_a_closed_pipe_and_ctrl_c_are_quiet(tmp_path: Path) -> None:
    trace = tmp_path / "tiny.swf"
    trace.write_text(SWF)
    command = [sys.executable, "-m", "pipelines.cli", "simulate", "--trace", str(trace), "--scheduler", "fifo"]
    piped = subprocess.run(
        ["bash", "-c", f"{' '.join(command)} | true"], capture_output=True, text=True, check=False, timeout=60
    )
    assert "Traceback" not in piped.stderr
    interrupted = (
        "import os, signal, sys, time\nfrom pipelines import cli, options\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a background job of a shell ignores it
        "options.data_folder = lambda *a: (os.kill(os.getpid(), signal.SIGINT), time.sleep(5))\n"
        "cli.main(['report'])\n"
    )
    done = subprocess.run([sys.executable, "-c", interrupted], capture_output=True, text=True, check=False)
    assert done.returncode in (128 + signal.SIGINT, -signal.SIGINT)
    assert "Traceback" not in done.stderr and done.stdout == ""


def test_the_entry_point_is_installed() -> None:
    program = Path(sys.executable).with_name("baton")
    if not program.exists():
        pytest.skip("baton is not installed in this environment")
    done = subprocess.run([program, "--help"], capture_output=True, text=True, check=True, env={**os.environ})
    assert "provisioning" in done.stdout
