"""Edit a slurm.conf: in its text every other line, comment and value stays as it is."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from traces.errors import InputError
from traces.slurm.conf import RECORDS, SlurmConf, filled
from traces.slurm.conf_lines import COMMENT, CONTINUES, PAIR, Pair, quoted_line

OPTIONS = "SchedulerParameters"
OLD_NAMES = {"max_job_bf": "bf_max_job_test"}  # of options, as Slurm still reads them
DIFF = "diff"  # place of an edit, in messages
_PLAIN = re.compile(r"[A-Za-z0-9_.:/+-]+")  # values that we write


@dataclass(frozen=True)
class ConfEdit:
    """One value of slurm.conf: of the file, of a partition, or with `is_option` of SchedulerParameters."""

    key: str
    value: str
    partition: str | None = None
    is_option: bool = False

    @property
    def text(self) -> str:
        """The edit as a line of slurm.conf; of an option, the parameter that holds it."""
        own = f"{self.key}={self.value}"
        if self.is_option:
            return f"{OPTIONS}={own}"
        return own if self.partition is None else f"PartitionName={self.partition} {own}"


@dataclass(frozen=True)
class _Found:
    """A `Key=Value` of the text: where its value begins and ends in it."""

    key: str
    value: str
    begin: int
    end: int


def applied(conf_text: str, edits: Iterable[ConfEdit]) -> str:
    """Return the text of slurm.conf with the edits made in their order.

    A parameter that stands there more than once is changed where it counts, at its last place; a missing one is added
    at the end of the file, so that it also counts after an `Include`. Raises InputError for a partition that the text
    does not declare, and for a value that slurm.conf cannot hold.
    """
    for edit in edits:
        for word in (edit.key, edit.value):
            if _PLAIN.fullmatch(word) is None:
                raise InputError(f"slurm.conf cannot hold {quoted_line(word)}: write a name, a number or a time")
        conf_text = _with_edit(conf_text, edit)
    return conf_text


def edited_conf(conf: SlurmConf, edits: Iterable[ConfEdit]) -> SlurmConf:
    """Return the settings as `read_slurm_conf` reads them from the edited text. Raises InputError."""
    for edit in edits:
        own = {edit.key.lower(): Pair(edit.key, edit.value, DIFF)}
        if edit.is_option:
            conf = replace(conf, options=filled(conf.options, own))
        elif edit.partition is None:
            conf = filled(conf, own)
        else:
            rows = (filled(one, own) if one.name == edit.partition else one for one in conf.partitions)
            conf = replace(conf, partitions=tuple(rows))
    return conf


def unified(before: str, after: str, name: str = "slurm.conf") -> str:
    """Return the unified diff of two texts of one file, as `patch` reads it; empty if they are equal."""
    return "".join(difflib.unified_diff(_lines(before), _lines(after), name, name))


def _lines(text: str) -> list[str]:
    """Lines with their ends; the last one says that it has none, as `diff` does."""
    *whole, last = text.split("\n")
    return [f"{line}\n" for line in whole] + ([f"{last}\n\\ No newline at end of file\n"] if last else [])


def _with_edit(text: str, edit: ConfEdit) -> str:
    lines = [list(line) for line in _logical_lines(text)]
    if edit.partition is not None:
        return _of_partition(text, lines, edit)
    key = OPTIONS if edit.is_option else edit.key
    own = [pair for line in lines for pair in _before_record(line) if pair.key.lower() == key.lower()]
    if own:
        value = _merged(own[-1].value, edit) if edit.is_option else edit.value
        return _spliced(text, own[-1], value)
    is_open = text and not text.endswith("\n")
    whole = text.removesuffix("\n").rpartition("\n")[2]
    continues = CONTINUES.search(COMMENT.sub("", whole)) is not None
    return f"{text}{chr(10) * (bool(is_open) + continues)}{edit.text}\n"


def _of_partition(text: str, lines: list[list[_Found]], edit: ConfEdit) -> str:
    """The last line of the partition overrides the others, and the DEFAULT lines."""
    records = []
    for line in lines:
        record = line[len(_before_record(line)) :]
        if record and record[0].key.lower() == "partitionname" and record[0].value == edit.partition:
            records.append(record)
    if not records:
        raise InputError(
            f"no line PartitionName={edit.partition} in this slurm.conf; if an included file declares it, edit that"
        )
    same = [pair for pair in records[-1][1:] if pair.key.lower() == edit.key.lower()]
    for pair in reversed(same):
        text = _spliced(text, pair, edit.value)
    if same:
        return text
    last = records[-1][-1]
    end = last.end + (text[last.end : last.end + 1] == '"')
    return f"{text[:end]} {edit.key}={edit.value}{text[end:]}"


def _before_record(line: list[_Found]) -> list[_Found]:
    """The pairs of a line that belong to the whole file: those before a node, partition or other record."""
    first = next((at for at, pair in enumerate(line) if pair.key.lower() in RECORDS), len(line))
    return line[:first]


def _merged(value: str, edit: ConfEdit) -> str:
    """The list of options with the edited one at its first place, or at the end."""
    kept: list[str] = []
    written = f"{edit.key}={edit.value}"
    for part in value.split(","):
        name = part.partition("=")[0].strip().lower()
        if OLD_NAMES.get(name, name) != edit.key:
            kept.append(part)
        elif written not in kept:
            kept.append(written)
    return ",".join(part for part in (kept if written in kept else [*kept, written]) if part.strip())


def _spliced(text: str, pair: _Found, value: str) -> str:
    return text[: pair.begin] + value + text[pair.end :]


def _logical_lines(text: str) -> Iterator[Iterator[_Found]]:
    """Yield the pairs of each logical line: comments left out, continued lines joined (`traces.slurm.conf_lines`)."""
    places: list[int] = []  # of each character of the logical line
    at, physical = 0, text.split("\n")
    for number, raw in enumerate(physical, start=1):
        line = COMMENT.sub("", raw)
        continues = CONTINUES.search(line) is not None and number < len(physical)
        kept = line.rstrip()[:-1] if continues else line
        places += range(at, at + len(kept))
        at += len(raw) + 1
        if not continues:
            yield _pairs(text, places)
            places = []


def _pairs(text: str, places: list[int]) -> Iterator[_Found]:
    # Slurm reads "\#" as "#"
    shown = [at for at in places if not (text[at] == "\\" and text[at + 1 : at + 2] == "#")]
    line, at = "".join(text[place] for place in shown), 0
    while match := PAIR.match(line, at):
        group = 2 if match[2] is not None else 3
        begin, end = match.span(group)
        # The end is behind the last character, so that a continued value is replaced whole.
        inside = (shown[begin], shown[end - 1] + 1) if end > begin else (shown[begin], shown[begin])
        yield _Found(match[1], match[group], *inside)
        at = match.end()
