"""Log signatures: the bundled rules on real messages, the users' own, tails, precedence, and what rules save."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from features.failures import failures, signatures
from features.failures.signatures import TAILS
from tests.features.toy import CLUSTER, at, job, trace
from traces.clusters import ClusterSettings
from traces.errors import InputError
from traces.store.folder import DataFolder

TOY = ClusterSettings(CLUSTER)
RULES = signatures.signatures(None)
TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n'

# Messages as the programs print them.
MESSAGES = {
    TRACEBACK
    + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total": "GPU out of memory",
    "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=71.batch. Some of your": "CPU out of memory",
    TRACEBACK + "MemoryError": "CPU out of memory",
    "RuntimeError: The NVIDIA driver on your system: CUDA driver version is insufficient for": "CUDA version mismatch",
    TRACEBACK + "RuntimeError: CUDA error: device-side assert triggered": "CUDA failure",
    "RuntimeError: No CUDA GPUs are available": "CUDA initialisation failed",
    "MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD": "MPI error",
    "[rank1]:[E] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12": "MPI error",
    "mpirun noticed that process rank 0 with PID 0 on node n1 exited on signal 9": "MPI runtime failure",
    "/var/spool/slurmd/job00012/slurm_script: line 4: 912 Segmentation fault (core dumped)": "invalid memory access",
    "terminate called after throwing an instance of 'int'\nAborted (core dumped)": "core dump",
    '  File "train.py", line 9\n    print(\nSyntaxError: unexpected EOF while parsing': "syntax error",
    TRACEBACK + "ModuleNotFoundError: No module named 'apex'": "import error",
    "a: error while loading shared libraries: libx.so: cannot open shared object file": "cannot load libraries",
    TRACEBACK + "PermissionError: [Errno 13] Permission denied: '/scratch/x'": "permission error",
    "RuntimeError: Error(s) in loading state_dict for ResNet:": "model checkpoint error",
    "OSError: [Errno 28] No space left on device": "output node error",
    "requests.exceptions.ReadTimeout: Read timed out. (read timeout=10)": "network timeout",
    TRACEBACK + "FileNotFoundError: [Errno 2] No such file or directory: 'data/train.bin'": "incorrect inputs",
    "train.py: error: unrecognized arguments: --epoch 3": "incorrect inputs",
    "slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT 2023-01-01T00:00:00 DUE TO TIME LIMIT ***": "time limit",
    "slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT 2023-01-01T00:00:00 DUE TO PREEMPTION ***": "job preempted",
    TRACEBACK + "TypeError: forward() missing 1 required positional argument: 'x'": "semantic error",
    TRACEBACK + "custom.Problem: 3": "traceback from crash",
    "step 12 loss=nan": "model diverged",
    "epoch 3 done, accuracy 0.71": None,
    "": None,
}


@pytest.mark.parametrize(("text", "reason"), MESSAGES.items())
def test_a_message_has_its_class(text: str, reason: str | None) -> None:
    rule = signatures.classify(text, RULES)
    assert (rule.reason if rule else None) == reason


def test_users_rules_come_first_and_weak_ones_last(tmp_path: Path) -> None:
    (tmp_path / "log_signatures.toml").write_text(
        "[[signature]]\nreason = 'licence'\ncategory = 'infrastructure'\npattern = 'no licence|CUDA out of memory'\n"
        "[[signature]]\nreason = 'shrug'\ncategory = 'unknown'\npattern = 'Error'\nweak = true\n"
    )
    rules = signatures.signatures(DataFolder(tmp_path))
    assert signatures.classify("CUDA out of memory", rules).reason == "licence"  # type: ignore[union-attr]
    assert signatures.classify("TypeError: x", rules).reason == "semantic error"  # type: ignore[union-attr]
    assert signatures.classify("OtherError", rules).reason == "shrug"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[signature]]\nreason = 'x'\ncategory = 'user'\npattern = '('", "no regular expression"),
        ("[[signature]]\nreason = 'x'\ncategory = 'nobody'\npattern = 'a'", "allowed are user, engine"),
        ("[[signature]]\nreason = 'x'\ncategory = 'user'", "pattern is missing"),
        ("[[signature]]\nreason = 3\ncategory = 'user'\npattern = 'a'", "reason = 3"),
        ("[rules]\n", "allowed are"),
        ("= =", "not readable as TOML"),
    ],
)
def test_a_broken_rules_file_says_where(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "log_signatures.toml").write_text(text)
    with pytest.raises(InputError, match=message) as error:
        signatures.signatures(DataFolder(tmp_path))
    assert str(tmp_path) in str(error.value)


def test_tails_from_files_and_from_jsonl(tmp_path: Path) -> None:
    data = DataFolder(tmp_path)
    folder = signatures.tails_folder(data, CLUSTER)
    folder.mkdir(parents=True)
    (folder / "7.out").write_text("epoch 1\n")
    (folder / "7.err").write_text(TRACEBACK + "custom.Problem\n")
    (folder / "8.1.err").write_bytes(b"\xff\xfe" + b"x" * 200_000 + b"\nMemoryError\n")
    (folder / "README").write_text("MemoryError")
    lines = [{"job_id": "9", "attempt": 0, "stdout": "", "stderr": "fine"}, {"job_id": 10, "stderr": "Bus error"}]
    (folder / "more.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    before = signatures.tails_digest(data, CLUSTER)
    found = {(r["job_id"], r["attempt"]): r["log_reason"] for r in signatures.read_tails(data, CLUSTER).to_dicts()}
    assert found == {
        ("7", None): "traceback from crash",
        ("8", 1): "CPU out of memory",
        ("9", 0): None,
        ("10", None): "invalid memory access",
    }
    (folder / "7.err").write_text("other")
    assert signatures.tails_digest(data, CLUSTER) != before
    (folder / "bad.jsonl").write_text('{"job_id": "1"}\n{"stdout": "x"}\n')
    with pytest.raises(InputError, match=r"bad.jsonl:2: .*job_id"):
        signatures.read_tails(data, CLUSTER)


def tail(
    key: str, reason: str | None, attempt: int | None = None, *, weak: bool = False, hopeless: bool = False
) -> Any:
    return (key, attempt, reason, reason and "user", weak if reason else None, hopeless if reason else None)


@pytest.mark.parametrize(
    ("ended", "logged", "reason", "source"),
    [
        ({"state": "TIMEOUT"}, ("semantic error", False), "time limit", "state"),
        ({"state": "FAILED", "exit_code": 139}, ("semantic error", False), "semantic error", "log"),
        ({"state": "FAILED", "exit_code": 139}, ("traceback from crash", True), "invalid memory access", "signal"),
        ({"state": "FAILED", "exit_code": 127}, ("traceback from crash", True), "command not found", "exit status"),
        ({"state": "FAILED", "exit_code": 1}, ("traceback from crash", True), "traceback from crash", "log"),
        ({"state": "FAILED", "exit_code": 1}, (None, False), "no signature", "none"),
        ({"state": "FAILED", "exit_code": 1}, None, "error exit", "exit status"),
        ({"state": "FAILED", "exit_code": None}, None, "no signature", "none"),
    ],
)
def test_precedence(ended: dict[str, Any], logged: tuple[str | None, bool] | None, reason: str, source: str) -> None:
    of = trace([job("x", 0, 5, 65, 2, **ended)])
    tails = pl.DataFrame([] if logged is None else [tail("x", logged[0], weak=logged[1])], schema=TAILS, orient="row")
    row = failures.from_trace(of, TOY, tails)["failures"].to_dicts()[0]
    assert (row["reason"], row["reason_source"]) == (reason, source)


def test_no_retry_saves_later_attempts_and_counts_those_that_would_have_completed() -> None:
    ends = [("FAILED", 10), ("FAILED", 20), ("COMPLETED", 40)]
    attempts, jobs = [], []
    for key, runs in (("lost", ends[:2]), ("won", ends)):
        jobs.append(job(key, 0, 0, 100, 4, attempts=len(runs), state=runs[-1][0]))
        for i, (state, run) in enumerate(runs):
            span = {"start_utc": at(i * 100), "end_utc": at(i * 100 + run)}
            attempts.append({"job_key": key, "attempt": i, "gpus": 4, "state": state, **span})
    tails = pl.DataFrame(
        [tail("lost", "incorrect inputs", 0, hopeless=True), tail("won", "import error", 0, hopeless=True)],
        schema=TAILS, orient="row",
    )  # fmt: skip
    found = failures.from_trace(trace(jobs, attempts), TOY, tails)
    rows = found["failure_savings"].filter(pl.col("rule") == "no retry of hopeless errors").to_dicts()
    by = {r["reason"]: (r["jobs"], r["attempts_avoided"], r["time_saved_s"], r["jobs_stopped_wrongly"]) for r in rows}
    assert by == {None: (2, 3, 320, 1), "incorrect inputs": (1, 1, 80, 0), "import error": (1, 2, 240, 1)}
    again = found["retries"].filter(pl.col("dimension") == "all").to_dicts()[0]
    assert (again["jobs"], again["attempts"], again["attempts_most"], again["retried_jobs"]) == (2, 5, 3, 2)
    assert (again["recovered_jobs"], again["retry_unit_time_s"]) == (1, 320)


@st.composite
def failing(draw: st.DrawFn) -> list[dict[str, Any]]:
    return [
        job(
            f"j{i}", 0, 0, draw(st.integers(0, 5000)), draw(st.integers(1, 16)),
            state=draw(st.sampled_from(("COMPLETED", "FAILED", "NODE_FAIL", "TIMEOUT", "OUT_OF_MEMORY"))),
            exit_code=draw(st.sampled_from((0, 1, 2, 139))),
        )
        for i in range(draw(st.integers(1, 10)))
    ]  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(failing())
def test_pre_runs_are_those_of_a_loop(rows: list[dict[str, Any]]) -> None:
    assume(any(row["gpu_time_s"] for row in rows))  # otherwise the resource of the log is not the GPU
    found = failures.from_trace(trace(rows), TOY)
    reasons = {r["job_key"]: r["category"] for r in found["failures"].to_dicts()}
    gangs = [r for r in rows if r["gpus"] > 1]
    by_limit = {r["limit_s"]: r for r in found["failure_savings"].drop_nulls("limit_s").to_dicts()}
    assert len(by_limit) == (5 if gangs else 0)
    for limit, got in by_limit.items():
        met = [
            r for r in gangs
            if r["run_s"] <= limit and reasons.get(r["job_key"]) in ("user", "engine") and r["state"] != "TIMEOUT"
        ]  # fmt: skip
        assert got["time_saved_s"] == sum(r["gpus"] * r["run_s"] for r in met)
        assert got["time_cost_s"] == sum(min(r["run_s"], limit) for r in gangs)
        assert got["attempts_avoided"] == len(met) and got["jobs"] == len(gangs)
