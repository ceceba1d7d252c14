"""Reader of Slurm `sacct` dumps: any delimiter, with a header or without one (`--fields`), fixed width, and `--json`.

The special cases come from Slurm's manual pages and sources; the tests list them. Blocks are read two at a time, so
that memory does not grow with the dump: `blocks` cuts the dump, `lines` splits lines, `typed` types the columns,
`spill` keeps the rows on disk until all is read, `jobs` folds them into jobs and attempts.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from traces.clusters import ClusterSettings
from traces.errors import InputError
from traces.progress import say
from traces.readers.common import HEAD_BYTES, Parsed, RawFile, Reject, rejects_frame, shown
from traces.readers.sacct import blocks as sacct_blocks
from traces.readers.sacct import columns as sacct_columns
from traces.readers.sacct import csv as sacct_csv
from traces.readers.sacct import json as sacct_json
from traces.readers.sacct import layout as sacct_layout
from traces.readers.sacct import lines as sacct_lines
from traces.readers.sacct import mend as sacct_mend
from traces.readers.sacct import ran as sacct_ran
from traces.readers.sacct import typed as sacct_typed
from traces.readers.sacct.blocks import SacctBlock
from traces.readers.sacct.fields import fields_of
from traces.readers.sacct.jobs import fold
from traces.readers.sacct.json import COLUMNS
from traces.readers.sacct.layout import Layout
from traces.readers.sacct.spill import Spill, SpilledBatch

BLOCK_BYTES = 1 << 24
MOST_NAMED = 10  # texts in one message
THREADS = 2  # polars uses every core for part of a block, but Python and numpy only one: two blocks keep two cores busy
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass
class Piece:
    """The result of one block: its typed rows in the spill, and its rejects; both count lines from 0.

    `before`: number of lines (or JSON records) of the file before the block. `clusters`: the clusters that its column
    Cluster names, each with a line. `whole_codes`: whether it shows that the dump prints exit codes whole. `cut`: texts
    that a fixed width cut short, by column. `unknown_states`, `unknown_flags`: those that Baton does not know, as
    printed. `unproven`: versions of `sacct --json`, see `sacct_json.Records`.
    """

    batch: SpilledBatch
    before: int
    rows: int
    rejects: list[Reject]
    slow: int
    clusters: dict[str, int]
    whole_codes: bool
    unknown_states: Counter[str]
    unknown_flags: Counter[str]
    cut: Counter[str] = field(default_factory=Counter)
    unproven: list[str] = field(default_factory=list)


Work = Callable[[Spill, int], Piece]


class Sacct:
    """The reader of `sacct`."""

    name = "sacct"
    version = 7

    def recognises(self, file: RawFile, head: bytes) -> bool:
        """Return whether one of the first lines is a header of sacct, or `--fields` is given for a text file."""
        if sacct_json.recognises(head):
            return True
        lines = _lines(head)
        tried = range(min(len(lines), sacct_layout.MOST_BEFORE))
        if any(sacct_layout.announced(lines, at, file.delimiter) for at in tried):
            return True
        return file.fields is not None and b"\0" not in head

    def read(self, file: RawFile) -> Parsed:
        """Read all records of the file and write them to `file.tables` as they are folded.

        Raises InputError for a missing column, a file without a whole record, and a dump of several clusters.
        """
        if file.tables is None or file.folder is None:
            raise ValueError("the sacct reader needs file.tables and file.folder")
        parsed, jobs = Parsed(), self._jobs(file)
        rejected = next(iter(self._before_header(file, parsed)), None)
        spill = Spill(file.folder / "spill")
        spill.folder.mkdir()
        clusters: dict[str, int] = {}
        whole_codes, cut, unknown_states, unknown_flags = False, Counter[str](), Counter[str](), Counter[str]()
        unproven: list[str] = []
        layout = self.layout(file)
        unknown_columns = [] if layout is None else [name for name in layout.columns if name not in sacct_columns.NAMES]
        with ThreadPoolExecutor(THREADS) as pool:
            for piece in _in_order(pool, lambda numbered: numbered[1](spill, numbered[0]), enumerate(jobs)):
                rejects = [Reject(r.line + piece.before + 1, r.reason, r.raw) for r in piece.rejects]
                file.tables.write("rejects", rejects_frame(rejects))
                rejected = rejected or next(iter(rejects), None)
                parsed.rejected += len(rejects)
                parsed.slow += piece.slow
                parsed.records += piece.rows + len(rejects)
                piece.batch.first = piece.before + 1
                spill.batches.append(piece.batch)
                clusters = {name: line + piece.before + 1 for name, line in piece.clusters.items()} | clusters
                whole_codes |= piece.whole_codes
                cut += piece.cut
                unknown_states += piece.unknown_states
                unknown_flags += piece.unknown_flags
                unproven += piece.unproven
            _check_one_cluster(file, clusters)
            _say(file, unknown_columns, "columns that Baton does not know are not read", "is it a newer Slurm?")
            _say(file, cut, "texts cut short by their column's width are not read", "use sacct -P")
            _say(file, unknown_states, "states that Baton does not know are read as UNKNOWN", "is it a newer Slurm?")
            _say(file, unknown_flags, "flags that Baton does not know are in jobs.other_flags", "is it a newer Slurm?")
            _say(file, unproven, "no test has read JSON of these versions", f"proven are {sacct_json.proven()}")
            if parsed.records == parsed.rejected + len(parsed.rejects):
                why = "the file holds none"
                if rejected:
                    why = f"{rejected.reason} (line {rejected.line}){sacct_mend.remedy(rejected)}"
                raise InputError(f"{file.path}: no record could be read: {why}")
            folded = partial(_folded, whole_codes=whole_codes)
            for part in _in_order(pool, folded, spill.folds()):
                for name, frame in part.tables.items():
                    file.tables.write(name, frame)
                for count in ("allocations", "steps", "duplicates", "jobs", "attempts"):
                    setattr(parsed, count, getattr(parsed, count) + getattr(part, count))
        spill.folder.rmdir()
        return parsed

    @staticmethod
    def layout(file: RawFile) -> Layout | None:
        """Infer the layout of the file from its first lines; None for JSON.

        Raises InputError if it has no header and `--fields` do not fit, and for a missing column.
        """
        head = file.head()
        if sacct_json.recognises(head):
            return None
        layout = sacct_layout.find_layout(file, _lines(head))
        sacct_columns.check_needed(list(layout.columns), f"{file.path}:{max(layout.first, 1)}")
        return layout

    @staticmethod
    def _jobs(file: RawFile) -> Iterator[Work]:
        """Return the work for each block, as functions. Raises the same InputErrors as `read`."""
        layout = Sacct.layout(file)
        if layout is None:
            return (partial(_json_piece, batch, file.settings) for batch in sacct_json.batches(file))
        pieces, delimiter = file.pieces(BLOCK_BYTES), file.delimiter
        if layout.delimiter == ",":
            layout = replace(layout, delimiter=sacct_csv.STAND_IN, carriage=False)
            pieces, delimiter = sacct_csv.unquoted(pieces), None
        blocks = sacct_blocks.blocks(pieces, layout, str(file.path), delimiter)
        return (partial(_text_piece, block, file.settings) for block in blocks)

    @staticmethod
    def _before_header(file: RawFile, parsed: Parsed) -> list[Reject]:
        """Return the rejects for text before the header; a count of rows is not rejected."""
        layout = Sacct.layout(file)
        if layout is None:
            return []
        lines = _lines(file.head())
        header = layout.first - (2 if sacct_layout.fixed_header(lines, layout.first - 2) else 1)
        for at, text in enumerate(lines[: max(header, 0)]):
            if text.strip() and not text.strip().isdecimal():
                parsed.rejects.append(Reject(at + 1, "text before the header", text))
        parsed.records += len(parsed.rejects)
        return parsed.rejects


def _lines(head: bytes) -> list[str]:
    """Return the whole lines of the file's first bytes."""
    text = head.decode("utf-8", errors="replace").removeprefix("\ufeff")
    lines = text.split("\n")
    if lines[-1] == "" or (len(head) >= HEAD_BYTES and len(lines) > 1):
        lines.pop()
    return lines


def _in_order(pool: ThreadPoolExecutor, work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Apply `work` to each item in the pool's threads, some items ahead; yield the results in order."""
    ahead: deque[Future[Result]] = deque()
    try:
        for item in items:
            ahead.append(pool.submit(work, item))
            if len(ahead) > THREADS:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
    finally:
        for future in ahead:
            future.cancel()


def _check_one_cluster(file: RawFile, clusters: dict[str, int]) -> None:
    """Raise InputError if records of several clusters are in the file: their ids would be taken for the same jobs."""
    if len(clusters) > 1:
        (first, line), (second, other), *_ = sorted(clusters.items(), key=lambda named: named[1])
        raise InputError(
            f"{file.path}:{other}: a record of cluster {shown(second)}, but line {line} is of {shown(first)}: "
            "give each cluster a file of its own (sacct --clusters=NAME) and ingest it with its own --cluster"
        )


def _say(file: RawFile, found: Counter[str] | list[str], what: str, advice: str) -> None:
    """Say in one line which texts of the file were not read, with their numbers if they are counted."""
    if not found:
        return
    if isinstance(found, Counter):
        texts = [f"{shown(text)[1:-1]} ({number:,})" for text, number in found.most_common(MOST_NAMED)]
    else:
        texts = [shown(text)[1:-1] for text in found[:MOST_NAMED]]
    say(f"{file.shown or file.path}: {what}: {', '.join(texts)}: {advice}")


def _counted(rows: pl.DataFrame, kept: pl.Series, column: str) -> Counter[str]:
    """Count the words of a column, which commas separate, in the rows that are kept."""
    if rows[column].null_count() == len(rows):
        return Counter()
    return Counter(word for text in rows[column].filter(kept).drop_nulls() for word in text.split(","))


def _folded(portion: tuple[pl.DataFrame, pl.DataFrame, bool], whole_codes: bool) -> Parsed:
    allocations, steps, single = portion
    return fold(*(sacct_ran.with_exit_codes(rows, whole=whole_codes) for rows in (allocations, steps)), single=single)


def _piece(
    spill: Spill, number: int, rows: pl.DataFrame, kept: pl.Series, before: int, rejects: list[Reject], slow: int,
    columns: Sequence[str],
) -> Piece:  # fmt: skip
    """Spill the rows of a block that are kept."""
    named = rows.select("printed_cluster", "line").filter(kept & pl.col("printed_cluster").is_not_null())
    first = named.group_by("printed_cluster").agg(pl.col("line").min())
    whole = sacct_ran.prints_whole_codes(columns, rows["exit_code"].filter(kept))
    states, flags = (_counted(rows, kept, name) for name in ("unknown_state", "unknown_flags"))
    batch = spill.put(number, rows.drop("printed_cluster", "unknown_state", "unknown_flags"), kept)
    return Piece(batch, before, int(kept.sum()), rejects, slow, dict(first.iter_rows()), whole, states, flags)


def _text_piece(block: SacctBlock, settings: ClusterSettings, spill: Spill, number: int) -> Piece:
    """Read a block of lines."""
    lines = sacct_lines.split(block.data, block.layout)
    rows, kept, rejects, slow = records(lines, block.layout, settings)
    piece = _piece(spill, number, rows, kept, block.before, rejects, slow, block.layout.columns)
    piece.cut.update({name: int(cut.sum()) for name, cut in lines.cut.items() if cut.any()})
    return piece


def _json_piece(records: sacct_json.Records, settings: ClusterSettings, spill: Spill, number: int) -> Piece:
    """Read a batch of JSON records."""
    fields, line = fields_of(records.frame.drop("line")), records.frame["line"].to_numpy()
    rows, valid = sacct_typed.typed(fields, line, settings)
    rejects = list(records.rejects)
    for n, at, why in _refused(rows, valid):
        values = records.frame.row(n)
        odd = sacct_columns.odd_value((name, text or "") for name, text in zip(COLUMNS, values, strict=False))
        rejects.append(Reject(at, odd or why or "a value has the wrong form", str(values)))
    piece = _piece(spill, number, rows, valid, records.before, rejects, 0, COLUMNS)
    return replace(piece, whole_codes=True, unproven=records.unproven)


def _refused(rows: pl.DataFrame, valid: pl.Series) -> list[tuple[int, int, str | None]]:
    """Return (row, line, the value out of bounds or None) of the rows that are not valid."""
    at = (~valid).arg_true()
    refused = rows[at]
    return list(zip(at.to_list(), refused["line"].to_list(), sacct_typed.out_of_bounds(refused).to_list(), strict=True))


def records(
    lines: sacct_lines.Lines, layout: Layout, settings: ClusterSettings
) -> tuple[pl.DataFrame, pl.Series, list[Reject], int]:
    """Read the lines of a block into (typed rows, which of them are kept, rejects, number of lines not read in bulk).

    Lines count from 0. Rows that are not kept stay in the frame, because a copy without them would be slow.
    """
    rows, kept = sacct_typed.typed(lines.fields, lines.numbers, settings, lines.cut)
    clean = lines.whole.copy()
    clean[rows["line"].filter(~kept).to_numpy()] = False
    forged = _forged(rows, kept, lines, layout)
    kept &= ~rows["line"].is_in([reject.line for reject in forged])
    if clean.all():
        return rows, kept, forged, len(forged)
    slow = int((~clean).sum())
    if layout.widths:
        return rows, kept, _fixed_rejects(lines, clean, layout), slow
    mender = sacct_mend.Mender(lines.line, clean, layout)
    mender.run()
    if mender.taken:
        kept &= ~rows["line"].is_in(list(mender.taken))
    if mender.tails and layout.columns[-1] == "JobName":
        tails = pl.DataFrame({"line": list(mender.tails), "tail": list(mender.tails.values())})
        name = pl.concat_str(pl.col("job_name").fill_null(""), pl.col("tail"))
        rows = (
            rows.join(tails, on="line", how="left", maintain_order="left")
            .with_columns(pl.coalesce(name, "job_name").alias("job_name"))
            .drop("tail")
        )
    rejects = mender.rejects
    if mender.mended:
        mended, odd = _mended(mender, layout, settings)
        rows = pl.concat([rows, mended])  # appended unsorted, because sorting would take a fifth of a block's time
        kept = kept.extend(pl.repeat(True, len(mended), eager=True))
        rejects = [*rejects, *odd]
    return rows, kept, sorted([*rejects, *forged], key=lambda reject: reject.line), slow


def _forged(rows: pl.DataFrame, kept: pl.Series, lines: sacct_lines.Lines, layout: Layout) -> list[Reject]:
    """Reject lines that look like whole records and more likely are text of the record before them.

    This is possible only if the last column is user text, in which a newline and a forged record may stand. A line is
    rejected if its job id, and its SLUID if the dump has them, is out of order, unless another line shows an earlier
    run of the same job that did not complete, or a task of the same array.
    """
    if layout.columns[-1] not in sacct_columns.BY_USERS or layout.trailing or layout.widths:
        return []
    id_ = pl.coalesce("array_job_id", "job_id_raw").alias("id")
    ids = rows.select("line", "state", "sluid", "array_job_id", pl.col("job_id_raw").alias("raw"), id_).filter(kept)
    if ids.is_empty() or ids["raw"].null_count():
        return []
    odd = ids.filter(sacct_mend.out_of_order([ids["raw"].to_numpy(), ids["id"].to_numpy()]))
    if odd.is_empty():
        return []
    others = ids.join(odd.select("line"), on="line", how="anti")
    others = others.filter((pl.col("state") != "COMPLETED") | pl.col("array_job_id").is_not_null())
    odd = odd.join(others.select("id").unique(), on="id", how="anti")
    if odd["sluid"].null_count() < len(odd):
        order = ids["sluid"].fill_null("").rank("dense").cast(pl.Int64).to_numpy()
        known = ids.filter(~sacct_mend.out_of_order([order])).select("line", "sluid").drop_nulls()
        shared = ids.select("sluid", "raw").unique().group_by("sluid").len().filter(pl.col("len") > 1)
        odd = odd.join(known.join(shared, on="sluid", how="anti"), on="line", how="anti")
    return [
        Reject(line, f"record {number} may be text of the record before it: its id is out of order", lines.line(line))
        for line, number in odd.select("line", "id").iter_rows()
    ]


def _mended(mender: sacct_mend.Mender, layout: Layout, settings: ClusterSettings) -> tuple[pl.DataFrame, list[Reject]]:
    """Return the repaired records as typed rows, and rejects for those with a value out of range."""
    read = layout.read
    names = [layout.columns[n] for n in read]
    texts = [[fields[n] or None for n in read] for fields in mender.mended.values()]
    frame = pl.DataFrame(texts, schema=dict.fromkeys(names, pl.String), orient="row")
    rows, valid = sacct_typed.typed(fields_of(frame), np.array(list(mender.mended)), settings)
    odd = [
        Reject(at, why or "a value is out of range", layout.delimiter.join(mender.mended[at]))
        for _, at, why in _refused(rows, valid)
    ]
    return rows.filter(valid), odd


def _fixed_rejects(lines: sacct_lines.Lines, clean: NDArray[np.bool_], layout: Layout) -> list[Reject]:
    """Return rejects for lines of fixed width that are not records."""
    length = sum(layout.widths) + len(layout.widths)
    rejects = []
    for at in np.flatnonzero(~clean).tolist():
        text = lines.line(at)
        if not text.strip():
            continue
        why = "a required column is cut short or has the wrong form"
        if not lines.whole[at]:
            why = f"{len(text.encode())} bytes instead of {length}: a line break in user text, or cut short"
        rejects.append(Reject(at, why, text))
    return rejects
