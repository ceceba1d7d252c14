"""Edits of the text of slurm.conf."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.what_if.advice.conf_text import ConfEdit, applied, edited_conf, unified
from models.what_if.advice.slurm_diff import slurm_diff
from traces.errors import InputError
from traces.slurm.conf import read_slurm_conf

FIXTURES = sorted((Path(__file__).parents[3] / "fixtures").glob("*/*/*/slurm.conf"))
DEPTH = ConfEdit("bf_max_job_test", "7", is_option=True)
BUILTIN = ConfEdit("SchedulerType", "sched/builtin")
LIMIT = ConfEdit("MaxTime", "0-01:00:00", "gpu")

CASES = [  # edit, text before, text after
    (DEPTH, "SchedulerParameters=defer\n", "SchedulerParameters=defer,bf_max_job_test=7\n"),
    (DEPTH, "SchedulerParameters=bf_max_job_test=5,x # y\n", "SchedulerParameters=bf_max_job_test=7,x # y\n"),
    (DEPTH, "schedulerparameters = max_job_bf=5,defer\n", "schedulerparameters = bf_max_job_test=7,defer\n"),
    (DEPTH, 'SchedulerParameters="a, bf_max_job_test=5"\n', 'SchedulerParameters="a,bf_max_job_test=7"\n'),
    (DEPTH, "SchedulerParameters=\\\na,b\nA=1\n", "SchedulerParameters=\\\na,b,bf_max_job_test=7\nA=1\n"),
    (DEPTH, "SchedulerParameters=a,\\\nb\nA=1\n", "SchedulerParameters=a,b,bf_max_job_test=7\nA=1\n"),
    (DEPTH, "SchedulerParameters=a\nSchedulerParameters=b\n",
     "SchedulerParameters=a\nSchedulerParameters=b,bf_max_job_test=7\n"),
    (DEPTH, "# SchedulerParameters=a\n", "# SchedulerParameters=a\nSchedulerParameters=bf_max_job_test=7\n"),
    (DEPTH, "A=1", "A=1\nSchedulerParameters=bf_max_job_test=7\n"),
    (BUILTIN, "A=1 \\\n", "A=1 \\\n\nSchedulerType=sched/builtin\n"),
    (BUILTIN, "A=1 # \\\n", "A=1 # \\\nSchedulerType=sched/builtin\n"),
    (BUILTIN, "include more.conf\r\nSchedulerType=x\r\n", "include more.conf\r\nSchedulerType=sched/builtin\r\n"),
    (BUILTIN, "A=b\\#c SchedulerType=x\n", "A=b\\#c SchedulerType=sched/builtin\n"),
    (BUILTIN, "", "SchedulerType=sched/builtin\n"),
    (LIMIT, "PartitionName=gpu Nodes=a # keep\n", "PartitionName=gpu Nodes=a MaxTime=0-01:00:00 # keep\n"),
    (LIMIT, 'PartitionName=gpu Nodes="a,b"\n', 'PartitionName=gpu Nodes="a,b" MaxTime=0-01:00:00\n'),
    (LIMIT, "PartitionName=gpu maxtime=5 Nodes=a\n", "PartitionName=gpu maxtime=0-01:00:00 Nodes=a\n"),
    (LIMIT, "PartitionName=gpu \\\n  MaxTime=5\n", "PartitionName=gpu \\\n  MaxTime=0-01:00:00\n"),
    (LIMIT, "PartitionName=gpu MaxTime=5\nPartitionName=gpu Nodes=b\n",
     "PartitionName=gpu MaxTime=5\nPartitionName=gpu Nodes=b MaxTime=0-01:00:00\n"),
]  # fmt: skip


@pytest.mark.parametrize(("edit", "before", "after"), CASES)
def test_an_edit_changes_one_value(edit: ConfEdit, before: str, after: str) -> None:
    assert applied(before, [edit]) == after
    assert applied(after, [edit]) == after


def test_a_partition_that_is_not_there_is_refused() -> None:
    with pytest.raises(InputError, match="PartitionName=gpu"):
        applied("PartitionName=GPU\n# PartitionName=gpu\n", [LIMIT])


@pytest.mark.parametrize("value", ["a b", "", "x\ny", "a#b", 'a"'])
def test_a_value_that_the_file_cannot_hold_is_refused(value: str) -> None:
    with pytest.raises(InputError, match="cannot hold"):
        applied("A=1\n", [ConfEdit("SchedulerType", value)])


CHANGES = st.one_of(
    st.sampled_from(["backfill=off", "backfill=on", "limit=40m", "limit=3h", "max_jobs=3"]),
    st.builds("backfill.depth={}".format, st.integers(1, 1_000_000)),
    st.builds("backfill.user={}".format, st.integers(1, 1_000_000)),
    st.builds("backfill.window={}m".format, st.integers(1, 43_200)),
    st.builds("priority.age={}".format, st.floats(0, 10).map(lambda x: round(x, 3))),
    st.builds("priority.size=+{}".format, st.integers(0, 10**6)),
)


@given(st.sampled_from(FIXTURES), st.lists(CHANGES, min_size=1, max_size=4))
def test_the_changed_file_reads_as_the_changed_settings(path: Path, changes: list[str]) -> None:
    """The edits in the text, and the edits of the settings that are simulated, are one and the same."""
    text = path.read_text()
    with tempfile.TemporaryDirectory() as folder:
        changed = Path(folder) / "slurm.conf"
        changed.write_text(text)
        before = read_slurm_conf(changed)
        diff = slurm_diff([" and ".join(changes)], before)
        changed.write_text(applied(text, diff.conf))
        assert read_slurm_conf(changed) == edited_conf(before, diff.conf)
        kept = [line for line in text.splitlines() if not line.startswith(("Sched", "Priority", "PartitionName"))]
        assert set(kept) <= set(changed.read_text().splitlines())


@pytest.mark.parametrize("text", ["A=1\nSchedulerType=x\n", "SchedulerType=x\nB=2", "A=1\r\nB=\u2028\n\n", ""])
def test_patch_reads_the_unified_diff(tmp_path: Path, text: str) -> None:
    after = applied(text, [BUILTIN, DEPTH])
    path = tmp_path / "slurm.conf"
    path.write_bytes(text.encode())
    subprocess.run(["git", "apply", "-p0", "-"], input=unified(text, after).encode(), cwd=tmp_path, check=True)
    assert path.read_bytes() == after.encode()
    assert unified(text, text) == ""
