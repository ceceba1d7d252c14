"""Slurm's text forms, each with the texts that Slurm prints and some that it does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traces.slurm import text as slurm_text
from traces.slurm.text import JobId


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("00:42", 42), ("00:00.042", 0.042), ("01:02:03", 3723), ("4-12:24:26", 390266), ("125-00:00:00", 10_800_000)],
)
def test_durations(text: str, seconds: float) -> None:
    assert slurm_text.parse_duration_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2-00:00:00", 172_800), ("48:00", 2880), ("2-0", 172_800), ("1-12:30", 131_400), ("48:00:00", 172_800),
        ("48h", 172_800), ("1d12h", 129_600), ("1h30m", 5400), ("0.5h", 1800), ("90", 90), ("1.5", 1.5),
        ("UNLIMITED", None), ("infinite", None),
    ],
)  # fmt: skip
def test_durations_as_people_write_them(text: str, seconds: float | None) -> None:
    assert slurm_text.parse_span_s(text) == seconds


def test_a_plain_number_has_the_unit_of_its_option() -> None:
    assert slurm_text.parse_span_s("2", plain_s=3600) == 7200
    assert slurm_text.parse_span_s("2m", plain_s=3600) == 120


@pytest.mark.parametrize("text", ["", "soon", "-4h", "4 h", "1e3", "h", "2-", "1:2:3:4", "nan", "٣h", "4w"])
def test_a_duration_of_no_form_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(ValueError, match="write 48h, 30m, 2d or 2-00:00:00"):
        slurm_text.parse_span_s(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2880", 172_800),
        ("2-00:00:00", 172_800),
        ("1-03", 97_200),
        ("1-03:30", 99_000),
        ("30:00", 1800),
        ("UNLIMITED", None),
        ("Partition_Limit", None),
        ("", None),
    ],
)
def test_limits(text: str, seconds: int | None) -> None:
    assert slurm_text.parse_limit_s(text) == seconds


@pytest.mark.parametrize(
    ("text", "memory"),
    [
        ("48000Mn", (48_000, "n")),
        ("5000Mc", (5000, "c")),
        ("62.50G", (64_000, "")),
        ("0n", None),
        ("", None),
        ("16T", (16 * 1024**2, "")),
        ("1048576K", (1024, "")),
    ],
)
def test_memory(text: str, memory: tuple[float, str] | None) -> None:
    assert slurm_text.parse_memory_mib(text) == memory


@pytest.mark.parametrize(("text", "kib"), [("13633728K", 13_633_728), ("4.50G", 4_718_592), ("2048", 2), ("", None)])
def test_resident_sizes(text: str, kib: int | None) -> None:
    assert slurm_text.parse_rss_kib(text) == kib


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("billing=8,cpu=8,gres/gpu:a100=4,gres/gpu=4,mem=64G,node=1", 4),  # typed and untyped are the same GPUs
        ("cpu=8,gres/gpu:a100=2,gres/gpu:v100=1", 3),
        ("cpu=8,mem=1G", 0),
        ("", None),
    ],
)
def test_gpus_of_tres(text: str, gpus: int | None) -> None:
    assert slurm_text.tres_gpus(text) == gpus


@pytest.mark.parametrize(
    ("text", "types"),
    [
        ("", None), ("cpu=4,mem=1G", None), ("cpu=4,gres/gpu=2", None), ("gres/gpu:a100=2,gres/gpu=2", "a100"),
        ("gres/gpu:a100=2,gres/gpu:t4=1,gres/gpu=3", "a100|t4"),
    ],
)  # fmt: skip
def test_types_of_gpus_in_tres(text: str, types: str | None) -> None:
    assert slurm_text.tres_gpu_types(text) == types


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("gpu:4", 4),
        ("gpu:a100:2", 2),
        ("gpu", 1),
        ("PER_NODE:gpu:8", 8),
        ("gpu:a100:4(IDX:0-3)", 4),
        ("craynetwork:1", None),
    ],
)
def test_gpus_of_old_gres(text: str, gpus: int | None) -> None:
    assert slurm_text.gres_gpus(text) == gpus


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("COMPLETED", "COMPLETED"),
        ("CANCELLED by 1000", "CANCELLED"),
        ("CANCELLED+", "CANCELLED"),
        ("OUT_OF_ME+", "OUT_OF_MEMORY"),
        ("COMPLETING", "RUNNING"),
        ("OOM", "OUT_OF_MEMORY"),
        ("PD", "PENDING"),
        ("REQUEUE_HOLD", "REQUEUED"),
        ("COMP+", "UNKNOWN"),  # COMPLETED or COMPLETING
        ("?", "UNKNOWN"),
        ("nonsense", "UNKNOWN"),
    ],
)
def test_states(text: str, state: str) -> None:
    assert slurm_text.parse_state(text) == state


@pytest.mark.parametrize(
    ("text", "job_id"),
    [
        ("123", JobId(123)),
        ("123_7", JobId(123, task=7)),
        ("123_[4-10%2]", JobId(123, pending="4-10%2")),
        ("123_[1,3,5,7,9,11", JobId(123, pending="1,3,5,7,9,11")),  # sacct cuts it at 64 bytes
        ("123+1", JobId(123, het=1)),
        ("123.batch", JobId(123, step="batch")),
        ("123_7.extern", JobId(123, task=7, step="extern")),
        ("123+1.0", JobId(123, het=1, step="0")),
    ],
)
def test_job_ids(text: str, job_id: JobId) -> None:
    assert slurm_text.parse_job_id(text) == job_id


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("cpn-f13-03-[01-02],cpn-f15", ["cpn-f13-03-01", "cpn-f13-03-02", "cpn-f15"]),
        ("r[1-2]n[08-10]", ["r1n08", "r1n09", "r1n10", "r2n08", "r2n09", "r2n10"]),
        ("n[1,3-4]-ib", ["n1-ib", "n3-ib", "n4-ib"]),
        ("None assigned", []),
        ("", []),
    ],
)
def test_node_lists(text: str, nodes: list[str]) -> None:
    assert slurm_text.expand_nodes(text) == nodes


@pytest.mark.parametrize(("text", "code"), [("0:0", (0, 0)), ("1:0", (1, 0)), ("0:15", (0, 15)), ("", (None, None))])
def test_exit_codes(text: str, code: tuple[int | None, int | None]) -> None:
    assert slurm_text.parse_exit_code(text) == code


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (slurm_text.parse_duration_s, "12"),
        (slurm_text.parse_duration_s, "1:2:3:4"),
        (slurm_text.parse_limit_s, "soon"),
        (slurm_text.parse_memory_mib, "12 monkeys"),
        (slurm_text.parse_tres, "cpu"),
        (slurm_text.tres_gpus, "gres/gpu=many"),
        (slurm_text.parse_job_id, "job 12"),
        (slurm_text.parse_exit_code, "x:y"),
        (slurm_text.expand_nodes, "n[1-"),
        (slurm_text.expand_nodes, "n[9-1]"),
        (slurm_text.expand_nodes, "n[1-999999999]"),  # no list of a billion nodes
        (slurm_text.expand_nodes, "n[1-999][1-999][1-999]"),
    ],
)
def test_other_texts_are_refused_by_value(parse: Callable[[str], Any], text: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        parse(text)
    assert text[:20] in str(caught.value) or repr(text)[1:-1][:20] in str(caught.value)


@given(st.integers(0, 400 * 86_400))
def test_durations_come_back(seconds: int) -> None:
    days, rest = divmod(seconds, 86_400)
    text = f"{days}-{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    assert slurm_text.parse_duration_s(text) == seconds


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    for parse in (
        slurm_text.parse_duration_s,
        slurm_text.parse_limit_s,
        slurm_text.parse_memory_mib,
        slurm_text.parse_rss_kib,
        slurm_text.tres_gpus,
        slurm_text.parse_job_id,
        slurm_text.parse_exit_code,
        slurm_text.expand_nodes,
    ):
        try:
            parse(text)
        except ValueError:
            continue
    assert slurm_text.parse_state(text) in {*slurm_text.BASE_STATES, "UNKNOWN"}
    slurm_text.gres_gpus(text)
