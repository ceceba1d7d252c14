"""The text of Slurm's configuration files: lines, comments, continuations, `Include`, and the Key=Value pairs in them.

`traces.slurm.conf` interprets the keys. The rules are those of Slurm's own parser (slurm.conf(5), "DESCRIPTION";
src/common/parse_config.c).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from traces.errors import InputError
from traces.given_paths import bytes_of

DEEPEST_INCLUDE = 50  # nested includes; more is an error

PAIR = re.compile(r'\s*([A-Za-z0-9_.]+)\s*=\s*(?:"([^"]*)"|(\S+))(?=\s|$)')
_RECORD_KEY = re.compile(r"(?:^|\s)([A-Za-z][A-Za-z0-9_:/]*)=")
COMMENT = re.compile(r"(?<!\\)#.*")
CONTINUES = re.compile(r"(?<!\\)(?:\\\\)*\\\s*$")


@dataclass(frozen=True)
class Pair:
    """One `Key=Value` and its place as file:line (the first line of a continued one)."""

    key: str
    value: str
    where: str


def quoted_line(text: str) -> str:
    """Return the text in quotes for a message, cut to 80 characters."""
    return repr(text if len(text) <= 80 else f"{text[:79]}…")


def read_text(path: Path) -> str:
    """Read a file that a person wrote or a Slurm command printed. Raises InputError where it cannot be read."""
    try:
        text = bytes_of(path).decode("utf-8", errors="surrogateescape")
    except FileNotFoundError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    if "\0" in text:
        raise InputError(f"{path}: contains NUL bytes: not a text file")
    return text


def read_lines(path: Path) -> list[list[Pair]]:
    """Read the pairs of each line of a configuration file and of its included files, in order.

    A `#` without a backslash before it begins a comment; a backslash at the end continues a line; a value with spaces
    is quoted. A relative `Include` is looked up in the folder of `path`; `%c` in its name is the ClusterName read so
    far. Raises InputError (file:line) for a file that cannot be read or includes itself, and for text that is not
    Key=Value.
    """
    lines: list[list[Pair]] = []
    _read_into(lines, path, path.parent, [])
    return lines


def _read_into(lines: list[list[Pair]], path: Path, folder: Path, above: list[Path]) -> None:
    for number, text in _logical_lines(read_text(path)):
        where = f"{path}:{number}"
        include = re.fullmatch(r"\s*include\s+(\S.*?)\s*", text, re.IGNORECASE)
        if include is None:
            lines.append(_pairs(text, where))
            continue
        name = include[1].strip('"')
        if "%c" in name:
            cluster = next((p.value for line in lines for p in line if p.key.lower() == "clustername"), None)
            if cluster is None:
                raise InputError(f"{where}: Include {quoted_line(name)}: %c needs a ClusterName above it")
            name = name.replace("%c", cluster)
        target = folder / name  # pathlib keeps an absolute name unchanged
        if target == path or target in above:
            raise InputError(f"{where}: Include {quoted_line(name)}: the file includes itself")
        if not _is_file(target):
            parent = quoted_line(str(target.parent))
            raise InputError(
                f"{where}: Include {quoted_line(name)}: no such file in {parent}; copy it there or remove the line"
            )
        if len(above) >= DEEPEST_INCLUDE:
            raise InputError(f"{where}: Include {quoted_line(name)}: nested over {DEEPEST_INCLUDE} files deep")
        _read_into(lines, target, folder, [*above, path])


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # an invalid file name
        return False


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield (1-based number of the first line, text) of each non-blank line, without comments, continuations joined."""
    begun, held = 0, ""
    physical = text.replace("\r\n", "\n").split("\n")
    for number, raw in enumerate(physical, start=1):
        line = COMMENT.sub("", raw)
        begun = begun or number
        if CONTINUES.search(line) and number < len(physical):
            held += line.rstrip()[:-1]
            continue
        whole, first, begun, held = held + line, begun, 0, ""
        if whole.strip():
            yield first, whole.replace("\\#", "#").rstrip()


def _pairs(text: str, where: str) -> list[Pair]:
    pairs, at = [], 0
    while at < len(text) and text[at:].strip():
        match = PAIR.match(text, at)
        if match is None:
            raise InputError(f"{where}: {text[at:].strip()[:80]!r} is not Key=Value: quote a value with spaces")
        quoted, bare = match[2], match[3]
        pairs.append(Pair(match[1], quoted if quoted is not None else bare, where))
        at = match.end()
    return pairs


def read_records(path: Path, first: str) -> list[dict[str, Pair]]:
    """Read the records of `scontrol show ... -o`, one a line, each as its pairs by lower-case key.

    `first` is the key that begins a record (NodeName, PartitionName, ReservationName). A value extends to the next
    ` Key=`, because some contain spaces (OS=, Reason=). If such text repeats a key, the first one counts. Raises
    InputError for a line that begins otherwise, as in output without `-o`.
    """
    records = []
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        if not line.strip() or line.startswith("No reservations in the system"):
            continue
        where = f"{path}:{number}"
        keys = list(_RECORD_KEY.finditer(line))
        if not keys or keys[0][1].lower() != first.lower() or line[: keys[0].start()].strip():
            raise InputError(f"{where}: {line.strip()[:60]!r} is not a {first}= record: print it with `scontrol -o`")
        record: dict[str, Pair] = {}
        for index, key in enumerate(keys):
            end = keys[index + 1].start() if index + 1 < len(keys) else len(line)
            record.setdefault(key[1].lower(), Pair(key[1], line[key.end() : end].strip(), where))
        records.append(record)
    return records
