"""`baton export` of tables: the files it names are there, names can be hidden, and mistakes are one line."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from pipelines.commands.export import FREE_TEXT
from reports.source import NAME_COLUMNS
from tests.pipelines.conftest import HEADER, ROW, Baton
from tests.traces.readers.agent_lines import agent_line
from traces import schema


@pytest.fixture
def data(baton: Baton, tmp_path: Path) -> Path:
    log = tmp_path / "sacct.txt"
    rows = [ROW.format(id=i, state="COMPLETED", day=i, nodes=1).replace("anna", "=anna") for i in (1, 2)]
    log.write_text("\n".join([HEADER, *rows]) + "\n")
    folder = tmp_path / "data"
    assert baton("ingest", log, "--cluster", "lab", "--timezone", "UTC", "--data", folder).code == 0
    return folder


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_tables_as_csv(baton: Baton, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "tables"
    common = ("export", "--tables", "jobs,attempts,trace_files", "--data", data, "--format", "csv")
    found = baton(*common, "--out", out, "--json").json["files"]
    assert [(file["table"], file["rows"]) for file in found] == [("jobs", 2), ("attempts", 2), ("trace_files", 1)]
    assert [row["user_name"] for row in rows(Path(found[0]["path"]))] == ["'=anna", "'=anna"]
    hidden = baton(*common, "--out", out, "--cluster", "lab", "--anonymise")
    assert hidden.code == 0 and "2 rows of jobs" in hidden.out
    text = "".join((out / f"{name}.csv").read_text() for name in ("jobs", "attempts", "trace_files"))
    assert "anna" not in text and "train" not in text and "physics" not in text and "sacct.txt" not in text
    users = {row["user_name"] for row in rows(out / "jobs.csv")}
    assert len(users) == 1 and users.pop().startswith("user-")


def test_a_command_line_is_hidden(baton: Baton, tmp_path: Path) -> None:
    log, out = tmp_path / "sacct.txt", tmp_path / "tables"
    row = ROW.format(id=1, state="COMPLETED", day=1, nodes=1)
    log.write_text(f"{HEADER}|SubmitLine\n{row}|sbatch /home/anna/train.sh\n")
    common = ("--cluster", "lab", "--data", tmp_path / "data")
    assert baton("ingest", log, "--timezone", "UTC", *common).code == 0
    for options, is_there in (((), True), (("--anonymise",), False)):
        assert baton("export", "--tables", "jobs", "--format", "csv", "--out", out, *common, *options).code == 0
        assert ("/home/anna" in (out / "jobs.csv").read_text()) is is_there


def test_every_column_of_untrusted_text_is_hidden() -> None:
    free = {(table, name) for table, names in FREE_TEXT.items() for name in names}
    untrusted = [
        (table.name, column.name)
        for table in schema.CANONICAL
        for column in table.columns
        if "untrusted" in column.meaning
    ]
    assert [each for each in untrusted if each not in free and each[1] not in {*NAME_COLUMNS, "step_name"}] == []
    assert ("jobs", "submit_line") in untrusted


def test_what_an_agent_wrote_in_words_is_hidden(baton: Baton, tmp_path: Path) -> None:
    log, out = tmp_path / "decisions.jsonl", tmp_path / "tables"
    lines = [agent_line(reason="of anna"), agent_line("note", text="anna"), agent_line("requeued", job_name="anna-1")]
    log.write_text("\n".join(lines) + "\n")
    common = ("--cluster", "lab", "--data", tmp_path / "data")
    assert baton("ingest", log, *common).code == 0
    named = ("--tables", "agent_decisions,agent_events", "--format", "csv", "--out", out)
    for options, is_there in (((), True), (("--anonymise",), False)):
        assert baton("export", *named, *common, *options).code == 0
        for name in ("agent_decisions", "agent_events"):
            assert ("anna" in (out / f"{name}.csv").read_text()) is is_there


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("--tables", "queue", "--format", "csv"), "no table 'queue'"),
        (("--format", "parquet"), "--tables names no table"),
        (("--tables", "jobs", "--format", "xlsx"), "use swf, csv, parquet"),
        (("--tables", "jobs", "--format", "csv", "--cluster", "x"), "unknown cluster 'x'"),
        (("--tables", "jobs"), "--format swf writes the jobs of one cluster"),
        ((), "--format swf writes the jobs of one cluster"),
    ],
)
def test_mistakes_are_one_line(baton: Baton, data: Path, tmp_path: Path, arguments: tuple[str, ...], part: str) -> None:
    result = baton("export", *arguments, "--data", data, "--out", tmp_path / "out")
    assert result.code == 2 and part in result.err and len(result.err.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()
