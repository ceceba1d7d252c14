"""A file that no reader knows is refused by what it looks like, with what to do about it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traces.clusters import ClusterSettings
from traces.errors import InputError
from traces.readers import registry
from traces.readers.common import RawFile
from traces.readers.sacct import columns as sacct_columns
from traces.readers.unknown import what_it_is

SQUEUE = (
    "    JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)\n    7   gpu train ann R 1:00 1 n1\n"
)
SINFO = "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\ngpu*         up   infinite      2   idle n[1-2]\n"
ROW = "{id}|ann|COMPLETED|2026-03-01T00:00:00|2026-03-01T01:00:00|2026-03-01T02:00:00|1|billing=1,cpu=8\n"


def refused(path: Path, text: str) -> str:
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        registry.reader_for(RawFile(path, ClusterSettings("lab")))
    message = str(caught.value)
    assert message.startswith(f"{path}:1: ") and "\n" not in message
    return message


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (SQUEUE, ("output of squeue", "sacct -a -D -P")),
        ("JOBID|PARTITION|NAME|USER|ST|TIME|NODES|NODELIST(REASON)\n7|gpu|a|ann|R|1:00|1|n1\n", ("output of squeue",)),
        ("ID;JOBID;USER;ST\n1;1;ann;R\n", ("output of squeue",)),
        ("JOBID|NAME|STATE|TIME|TIME_LEFT|CPUS|NODELIST\n7|a|RUNNING|1:00|1:00|8|n1\n", ("output of squeue",)),
        (SINFO, ("output of sinfo", "sacct -a -D -P")),
        ("NODELIST,NODES(A/I),AVAIL,STATE\nn1,1/0,up,idle\n", ("output of sinfo",)),
        ("JobId=7 JobName=train\n   UserId=ann(1)\n", ("output of scontrol", "sacct -a -D -P")),
        ("PartitionName=gpu AllowGroups=ALL\n", ("output of scontrol", "sacct -a -D -P")),
        ("          JOBID PARTITION     USER   PRIORITY       SITE\n", ("output of sprio", "sacct -a -D -P")),
        (f"{'*' * 55}\nsdiag output at Fri Nov 27 15:16:54 2026 (1795792614)\n", ("output of sdiag", "sacct -a -D -P")),
        ("name,height,weight,age\nann,1,2,3\n", ("unknown format", "CSV with the columns 'name, height, weight, age'")),
        (
            "Dear all,\nthe cluster is down.\n",
            ("unknown format, the file begins with 'Dear all,'", "swf, agent, scontrol-nodes, sinfo"),
        ),
    ],
    ids=[
        "squeue",
        "squeue -o",
        "squeue of few columns",
        "squeue with the nodes of sinfo",
        "sinfo",
        "sinfo -o",
        "scontrol",
        "scontrol show partition",
        "sprio",
        "sdiag",
        "CSV",
        "text",
    ],
)
def test_it_says_what_it_looks_like(tmp_path: Path, text: str, parts: tuple[str, ...]) -> None:
    message = refused(tmp_path / "log", text)
    assert all(part in message for part in parts), message
    assert "--fields" not in message


@pytest.mark.parametrize("delimiter", ["|", "^|^", ";"])
def test_a_dump_without_a_header_is_shown_fields_of_its_own_number(tmp_path: Path, delimiter: str) -> None:
    """The example is taken as it stands; a trailing delimiter makes no column more."""
    rows = "".join(ROW.format(id=job) for job in ("7", "8_1", "8_[2-9]", "8_1.batch", "9+0"))
    for text in (rows, rows.replace("\n", "|\n")):
        message = refused(tmp_path / "log", text.replace("|", delimiter))
        assert "without a header: name its 8 columns with --fields" in message
        example = message.rsplit("--fields ", 1)[1]
        assert len(sacct_columns.from_fields(tuple(example.split(",")))) == 8


def test_more_columns_than_the_readme_asks_for(tmp_path: Path) -> None:
    row = "7|COMPLETED" + "|" * 38
    example = refused(tmp_path / "log", f"{row}x\n{row}y\n").rsplit("--fields ", 1)[1]
    assert len(sacct_columns.from_fields(tuple(example.split(",")))) == 40


def test_the_job_id_need_not_be_the_first_column(tmp_path: Path) -> None:
    rows = "ann|7|COMPLETED|1\n|7.batch|COMPLETED|1\nbob|8_1|CANCELLED by 7|1\n"
    assert "without a header: name its 4 columns with --fields" in refused(tmp_path / "log", rows)


def test_a_last_column_that_steps_leave_blank_counts(tmp_path: Path) -> None:
    rows = "ann|7|COMPLETED|1|None\n|7.batch|COMPLETED|1|\n" * 3
    assert "without a header: name its 5 columns with --fields" in refused(tmp_path / "log", rows)


def test_rows_under_names_of_columns_are_no_dump_without_a_header(tmp_path: Path) -> None:
    message = refused(tmp_path / "log", "host,at,load\nn1,2026-03-01T00:00:00,7\nn2,2026-03-01T00:00:00,8\n")
    assert "--fields" not in message and "CSV with the columns 'host, at, load'" in message


def test_numbers_in_columns_are_no_dump(tmp_path: Path) -> None:
    assert "--fields" not in refused(tmp_path / "log", "1|2|3|4\n5|6|7|8\n")


@given(
    st.one_of(
        st.binary(min_size=1), st.text(st.sampled_from("7|,;\t\r\n\x1c 2026-T:COMPLETED"), min_size=1).map(str.encode)
    )
)
def test_there_are_words_for_anything(head: bytes) -> None:
    found = what_it_is(head, {"helios": {"a", "b"}})
    assert found and "\n" not in found
