"""What a chain is: its script, how many links, and what was asked for; from the command line or a TOML file.

Everything a user may write is checked here, in one line each (`ValueError`), before anything is submitted.
"""

from __future__ import annotations

import math
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from traces.slurm.text import parse_limit_s, parse_span_s

HOUR_S = 3600.0
MOST_OVERLAP_H = 1.0  # of two links where nothing else is asked for: the largest that comparisons of policies report
MOST_LINKS = 1000
MOST_SCRIPT_BYTES = 4 << 20  # Slurm's own bound (max_script_size)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}")
# Options of sbatch that would break what the agent keeps track of, and why.
REFUSED = {
    "--array": "a chain has one job a link", "-a": "a chain has one job a link",
    "--dependency": "the agent sets it", "-d": "the agent sets it",
    "--job-name": "the agent sets it, give the chain's name", "-J": "the agent sets it, give the chain's name",
    "--clusters": "the agent sees one cluster", "-M": "the agent sees one cluster",
    "--parsable": "the agent sets it", "--quiet": "the agent reads the answer", "-Q": "the agent reads the answer",
    "--test-only": "nothing would be submitted", "--wait": "sbatch would not return", "-W": "sbatch would not return",
    "--wrap": "a chain needs a script", "--uid": "the agent sees the jobs of its own user",
}  # fmt: skip
IN_SCRIPT = (  # the others are overridden
    "--array", "-a", "--dependency", "-d", "--clusters", "-M", "--wait", "-W", "--test-only", "--uid",
)  # fmt: skip
PARTS = (":", "hetjob", "packjob")  # words that divide the options of a heterogeneous job
SHORTEST = 4  # characters of a long option that is cut short, as sbatch takes it: --ti for --time


@dataclass(frozen=True)
class Chain:
    """A chain as its user wants it. Times in seconds unless the name says otherwise."""

    script: Path  # absolute
    links: int
    artifact: Path  # absolute; may be a link that is replaced
    name: str
    options: tuple[str, ...] = ()  # of sbatch, as they are
    first: str = ""  # id of a job that runs or pends and is link 1
    setting: float | None = None  # of the policy's knob
    most_overlap_h: float = MOST_OVERLAP_H  # of two links; infinite: a successor that has started is kept
    retries: int = 1
    more_status: int = 85
    cycle_s: float = 60.0

    def __post_init__(self) -> None:
        _check(self)

    @property
    def submitted_options(self) -> tuple[str, ...]:
        """The script's own #SBATCH options, then the chain's, which win: of two equal ones the last holds."""
        return (*script_options(self.script), *self.options)

    @property
    def limit_s(self) -> int:
        """The time limit that links ask for. Raises ValueError where none is set."""
        text = option(self.submitted_options, "--time", "-t")
        limit = parse_limit_s(text) if text is not None else None
        if not limit:
            raise ValueError(
                f"{self.script}: no time limit: set #SBATCH --time there or --time in the options of sbatch; without "
                "one nobody can say when a successor is due"
            )
        return limit


def from_file(path: Path) -> dict[str, Any]:
    """The values of a chain file, paths relative to its folder. Raises ValueError for what is no chain file."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not TOML: {error}") from error
    kinds = KINDS | {"state": str}
    unknown = sorted(set(values) - set(kinds))
    if unknown:
        raise ValueError(f"{path}: unknown key {unknown[0]!r}; known: {', '.join(kinds)}")
    for key, value in values.items():
        if not isinstance(value, kinds[key]) or isinstance(value, bool):
            raise ValueError(f"{path}: {key} is {value!r}, which is of another type than it takes")
    for key in ("script", "artifact", "state"):
        if key in values:
            values[key] = str(path.parent / Path(values[key]).expanduser())
    return values


def make(values: Mapping[str, Any]) -> Chain:
    """A chain from the values of the command line or of a chain file. Raises ValueError."""
    missing = [key for key in ("script", "links", "artifact") if values.get(key) is None]
    if missing:
        raise ValueError(f"{missing[0]} is not given; a chain needs a script, links and an artifact")
    chosen = {key: value for key, value in values.items() if value is not None and key in KINDS}
    chosen |= {key: duration(key, chosen[key]) for key in UNITS_S if isinstance(chosen.get(key), str)}
    script = Path(chosen.pop("script")).absolute()
    artifact = Path(chosen.pop("artifact")).absolute()
    name = chosen.pop("name", None) or re.sub(r"[^A-Za-z0-9_.-]", "-", script.stem).lstrip("-_.")[:40] or "chain"
    options = tuple(chosen.pop("options", ()))
    return Chain(script=script, artifact=artifact, name=name, options=options, **chosen)


KINDS: dict[str, type | tuple[type, ...]] = {
    "script": str,
    "links": int,
    "artifact": str,
    "name": str,
    "options": list,
    "first": str,
    "setting": (int, float),
    "most_overlap_h": (int, float, str),
    "retries": int,
    "more_status": int,
    "cycle_s": (int, float, str),
}


# Values that are durations, and the seconds that a plain number counts; others as `parse_span_s` reads them.
UNITS_S = {"most_overlap_h": HOUR_S, "cycle_s": 1.0}


def duration(key: str, text: str) -> float:
    """The duration that a text says, in the unit of `key`; infinite for UNLIMITED. Raises ValueError."""
    try:
        seconds = parse_span_s(text, UNITS_S[key])
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from None
    return math.inf if seconds is None else seconds / UNITS_S[key]


def _check(chain: Chain) -> None:
    def within(what: str, value: float, low: float, high: float) -> None:
        if not (math.isfinite(value) and low <= value <= high):
            raise ValueError(f"{what} is {value:g}; allowed: {low:g} to {high:g}")

    if not NAME.fullmatch(chain.name):
        raise ValueError(f"name is {chain.name!r}; allowed: up to 40 letters, digits, _ . -, none of _ . - first")
    within("links", chain.links, 1, MOST_LINKS)
    if chain.most_overlap_h != math.inf:
        within("most_overlap_h", chain.most_overlap_h, 0, 10_000)
    within("retries", chain.retries, 0, 100)
    within("more_status", chain.more_status, 1, 255)
    within("cycle_s", chain.cycle_s, 10, 3600)
    if chain.first and not re.fullmatch(r"[0-9]{1,10}", chain.first):
        raise ValueError(f"first is {chain.first!r}; allowed: the id of a job that is no array task, as 1234")
    for text in chain.options:
        if not isinstance(text, str) or "\0" in text:
            raise ValueError(f"an option of sbatch is {text!r}, which is no text without NUL")
    _refuse(chain.options, REFUSED, "the options of sbatch")
    _refuse(script_options(chain.script), {key: REFUSED[key] for key in IN_SCRIPT}, str(chain.script))
    chain.limit_s  # noqa: B018  raises where there is none


def _refuse(options: Sequence[str], refused: Mapping[str, str], where: str) -> None:
    for name, reason in refused.items():
        if option(options, name, name) is not None or any(_names(text, name) for text in options):
            raise ValueError(f"{where}: {name} is not allowed in a chain: {reason}")
    parts = [word for word in options if word in PARTS]
    if parts:
        raise ValueError(f"{where}: {parts[0]} is not allowed in a chain: a link is one job, of one part")


def option(options: Sequence[str], long: str, short: str) -> str | None:
    """The last value that the options give to `--long VALUE`, `--long=VALUE`, `-s VALUE` or `-sVALUE`; None.

    A long name may be cut short, as in `--tim 5`.
    """
    found = None
    for at, text in enumerate(options):
        if (text == short or (_names(text, long) and "=" not in text)) and at + 1 < len(options):
            found = options[at + 1]
        elif "=" in text and _names(text, long):
            found = text.partition("=")[2]
        elif text.startswith(short) and len(text) > 2 and not text.startswith("--"):
            found = text[2:]
    return found


def _names(text: str, name: str) -> bool:
    """Whether the text is that option, with a value behind = or without, or a long one that is cut short."""
    given = text.partition("=")[0] if text.startswith("--") else text
    return given == name or (len(given) >= SHORTEST and given.startswith("--") and name.startswith(given))


def script_options(script: Path) -> tuple[str, ...]:
    """The options in a script's #SBATCH lines, which end at its first command. Raises ValueError."""
    try:
        with script.open("rb") as file:
            content = file.read(MOST_SCRIPT_BYTES + 1)
    except OSError as error:
        raise ValueError(f"{script}: {error.strerror}") from error
    if len(content) > MOST_SCRIPT_BYTES:
        raise ValueError(f"{script}: over {MOST_SCRIPT_BYTES} bytes, more than Slurm takes")
    if not content.startswith(b"#!"):
        raise ValueError(f"{script}: does not begin with #! and an interpreter, which sbatch asks for")
    return tuple(_sbatch_lines(script, content.decode("utf-8", "surrogateescape").splitlines()))


def _sbatch_lines(script: Path, lines: Sequence[str]) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        if line.startswith("#SBATCH"):
            try:
                yield from shlex.split(line.removeprefix("#SBATCH"), comments=True)
            except ValueError as error:
                raise ValueError(f"{script}:{number}: {error}") from error
        elif line.strip() and not line.startswith("#"):
            return
