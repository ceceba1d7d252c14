"""Edit a slurm.conf: in its text every other line, comment and value stays as it is."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from traces.errors import InputError
from traces.slurm.conf import RECORDS, PartitionConf, SlurmConf, filled
from traces.slurm.conf_lines import COMMENT, CONTINUES, PAIR, Pair, quoted_line
from traces.slurm.text import expand_nodes

OPTIONS = "SchedulerParameters"
OLD_NAMES = {"max_job_bf": "bf_max_job_test"}  # of options, as Slurm still reads them
DIFF = "diff"  # place of an edit, in messages
_PLAIN = re.compile(r"[A-Za-z0-9_.:/+-]+")  # values that we write
_NODE_LIST = re.compile(r"[A-Za-z0-9_.:/+,\[\]-]+")
NODES, NODE, DOWN = "Nodes", "NodeName", "DownNodes"  # keys whose values are node lists
_OF_ONE_HOST = {"nodename", "nodeaddr", "nodehostname", "bcastaddr", "port", "state", "reason", "comment"}


class LineOfIncludedFile(InputError):
    """The text of slurm.conf does not hold the line to edit."""


@dataclass(frozen=True)
class ConfEdit:
    """One value of slurm.conf: of the file, of a partition, or with `is_option` of SchedulerParameters.

    Three keys hold node lists. `Nodes` adds nodes to its partition, which `is_new` adds to the file; `NodeName` adds
    nodes like the node `like`; `DownNodes` takes nodes out of service.
    """

    key: str
    value: str
    partition: str | None = None
    is_option: bool = False
    like: str = ""
    is_new: bool = False

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
    at the end of the file, so that it also counts after an `Include`. Raises LineOfIncludedFile for a partition or node
    that the text does not declare, and InputError for a value that slurm.conf cannot hold.
    """
    for edit in edits:
        plain = _NODE_LIST if edit.key in (NODES, NODE, DOWN) else _PLAIN
        for word in (edit.key, edit.value):
            if plain.fullmatch(word) is None:
                raise InputError(f"slurm.conf cannot hold {quoted_line(word)}: write a name, a number or a time")
        conf_text = _with_edit(conf_text, edit)
    return conf_text


def edited_conf(conf: SlurmConf, edits: Iterable[ConfEdit]) -> SlurmConf:
    """Return the settings as `read_slurm_conf` reads them from the edited text. Raises InputError."""
    for edit in edits:
        own = {edit.key.lower(): Pair(edit.key, edit.value, DIFF)}
        if edit.key in (NODES, NODE, DOWN):
            conf = _with_nodes(conf, edit)
        elif edit.is_option:
            conf = replace(conf, options=filled(conf.options, own))
        elif edit.partition is None:
            conf = filled(conf, own)
        else:
            rows = (filled(one, own) if one.name == edit.partition else one for one in conf.partitions)
            conf = replace(conf, partitions=tuple(rows))
    return conf


def _with_nodes(conf: SlurmConf, edit: ConfEdit) -> SlurmConf:
    names = expand_nodes(edit.value)
    if edit.key == DOWN:
        return replace(conf, nodes=tuple(replace(n, state="down") if n.name in names else n for n in conf.nodes))
    if edit.key == NODE:  # its line is the one above that of `like`
        like = next(node for node in conf.nodes if node.name == edit.like)
        at = next(row for row, node in enumerate(conf.nodes) if node.where == like.where)
        more = (replace(like, name=name, where=DIFF, state="unknown") for name in names)
        return replace(conf, nodes=(*conf.nodes[:at], *more, *conf.nodes[at:]))
    if edit.is_new:
        new = PartitionConf(edit.partition or "", DIFF, tuple(names), over_time_limit_s=conf.over_time_limit_s)
        return replace(conf, partitions=(new, *conf.partitions))
    rows = (
        replace(one, nodes=tuple(dict.fromkeys((*one.nodes, *names)))) if one.name == edit.partition else one
        for one in conf.partitions
    )
    return replace(conf, partitions=tuple(rows))


def unified(before: str, after: str, name: str = "slurm.conf") -> str:
    """Return the unified diff of two texts of one file, as `patch` reads it; empty if they are equal."""
    return "".join(difflib.unified_diff(_lines(before), _lines(after), name, name))


def _lines(text: str) -> list[str]:
    """Lines with their ends; the last one says that it has none, as `diff` does."""
    *whole, last = text.split("\n")
    return [f"{line}\n" for line in whole] + ([f"{last}\n\\ No newline at end of file\n"] if last else [])


def _with_edit(text: str, edit: ConfEdit) -> str:
    lines = [list(line) for line in _logical_lines(text)]
    if edit.key == NODE or edit.is_new:
        return _with_line(text, lines, edit)
    if edit.key == NODES:
        return _with_more_nodes(text, lines, edit)
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


def _with_line(text: str, lines: list[list[_Found]], edit: ConfEdit) -> str:
    """Add the line of new nodes above that of the node they are like, or a partition's above that of the first one.

    There the same DEFAULT lines count for nodes, and none for the partition.
    """
    if edit.is_new:
        records, words = _records(lines, "partitionname"), [edit.text]
    else:
        records = [one for one in _records(lines, "nodename") if edit.like in expand_nodes(one[0].value)]
        same = [pair for record in records for pair in record if pair.key.lower() not in _OF_ONE_HOST]
        words = [edit.text, *(f"{pair.key}={_quoted(pair.value)}" for pair in same)]
    if not records:
        what = "PartitionName" if edit.is_new else f"NodeName with {edit.like}"
        raise LineOfIncludedFile(f"no line {what} in this slurm.conf; if an included file declares it, edit that")
    at = text.rfind("\n", 0, records[0][0].begin) + 1
    return f"{text[:at]}{' '.join(words)}\n{text[at:]}"


def _quoted(value: str) -> str:
    value = value.replace("#", "\\#")
    return f'"{value}"' if re.search(r"\s", value) or not value else value


def _with_more_nodes(text: str, lines: list[list[_Found]], edit: ConfEdit) -> str:
    """Add to the nodes of the partition's last line; where none has a list, to that of the DEFAULT lines."""
    own = _of_name(lines, edit)
    lists = [pair for record in own for pair in record if pair.key.lower() == NODES.lower()]
    inherited = [
        pair
        for record in _records(lines, "partitionname")
        if record[0].value.upper() == "DEFAULT" and record[0].begin < own[-1][0].begin
        for pair in record
        if pair.key.lower() == NODES.lower()
    ]
    present = [*inherited, *lists][-1].value if inherited or lists else ""
    if "ALL" in present.upper().split(","):
        return text
    value = ",".join(part for part in (present, edit.value) if part)
    return _spliced(text, lists[-1], value) if lists else _of_partition(text, lines, replace(edit, value=value))


def _records(lines: list[list[_Found]], kind: str) -> list[list[_Found]]:
    """The records of one kind, each from its name on."""
    found = (line[len(_before_record(line)) :] for line in lines)
    return [record for record in found if record and record[0].key.lower() == kind]


def _of_name(lines: list[list[_Found]], edit: ConfEdit) -> list[list[_Found]]:
    """The lines of the edited partition."""
    records = [one for one in _records(lines, "partitionname") if one[0].value == edit.partition]
    if not records:
        raise LineOfIncludedFile(
            f"no line PartitionName={edit.partition} in this slurm.conf; if an included file declares it, edit that"
        )
    return records


def _of_partition(text: str, lines: list[list[_Found]], edit: ConfEdit) -> str:
    """The last line of the partition overrides the others, and the DEFAULT lines."""
    records = _of_name(lines, edit)
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
