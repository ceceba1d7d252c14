"""Every format that Baton reads, a whole file of each, and what may befall its records and its bytes."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.traces.readers.agent_lines import EVENTS, agent_line
from tests.traces.readers.node_lists.oddities import BARE, GROUP, NODE
from tests.traces.readers.published.logs import DERIVED, GRAHAM, HELIOS, KALOS, PODS, ROWS, SEREN, SWF
from tests.traces.readers.sacct.test_shapes import fixed, job
from tests.traces.slurm.test_accounts import ASSOC, QOS
from traces.clusters import load
from traces.readers.published.swf import read_swf
from traces.readers.registry import READERS
from traces.slurm.accounts import read_associations, read_qos
from traces.slurm.conf import read_slurm_conf
from traces.slurm.reservations import read_reservations
from traces.store.folder import DataFolder

ROOT = Path(__file__).resolve().parents[3]
RECORDED = ROOT / "tests" / "fixtures" / "traces" / "slurm-22.05-recorded.psv.gz"
SAMPLE = ROOT / "data" / "sample"
CONF = ROOT / "tests" / "fixtures" / "fidelity" / "22.05" / "1" / "slurm.conf"


@dataclass(frozen=True)
class Base:
    """A file of one format: what stands before its records, these, what stands between and after them.

    `reads` takes a path where the file is none of the lake's; `by_line`: a record is a line, whatever stands in it.
    """

    head: bytes
    records: tuple[bytes, ...]
    mark: bytes  # between the fields of a record
    format: str = ""
    between: bytes = b"\n"
    foot: bytes = b"\n"
    reads: Callable[[Path], Any] | None = None
    by_line: bool = False

    def file(self, records: list[bytes]) -> bytes:
        return self.head + self.between.join(records) + self.foot


def _unpacked(path: Path) -> list[bytes]:
    data = path.read_bytes()
    return (gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data).splitlines()


def _lines(format: str, lines: list[bytes], mark: bytes, **other: Any) -> Base:
    return Base(lines[0] + b"\n", tuple(lines[1:]), mark, format, **other)


def _published(format: str, header: str, mark: bytes = b",") -> Base:
    """Good lines under the header, each with an id of its own."""
    good = [line for row in ROWS if row.header == header and row.job for line in row.lines.split("\n")]
    if format != "philly-derived":
        first = " " if format == "swf" else ","
        good = [f"{n}{first}{good[n % len(good)].split(first, 1)[1]}" for n in range(200)]
    return _lines(format, [line.encode() for line in [header, *good]], mark, by_line=True)


def _json() -> Base:
    tasks = {"job_id": 9, "task_id": 3, "task": ""}
    kinds: list[dict[str, Any]] = [{}, {"steps": []}, {"array": tasks, "user": "é", "flags": []}]
    records = [json.dumps(job(n % 2 == 0, job_id=n, **kinds[n % 3])).encode() for n in range(60)]
    meta = b'{"meta": {"Slurm": {}, "jobs": []}, "jobs": [\n'
    return Base(meta, tuple(records), b",", "sacct", b",\n", b'\n], "errors": []}\n')


def _node_json(key: str, record: dict[str, Any], first: str) -> Base:
    records = tuple(json.dumps({first: f"n{n}", **record}).encode() for n in range(60))
    return Base(b'{"meta": {}, "%s": [\n' % key.encode(), records, b",", "sinfo-json", b",\n", b'\n], "errors": []}\n')


def _philly() -> Base:
    lines = _unpacked(SAMPLE / "philly" / "cluster_job_log.gz")
    records = tuple(line.rstrip(b",") for line in lines[1:-1])
    return Base(b"[\n", records, b",", "philly-jobs", b",\n", b"\n]\n")


def _csv() -> Base:
    """A dump of sacct that a spreadsheet has written again."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(line.decode().split("|") for line in _unpacked(RECORDED))
    return _lines("sacct", text.getvalue().encode().splitlines(), b",")


def _fixed() -> Base:
    times = {"Submit": "2024-05-01T10:00:00", "Start": "2024-05-01T10:00:00", "End": "2024-05-01T11:00:00"}
    plain = {**times, "JobName": "x", "State": "COMPLETED", "NNodes": "2", "AllocTRES": "cpu=8"}
    head, dashes, *lines = fixed(*({**plain, "JobID": str(n)} for n in range(99))).encode().splitlines()
    return Base(head + b"\n" + dashes + b"\n", tuple(lines), b" ", "sacct")


def _slurm(text: str, mark: bytes, reads: Callable[[Path], Any], *, head: bool = False) -> Base:
    lines = text.encode().splitlines()
    return Base(lines[0] + b"\n" if head else b"", tuple(lines[head:]), mark, reads=reads)


def _clusters(path: Path) -> Any:
    return load(DataFolder(path.parent))


CLUSTERS = """[lab]
timezone = "America/Chicago"
nodes = 32
gpus_per_node = 8
nodes_by_date = [[2022-01-01, 30], [2023-01-01, 32]]
fit_from = 2022-01-01
fit_until = 2022-12-31T00:00:00Z
slurm_conf = "slurm.conf"
seeds = 5
[lab.quotas]
gpu = 64
"long name" = 8
[other]
folder = "raw"
"""
RESERVATION = (
    "ReservationName=r{n} StartTime=2024-05-01T10:00:00 EndTime=2024-05-02T10:00:00 Nodes=n[1-4] "
    "Users=alice Flags=MAINT"
)


@cache
def bases() -> dict[str, Base]:
    """Each format by its name."""
    sample = SAMPLE / "philly"
    nodes = [b"sn,cpu_milli,memory_mib,gpu,model", *(b"n%d,96000,786432,8,V100M32" % n for n in range(99))]
    sinfo = [b"NODELIST|CPUS|GRES|STATE", *(b"n%d|64|gpu:a100:4|idle" % n for n in range(99))]
    found = {
        "sacct": _lines("sacct", _unpacked(RECORDED), b"|"),
        "sacct generated": _lines("sacct", _unpacked(SAMPLE / "slurm" / "sacct-generated-1.psv.gz"), b"|"),
        "sacct --json": _json(),
        "sacct as CSV": _csv(),
        "sacct of fixed width": _fixed(),
        "philly-jobs": _philly(),
        "philly-gpu-util": _lines("philly-gpu-util", _unpacked(sample / "cluster_gpu_util.gz"), b",", by_line=True),
        "philly-cpu-util": _lines("philly-cpu-util", _unpacked(sample / "cluster_cpu_util.gz"), b",", by_line=True),
        "philly-mem-util": _lines("philly-mem-util", _unpacked(sample / "cluster_mem_util.gz"), b",", by_line=True),
        "philly-machines": _lines("philly-machines", _unpacked(sample / "cluster_machine_list"), b",", by_line=True),
        "philly-derived": _published("philly-derived", DERIVED),
        "helios": _published("helios", HELIOS),
        "acme: Seren": _published("acme", SEREN),
        "acme: Kalos": _published("acme", KALOS),
        "openb-pods": _published("openb-pods", PODS),
        "openb-nodes": _lines("openb-nodes", nodes, b",", by_line=True),
        "graham": _published("graham", GRAHAM),
        "swf": _published("swf", SWF, b" "),
        "agent": Base(
            b"", tuple(agent_line(e, time_s=n).encode() for n in range(99) for e in EVENTS), b",", "agent"
        ),
        "scontrol-nodes": Base(
            b"", tuple(BARE.replace("c01", f"c{n}").encode() for n in range(99)), b" ", "scontrol-nodes"
        ),
        "sinfo": _lines("sinfo", sinfo, b"|", by_line=True),
        "sinfo-json": _node_json("nodes", NODE, "name"),
        "sinfo-json of groups": _node_json("sinfo", GROUP, "port"),
        "swf, replayed": _slurm("\n".join([SWF, *["1 0 1 60 8 -1 -1 8 60" + " -1" * 9] * 50]), b" ", read_swf),
        "slurm.conf": _slurm(CONF.read_text(), b"=", read_slurm_conf),
        "sacctmgr qos": _slurm(QOS, b"|", read_qos, head=True),
        "sacctmgr assoc": _slurm(ASSOC, b"|", lambda path: read_associations(path, "lab"), head=True),
        "scontrol reservations": _slurm(
            "\n".join(RESERVATION.format(n=n) for n in range(9)), b" ", lambda path: read_reservations(path, "UTC")
        ),
        "clusters.toml": _slurm(CLUSTERS, b"=", _clusters),
    }  # fmt: skip
    assert {base.format for base in found.values() if not base.reads} == set(READERS)
    return found


BITS = (
    b"|", b"||", b"\n", b"\t", b"\r", b"\0", b"\xff", b"\x1f", b"[", b"]", b"{", b"}", b"\\", b"#", b";",
    b"9" * 20, b"-", b"+", b".", b"UNLIMITED", b"None", b"Unknown", b"INVALID", b"2024-02-30T10:00:00",
    "é工".encode(), b"=", b",", b'"', b" ", b"x" * 1024, b"\\ud800", b"\xed\xa0\x80", b"'", b"\x1b[31m",
)  # fmt: skip
# In place of a number, or of any word.
WORDS = (
    b"-1", b"0", b"1e999", b"NaN", b"Infinity", b"inf", b"9e18", b"1e-999", b"4611686018427387903",
    b"9223372036854775808", b"18446744073709551616", b"4294967295", b"1048577", b"1" * 5_000, "²".encode(),
    "٣".encode(), b"0x10", b"1_0",
    b"null", b"true", b"9999-12-31 23:59:59", b"0001-01-01T00:00:00", b"-123-01-01 00:00:00", b"+12345-01-01 00:00:00",
    b"1970-01-01", b"2106-02-07 00:00:00", b"99999999-00:00:00", b"n[000000000000-99999]", b"n[1-99999999999]",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, 7, -1, 1.5, True, "", "\ud800", "x", [], {}, [7], {"set": 1}, 1 << 63, 10**30, float("inf"), float("nan"),
    [[[]]], {"set": True, "infinite": False, "number": 1 << 62}, "\0", "2106-02-07 00:00:00",
    json.loads("[" * 300 + "]" * 300),
)  # fmt: skip


def mutated(rng: random.Random, record: bytes, base: Base) -> bytes:
    """One to three changes: of bytes, of words and fields, and of the structure of JSON."""
    for _ in range(rng.randint(1, 3)):
        record = rng.choice(_HOW[base.between != b"\n"])(rng, record, base.mark)
    return record


def _piece(rng: random.Random, record: bytes, _mark: bytes) -> bytes:
    """A bit put in, a piece cut out or doubled, a byte replaced."""
    at = rng.randrange(len(record) + 1)
    end = min(len(record), at + rng.randint(1, 40))
    put = rng.choice((rng.choice(BITS), b"", record[at:end] * 2, bytes([rng.randrange(256)])))
    return record[:at] + put + record[at if put in BITS else end :]


def _fields(rng: random.Random, record: bytes, mark: bytes) -> bytes:
    """The fields in another order, or one of them twice, or none."""
    fields = record.split(mark)
    at = rng.randrange(len(fields))
    how = rng.randrange(3)
    if how == 0:
        rng.shuffle(fields)
    return mark.join(fields if how == 0 else fields[:at] + fields[at + how - 1 :])


def _word(rng: random.Random, record: bytes, mark: bytes) -> bytes:
    """Another word in place of a field."""
    fields = record.split(mark)
    fields[rng.randrange(len(fields))] = rng.choice(WORDS)
    return mark.join(fields)


def _number(rng: random.Random, record: bytes, _mark: bytes) -> bytes:
    """Another word in place of a number."""
    digits = [n for n, byte in enumerate(record) if 48 <= byte < 58 and (n == 0 or not 48 <= record[n - 1] < 58)]
    if not digits:
        return record
    at = end = rng.choice(digits)
    while end < len(record) and 48 <= record[end] < 58:
        end += 1
    return record[:at] + rng.choice(WORDS) + record[end:]


def _structure(rng: random.Random, record: bytes, _mark: bytes) -> bytes:
    """A value of a JSON object replaced, taken out, or put under another key."""
    try:
        value = json.loads(record)
    except (ValueError, RecursionError):
        return record
    places: list[tuple[Any, Any]] = []
    seek = [value]
    while seek:
        node = seek.pop()
        for key in node if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ():
            places.append((node, key))
            seek.append(node[key])
    if not places:
        return record
    node, key = rng.choice(places)
    how = rng.randrange(3)
    old = node.pop(key) if how == 1 else node[key]
    if how == 0:
        node[key] = rng.choice(VALUES)
    elif how == 2:
        other, name = rng.choice(places)
        if name in other if isinstance(other, dict) else name < len(other):
            other[name] = json.loads(json.dumps(old))
    return json.dumps(value).encode()


_HOW = {
    False: (_piece, _piece, _fields, _word, _number, _number),
    True: (_piece, _word, _number, _structure, _structure),
}


def damaged(rng: random.Random, data: bytes) -> tuple[str, bytes]:
    """(what befell the file, its bytes)."""
    packed = gzip.compress(data, compresslevel=1, mtime=0)
    at = rng.randrange(len(packed))
    half = rng.randrange(len(data))
    kinds: dict[str, Callable[[], bytes]] = {
        "gzip": lambda: packed,
        "gzip, cut short": lambda: packed[:at],
        "gzip, a byte changed": lambda: packed[:at] + bytes([packed[at] ^ (1 << rng.randrange(8))]) + packed[at + 1 :],
        "gzip, garbage behind": lambda: packed + rng.randbytes(99),
        "gzip, zeros behind": lambda: packed + b"\0" * 99,
        "zstd": lambda: pa.compress(data, "zstd", asbytes=True),
        "zstd, cut short": lambda: pa.compress(data, "zstd", asbytes=True)[:at],
        "cut short": lambda: data[:half],
        "twice": lambda: data + data,
        "UTF-16": lambda: data.decode("latin-1").encode("utf-16"),
        "a byte order mark": lambda: b"\xef\xbb\xbf" + data,
        "CR LF": lambda: data.replace(b"\n", b"\r\n"),
        "NUL bytes": lambda: data[:half] + b"\0" * 4096 + data[half:],
        "random bytes": lambda: data[:half] + rng.randbytes(99) + data[half:],
    }
    name = rng.choice(list(kinds))
    return name, kinds[name]()
