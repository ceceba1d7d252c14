"""What no cluster has is refused with the value and the bound, by every reader, in bulk and the slow way alike."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.memory import Growth
from tests.traces.conftest import HEADER, Lake
from tests.traces.readers.oddities import row as sacct_line
from tests.traces.readers.published.logs import HELIOS, PODS, SEREN, SWF
from tests.traces.readers.sacct.test_shapes import job
from traces import quality, schema
from traces.clusters import ClusterSettings
from traces.errors import InputError
from traces.ingest import ingest
from traces.readers.plausible import check_plausible, implausible
from traces.store.folder import DataFolder

GPUS, NODES, CPUS, SECONDS = (schema.MOST[name] for name in ("gpus", "nodes", "cpus", "s"))


def test_no_product_of_bounds_leaves_64_bits() -> None:
    most = schema.MOST
    for product in (GPUS * SECONDS, GPUS * most["limit_s"], CPUS * SECONDS, GPUS * NODES, most["gpu_time_s"] << 18):
        assert product < 1 << 63
    span = (schema.LAST_UTC - schema.FIRST_UTC).total_seconds()
    assert span <= SECONDS


@given(
    st.lists(
        st.tuples(
            st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(GPUS - 2, GPUS + 2) | st.none(),
            st.floats(allow_nan=False) | st.none(),
        ),
        min_size=1,
        max_size=9,
    )
)
def test_in_bulk_as_one_by_one(rows: list[tuple[int | None, float | None]]) -> None:
    names = ("allocated_gpus", "cpu_time_s")
    frame = pl.DataFrame(rows, schema={names[0]: pl.Int64, names[1]: pl.Float64}, orient="row")
    for values, wrong in zip(rows, implausible(frame), strict=True):
        found = []
        for name, value in zip(names, values, strict=True):
            try:
                check_plausible(name, value or 0)
            except ValueError as error:
                found.append(str(error).split()[0])
        assert (wrong or "").split(" ")[:1] == (found[:1] or [""])


def test_times_that_no_calendar_of_python_holds() -> None:
    texts = ["-123-01-01 00:00:00", "+12345-01-01 00:00:00", "2106-02-06 06:28:16", "2106-02-06 06:28:17"]
    times = pl.Series("end_utc", texts).str.to_datetime("%Y-%m-%d %H:%M:%S", time_unit="us")
    assert [bool(why) for why in implausible(times.to_frame())] == [True, True, False, True]


# Of a column: how many of the values are read, which come first, and what is said of the others.
VALUES: dict[str, tuple[int, list[str], str]] = {
    "AllocTRES": (1, [f"gres/gpu={n}" for n in (GPUS, GPUS + 1, (1 << 62) - 1, 1 << 63, 10**30)], "gpus .* from 0 to"),
    "ReqTRES": (1, [f"gres/gpu:a={n},gres/gpu:b={n}" for n in (GPUS // 2, GPUS // 2 + 1, 1 << 61)], "is not from 0"),
    "NNodes": (1, [str(n) for n in (NODES, NODES + 1, (1 << 32) - 3)], "nodes .* is not from 0 to 1,048,576"),
    "AllocCPUS": (1, [str(n) for n in (CPUS, CPUS + 1)], "cpus .* is not from 0"),
    "ReqMem": (4, ["1048576T", "0.5E", "524288Tn", "131072Tc", "2E", "2.5E", "1048577Tn", "131073Tc", "9" * 18],
               "mib .* is not from 0"),
    "ElapsedRaw": (2, ["7", str(SECONDS - 3), str(SECONDS)], "does not fit in 32 bits"),
    "TimelimitRaw": (1, [str(n) for n in (1 << 32, (1 << 32) + 1, 10**25)], "limit_s .* is not from 0"),
    "Submit": (1, ["1969-12-31T00:00:00", "1969-12-30T23:59:59"], "submit_utc 1969-12-30 23:59:59 is not from 1969"),
    "End": (1, ["2099-12-31T23:59:59", "2106-02-06T06:28:17"], "is not YYYY-MM-DDTHH:MM:SS"),
}  # fmt: skip


@pytest.mark.parametrize("name", VALUES)
def test_a_whole_line_and_one_put_together_again_fare_the_same(lake: Lake, name: str) -> None:
    """The first goes through in bulk; the second has the delimiter in its name, and goes the slow way."""
    fine, values, found = VALUES[name]
    other = {"ReqTRES": ""} if name == "ReqMem" else {}
    bulk = [sacct_line(**{**other, name: value}).replace("{id}", str(100 + n)) for n, value in enumerate(values)]
    slow = [sacct_line(JobName="a|b", **{**other, name: v}).replace("{id}", str(200 + n)) for n, v in enumerate(values)]
    (result,) = lake.ingest(lake.put("dump.psv", "\n".join([HEADER, *bulk, *slow]) + "\n"))
    assert {job["job_id_raw"] for job in lake.rows("jobs")} == {n for k in (100, 200) for n in range(k, k + fine)}
    assert (result.allocations, result.rejects) == (2 * fine, 2 * (len(values) - fine))
    reasons = [reject["reason"] for reject in lake.rows("rejects") if reject["line"] <= 1 + len(values)]
    assert len(reasons) == len(values) - fine and all(re.search(found, reason) for reason in reasons), reasons


def test_json(lake: Lake) -> None:
    times = job(False)["time"]
    gpus = [{"type": "gres", "name": "gpu", "count": (1 << 62) - 1}]
    odd: list[tuple[dict[str, Any], str]] = [
        ({"tres": {"allocated": gpus, "requested": []}}, "column AllocTRES: gpus 4611686018427387903 is not from 0"),
        ({"allocation_nodes": NODES + 1}, "nodes 1048577 is not from 0 to 1,048,576"),
        ({"time": {**times, "elapsed": 10**15}}, "column ElapsedRaw: '1000000000000000' is not a count"),
        ({"time": {**times, "end": 5_000_000_000}}, "end_utc 2128-06-11 08:53:20 is not from 1969-12-31"),
        ({"time": {**times, "limit": 10**18}}, "column TimelimitRaw: limit_s"),
    ]
    jobs = [job(False, steps=[], job_id=n, **other) for n, (other, _) in enumerate(odd, 1)]
    (result,) = lake.ingest(lake.put("dump.json", json.dumps({"jobs": [*jobs, job(False, steps=[])]})))
    assert (result.allocations, result.rejects) == (1, len(odd))
    rejects = sorted(lake.rows("rejects"), key=lambda reject: reject["line"])
    for reject, (_, found) in zip(rejects, odd, strict=True):
        assert found in reject["reason"], reject["reason"]


def test_whole_nodes_of_gpus_are_bounded_too(tmp_path: Path) -> None:
    """Without a TRES column GPUs are nodes times the cluster's GPUs a node."""
    lines = ["JobID|NNodes|Submit|Start|End|State"]
    lines += [
        f"{n}|{nodes}|2024-05-01T10:00:00|2024-05-01T10:00:00|2024-05-01T11:00:00|FAILED"
        for n, nodes in enumerate((8, NODES))
    ]
    (tmp_path / "dump").write_text("\n".join(lines))
    cluster = ClusterSettings("lab", gpus_per_node=GPUS)
    with pytest.raises(InputError, match="allocated_gpus 8388608 is not from 0 to 1,048,576"):
        ingest([tmp_path / "dump"], cluster=cluster, data=DataFolder(tmp_path / "data"))


REST = " -1" * 9
TIMES = "2020-06-09 18:00:00,2020-06-09 18:00:00,2020-06-09 19:00:00,3600,0"
PUBLISHED: dict[str, tuple[str, str, str]] = {
    "helios": (HELIOS, f"9,u,v,{GPUS + 1},1,1,FAILED,{TIMES}", "requested_gpus"),
    "a year of five digits": (HELIOS, "9,u,v,1,1,1,FAILED,+12345-01-01 00:00:00,,,0,0", "submit_local"),
    "a year before all": (HELIOS, "9,u,v,1,1,1,FAILED,-0123-01-01 00:00:00,,,0,0", "submit_local"),
    "acme": (SEREN, f"5,u,{NODES + 1},1,1,Other,FAILED,2023-03-01 00:18:22+08:00,,,117,32,9.0", "requested_nodes"),
    "openb": (PODS, f"p,6000,12288,{1 << 50},1000,,LS,Failed,0,1000,0", "requested_gpus"),
    "openb's part of a GPU": (PODS, f"p,6000,12288,1,{1 << 50},,LS,Failed,0,1000,0", "gpu_milli '1125899906842624'"),
    "openb's times": (PODS, f"p,6000,12288,1,1000,,LS,Failed,0,{1 << 50},0", "deletion_time"),
    "openb's CPUs": (PODS, f"p,{1 << 52},12288,1,1000,,LS,Failed,0,1000,0", "requested_cpus"),
    "swf": (SWF, f"1 10 20 3600 {CPUS + 1} -1 -1 1 7200{REST}", "allocated_cpus"),
    "swf's times": (SWF, f"1 {1 << 50} 20 3600 1 -1 -1 1 7200{REST}", "submit_s"),
    "swf's memory": (SWF, f"1 1 2 3 1 -1 -1 {CPUS} 7200 {1 << 49} 1" + " -1" * 7, "requested_mem_mib"),
    "swf after all": (f"; UnixStartTime: {SECONDS - 800_000}", f"1 900000 2 3 1 -1 -1 1 7200{REST}", "submit_utc"),
    "swf's parts": (SWF, "\n".join(["1 0 4000000000 9 8 -1 -1 8 200 -1 2" + " -1" * 7] * 2), "together end after 2106"),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_logs(lake: Lake, name: str) -> None:
    header, lines, found = PUBLISHED[name]
    good = {
        HELIOS: f"8,u,v,1,1,1,FAILED,{TIMES}",
        SEREN: "6,u,1,1,1,Other,FAILED,2023-03-01 00:18:22+08:00,,,117,32,9.0",
        PODS: "q,6000,12288,1,1000,,LS,Failed,0,9,0",
    }.get(header, f"2 1 2 3 4 -1 -1 1 7{REST}")  # fmt: skip
    (result,) = lake.ingest(lake.put("log", f"{header}\n{lines}\n{good}\n"))
    assert (result.jobs, result.rejects) == (1, lines.count("\n") + 1)
    assert all(found in reject["reason"] for reject in lake.rows("rejects")), lake.rows("rejects")


SAMPLES = {
    "philly-machines": ("machineId, number of GPUs, single GPU mem", "m0,2, 12GB",
                        [f"m1,{1 << 63}, 12GB", "m2,²,12GB", f"m3,2,{'9' * 400}GB", f"m4,{GPUS + 1},1GB"]),
    "philly-mem-util": ("time,machine_id,mem_total,mem_free", "2017-11-27 00:04:00 PST,m29,4.0,NA",
                        [f"2017-11-27 00:0{n}:00 PST,m29,{values}" for n, values in
                         enumerate(("inf,2", "9e18,2.0", "1e400,2", "4,1e17", "NaN,2", "4,-2"))]),
    "philly-cpu-util": ("time,machine_id,cpu_util", "2017-11-27 00:04:00 PST,m29,31.8",
                        ["2017-11-27 00:05:00 PST,m,1e400",
                         "9999-11-27 00:04:00 PST,m,5", "2017-11-27 00:05:00,m,1e12"]),
    "philly-gpu-util": ("time,machineId,gpu0_util,gpu1_util", "2017-11-27 00:04:00 PST,m29,31.8,NA",
                        ["2017-11-27 00:05:00 PST,m29,1,1e400", "2017-11-27 00:05:00 PST,m29,1e99,"]),
    "openb-nodes": ("sn,cpu_milli,memory_mib,gpu,model", "n1,96000,786432,8,V100M32", [f"n2,1,1,{1 << 50},T4"]),
}  # fmt: skip


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_and_machines(lake: Lake, name: str) -> None:
    header, good, bad = SAMPLES[name]
    (result,) = lake.ingest(lake.put("log", "\n".join([header, *bad, good]) + "\n"))
    assert (result.format, result.samples, result.rejects) == (name, 1, len(bad))
    assert [r["line"] for r in lake.rows("rejects")] == list(range(2, 2 + len(bad)))


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        ({"detail": 5}, "detail '5' is not a list"),
        ({"detail": [{"ip": "m1", "gpus": 7}]}, "gpus '7' is not a list"),
        ({"detail": "DEEP"}, "names no machine"),
        ({"detail": 10**30}, "is not a list"),
        ({"end_time": "2106-02-06 06:28:17"}, "end_time '2106-02-06 06:28:17' is not from 1969"),
        ({"start_time": "1969-12-30 23:59:59"}, "start_time '1969-12-30 23:59:59' is not from 1969"),
    ],
)
def test_philly(lake: Lake, attempt: dict[str, Any], message: str) -> None:
    run = {
        "start_time": "2017-10-07 01:10:00",
        "end_time": "2017-10-07 02:10:00",
        "detail": [{"ip": "m1", "gpus": ["gpu0"]}],
    }
    entries = [
        {"status": "Pass", "vc": "v", "jobid": f"a{n}", "attempts": [run if n != 1 else {**run, **attempt}],
         "submitted_time": "2017-10-07 01:00:00", "user": "u"}
        for n in range(3)
    ]  # fmt: skip
    text = json.dumps(entries).replace('"DEEP"', "[" * 500 + "]" * 500)
    (result,) = lake.ingest(lake.put("log", text))
    assert (result.jobs, result.rejects) == (2, 1)
    (reject,) = lake.rows("rejects")
    assert reject["line"] == 2 and message in reject["reason"]


def test_an_end_before_its_start_is_flagged_and_counted(lake: Lake) -> None:
    """In a row of its own, in a requeue of a job, and in `--json`; not where the hour of a clock change blurs it."""
    late = {"Start": "2024-05-01T12:00:00", "ElapsedRaw": "0"}
    lines = [sacct_line(), sacct_line(**late), sacct_line(State="NODE_FAIL", **late)]
    lines.append(sacct_line(Submit="2024-05-01T12:30:05", Start="2024-05-01T13:00:00", End="2024-05-01T14:00:00"))
    hour = {"Start": "2024-11-03T01:40:00", "End": "2024-11-03T01:10:00", "ElapsedRaw": "1800"}
    lines.append(sacct_line(Submit="2024-11-03T01:00:00", Eligible="2024-11-03T01:00:00", **hour))
    numbered = [line.replace("{id}", key) for line, key in zip(lines, "12334", strict=True)]
    times = {**job(False)["time"], "start": 1_714_563_001}
    found = json.dumps({"jobs": [job(False, job_id=5, time=times, steps=[])]})
    dump = lake.put("dump.psv", "\n".join([HEADER, *numbered]) + "\n")
    lake.ingest(dump, lake.put("dump.json", found), timezone="America/Chicago")
    jobs = lake.table("jobs")
    flags = dict(jobs.select("job_key", "is_end_before_start").iter_rows())
    assert flags == {"1": False, "2": True, "3": True, "4": False, "5": True}
    assert sorted(quality.of_jobs(jobs)["end_before_start"]) == [1, 2]


ENDLESS = {
    **{name: header for name, (header, _, _) in SAMPLES.items()},
    "helios": HELIOS, "swf": SWF, "sacct": HEADER, "sacct as CSV": HEADER.replace("|", ","),
}  # fmt: skip


@pytest.mark.parametrize("name", ENDLESS)
def test_a_packed_line_that_does_not_end_is_refused_within_bounded_memory(
    lake: Lake, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2 GiB in a file of 8 MB, with a bound of 1 MiB on lines: none of it is held beyond a piece."""
    for module in ("raw_text", "common", "sacct.blocks", "sacct.csv"):
        monkeypatch.setattr(f"traces.readers.{module}.LONGEST_LINE", 1 << 20)
    packed = gzip.compress(ENDLESS[name].encode() + b"\n") + gzip.compress(b"0" * (1 << 25), 1) * 64
    path = lake.put("bomb", packed)
    with Growth() as grown, pytest.raises(InputError, match=r"over 1 MiB"):
        lake.ingest(path, format=name.split(" as ")[0])
    assert grown.mib < 512


def test_a_list_of_philly_that_never_goes_on_is_refused_piece_by_piece(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("traces.readers.philly.columns.LONGEST_LINE", 1 << 16)
    monkeypatch.setattr("traces.readers.philly.columns.PIECE_BYTES", 1 << 14)
    entry = json.dumps({"status": "Pass", "vc": "v", "jobid": "a", "attempts": [], "submitted_time": None, "user": "u"})
    endless = entry[:-1] + ', "x": "' + "y" * (1 << 19)
    (result,) = lake.ingest(lake.put("log", f"[{entry}, {endless}, {entry.replace('a', 'b')}]"), format="philly-jobs")
    assert (result.jobs, result.duplicates) == (1, 0) and 1 <= result.rejects <= 10, result
