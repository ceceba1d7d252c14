"""Slurm's node lists: every oddity, real lists of one cluster, and which of several lists counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.traces.conftest import Lake
from tests.traces.readers.node_lists.oddities import BARE, DATE, HEADER, LONG_HEADER, ROWS, Row, file_of
from traces.errors import InputError
from traces.readers.published.openb import OpenbNodes

GOOD = {
    "scontrol-nodes": f"\n{BARE.replace('c01', 'z')}",
    "sinfo": "\n" + "|".join(["z", "p", "1", "1", "", "", "idle"]),
    "sinfo-json": ',\n{"name": "z", "cpus": 1, "real_memory": 1}',
}


def with_good(row: Row) -> str:
    """The lines of a row that is refused with another that is not."""
    if row.format == "sinfo":
        names = ("|" if "|" in row.header else " ").join
        width = len(row.header.replace("|", " ").split())
        return f"{row.lines}\n{names(['z', *['1'] * (width - 1)])}"
    return row.lines + GOOD[row.format]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.format}: {row.name}")
def test_one_oddity(lake: Lake, row: Row) -> None:
    lines = row.lines if row.nodes is not None else with_good(row)
    (result,) = lake.ingest(lake.put("nodes.txt", file_of(Row(row.format, "", "", lines, "", None, row.header))))
    assert result.format == row.format
    nodes = {node["node"]: node for node in lake.rows("nodes")}
    if row.nodes is None:
        (reject,) = lake.rows("rejects")
        assert (result.rejects, reject["raw"]) == (1, row.lines) and "z" in nodes
        return
    assert result.rejects == 0 and row.nodes.keys() <= nodes.keys()
    assert {name: {column: nodes[name][column] for column in found} for name, found in row.nodes.items()} == row.nodes


def test_a_line_that_says_nothing_new_is_a_duplicate(lake: Lake) -> None:
    line = "n01|gpu|64|512000|gpu:4||idle"
    lines = [HEADER, line, line, HEADER, line.replace("gpu|", "long|")]
    (result,) = lake.ingest(lake.put("nodes.txt", "\n".join(lines) + "\n"))
    assert (result.rows, result.samples, result.duplicates) == (3, 2, 1), "a header that stands again is no record"


def test_without_a_header_the_fields_are_named(lake: Lake) -> None:
    text = "n01|gpu*|64|512000|gpu:a100:4|ib|idle\n"
    (result,) = lake.ingest(lake.put("nodes.txt", text), fields=HEADER.lower().split("|"))
    assert (result.format, result.samples, result.rejects) == ("sinfo", 1, 0)
    assert [(n["cpus"], n["gpus"]) for n in lake.rows("nodes")] == [(64, 4)]


def test_memory_that_the_long_form_cuts_is_reported_once(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = {"n01": "64000", "n02": "512000", "n03": "103100"}
    lines = [f"{name} 1 gpu* idle 64 2:16:2 {size} 0 1 (null) none" for name, size in sizes.items()]
    lake.ingest(lake.put("nodes.txt", "\n".join([DATE, LONG_HEADER, *lines])))
    assert [node["memory_mib"] for node in lake.rows("nodes")] == [64_000, None, None]
    assert capsys.readouterr().err.count("so the memory of 2 lines is unknown; use sinfo -N -o") == 1


def test_a_list_ingested_later_counts_where_it_says_something(lake: Lake) -> None:
    def nodes() -> list[tuple[object, ...]]:
        return [(n["node"], n["gpus"], n["gpu_type"], n["cpus"], n["partitions"]) for n in lake.rows("nodes")]

    first = lake.put("first.txt", f"{HEADER}\nn[01-02]|gpu|64|512000|gpu:a100:4|ib|idle\n")
    second = lake.put("second.txt", "NODELIST|GRES|CPUS\nn01|(null)|32\n")
    lake.ingest(first)
    lake.ingest(second)
    assert nodes() == [("n01", 0, None, 32, "gpu"), ("n02", 4, "a100", 64, "gpu")]
    first.write_text(f"{HEADER}\nn01|new|8|512000|gpu:v100:2|ib|idle\n")
    lake.ingest(first)
    assert nodes() == [("n01", 2, "v100", 8, "new")], "what the file held before is forgotten"


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_order_of_ingest_and_not_of_digests_decides(lake: Lake, order: tuple[int, int]) -> None:
    texts = [f"NODELIST|CPUS\nn01|{cpus}\n" for cpus in (10, 20)]
    for n in order:
        lake.ingest(lake.put(f"{n}.txt", texts[n]))
    assert [n["cpus"] for n in lake.rows("nodes")] == [(10, 20)[order[1]]]


LISTS = ("scontrol_nodes_o.txt", "sinfo.json", "sinfo_N.psv", "sinfo_o.psv")


@pytest.mark.parametrize("name", LISTS)
def test_real_lists_of_one_cluster_agree(shared_traces: Path, lake: Lake, name: str) -> None:
    """slurm.conf there: NodeName=node[01-16] CPUs=64 RealMemory=512000 Gres=gpu:a100:4, gpu and long of 1 to 14."""
    (result,) = lake.ingest(shared_traces / "slurm-22.05-lab" / name)
    assert (result.rejects, result.duplicates) == (0, 0)
    nodes = lake.rows("nodes")
    assert [n["node"] for n in nodes] == [f"node{n:02}" for n in range(1, 17)]
    for node in nodes:
        expected = "debug" if node["node"] in ("node15", "node16") else "gpu,long"
        assert (node["gpus"], node["gpu_type"], node["memory_mib"]) == (4, "a100", 512_000)
        assert node["partitions"] == expected
        # sinfo -o adds up the CPUs of the nodes of a line
        assert node["cpus"] == (None if name == "sinfo_o.psv" and node["node"] != "node02" else 64)
        assert node["features"] == (None if name == "sinfo_N.psv" else "a100,ib")
    mixed = [n["node"] for n in nodes if n["state"].upper() == "MIXED"]
    assert mixed == ["node10", "node13"]


def test_the_real_list_of_openb(shared_traces: Path, lake: Lake) -> None:
    """Sums by zcat | awk -F, over the file: 6,212 GPUs, 107,018,000 thousandths of a CPU, 503,828,480 MiB."""
    (result,) = lake.ingest(shared_traces / "openb" / "openb_node_list_gpu_node.csv.gz")
    assert (result.format, result.samples, result.rejects) == (OpenbNodes.name, 1213, 0)
    nodes = lake.table("nodes")
    assert nodes.select("gpus", "cpus", "memory_mib").sum().row(0) == (6_212, 107_018, 503_828_480)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("scontrol-nodes", "Dear all\n"),
        ("sinfo", f"{HEADER}\n"),
        ("sinfo-json", '{"jobs": []}\n'),
        ("sinfo-json", '{"nodes": []}\n'),
    ],
)
def test_a_list_of_no_node_is_refused_in_one_line(lake: Lake, name: str, text: str) -> None:
    with pytest.raises(InputError) as caught:
        lake.ingest(lake.put("nodes", text), format=name)
    assert "\n" not in str(caught.value)
