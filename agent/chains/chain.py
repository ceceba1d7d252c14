"""A chain: its script, its number of links and its options, from the command line or a TOML file.

All user input is checked here before anything is submitted. Each error is one line (`ValueError`).
"""

from __future__ import annotations

import math
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from traces.slurm.text import MOST_NODES, parse_limit_s, parse_span_s
from traces.units import DAY_S, HOUR_S

MOST_OVERLAP_H = 1.0  # default for two links: the largest overlap that comparisons of policies report
MOST_LINKS = 1000
RESTART_COST_S = 600.0
FIXED, AUTO, NEVER = "fixed", "auto", "never"
ON, OFF = "on", "off"
USUAL_S = tuple(HOUR_S * hours for hours in (2, 4, 8, 12, 24, 48))  # limits to choose from where none are given
MOST_SCRIPT_BYTES = 4 << 20  # Slurm's own bound (max_script_size)
QOS = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,79}")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}")
# sbatch options that would break the agent's tracking of jobs, and why.
REFUSED = {
    "--array": "a link is exactly one job", "-a": "a link is exactly one job",
    "--dependency": "the agent sets it", "-d": "the agent sets it",
    "--job-name": "the agent sets it; use --name of the chain", "-J": "the agent sets it; use --name of the chain",
    "--clusters": "the agent works on one cluster", "-M": "the agent works on one cluster",
    "--parsable": "the agent sets it", "--quiet": "the agent reads sbatch's output",
    "-Q": "the agent reads sbatch's output", "--test-only": "no job would be submitted",
    "--wait": "sbatch would not return", "-W": "sbatch would not return",
    "--wrap": "a chain needs a script", "--uid": "the agent sees only jobs of its own user",
}  # fmt: skip
IN_SCRIPT = (  # refused in the script too; there the agent overrides the others
    "--array", "-a", "--dependency", "-d", "--clusters", "-M", "--wait", "-W", "--test-only", "--uid",
)  # fmt: skip
PARTS = (":", "hetjob", "packjob")  # words that separate the components of a heterogeneous job
SIGNAL = re.compile(r"(?:([RB]{1,2}):)?([A-Za-z0-9]{1,12})(?:@(\d{1,5}))?")  # as sbatch takes it: [R|B]:NAME@SECONDS
SHORTEST = 4  # minimum length of an abbreviated long option; sbatch accepts --ti for --time


@dataclass(frozen=True)
class JobSignal:
    """A signal that a script asks for before its limit."""

    name: str  # USR1, or a number
    to_batch: bool  # to the batch shell alone, else to the steps
    lead_s: int  # before the limit: the time that the job needs to save


@dataclass(frozen=True)
class Chain:
    """A chain as its user specified it. Times in seconds unless the name says otherwise."""

    script: Path  # absolute
    links: int
    artifact: Path | None  # absolute; may be a symlink that is later replaced; None: the built-in start estimate
    name: str
    options: tuple[str, ...] = ()  # passed to sbatch unchanged
    first: str = ""  # id of a running or pending job that is link 1
    setting: float | None = None  # value of the policy's knob
    most_overlap_h: float = MOST_OVERLAP_H  # of two links; infinite: no successor is cancelled for starting early
    retries: int = 1
    more_status: int = 85
    cycle_s: float = 60.0
    plan: str = FIXED  # AUTO: limit, moment and number of queued links are planned
    ask: str = "any"  # of a plan: limits that a link may ask for; FIXED: the script's alone
    saves: str = "signal"  # whether the job saves when it is signalled; NEVER: only the moment can be chosen
    restart_cost_s: float = RESTART_COST_S  # lost in each link after the first: saving and loading
    limits: tuple[int, ...] = ()  # s, that a link may ask for; (): as the partition allows
    work_h: float | None = None  # wanted work; no link is submitted beyond it
    overlap_weight: float = 0.5  # hours lost that an hour of overlap is worth
    least_nodes: int | None = None  # on which a planned link can run; None: on as many as the script asks for
    scaling: float = 1.0  # on n of N nodes it works (n / N) ** scaling as fast
    qos_choice: tuple[str, ...] = ()  # QOS that a planned link may have in place of the script's
    time_min: str | None = None  # ON: planned links may get less than they ask for; None: if the script names a least

    def __post_init__(self) -> None:
        _check(self)

    @property
    def is_planned(self) -> bool:
        """Whether a plan decides."""
        return self.plan == AUTO

    @property
    def hands_over(self) -> bool:
        """Whether an older link is ended for a newer one. A job that never saves would lose its work."""
        return self.is_planned and self.saves != NEVER

    @property
    def restart_s(self) -> int:
        """The declared restart cost, s; 0 for a job that never saves, which loads nothing."""
        return 0 if self.saves == NEVER else int(self.restart_cost_s)

    @property
    def asks_fixed(self) -> str:
        """Why links ask for the script's limit alone; "" if they may ask for others."""
        if self.ask == FIXED or self.saves == NEVER:
            return "--ask fixed" if self.ask == FIXED else "--saves never"
        return "--time is among the sbatch options" if option(self.options, "--time", "-t") is not None else ""

    @cached_property
    def least_limit_s(self) -> int | None:
        """The least limit that the script can live with, s; None if it names none. Raises ValueError."""
        return least_limit(script_options(self.script))

    @property
    def is_free(self) -> bool:
        """Whether a link may ask for another limit than the script's."""
        return self.hands_over and not self.asks_fixed

    @property
    def shortens(self) -> bool:
        """Whether a planned link may get less than it asks for."""
        return self.is_free and (self.time_min or (OFF if self.least_limit_s is None else ON)) == ON

    @property
    def signal(self) -> JobSignal | None:
        """The signal on which the job saves, from #SBATCH --signal; None if it names none."""
        text = option(self.submitted_options, "--signal", "--signal")
        found = None if text is None else SIGNAL.fullmatch(text)
        return None if found is None else JobSignal(found[2], "B" in (found[1] or ""), int(found[3] or 60))

    @property
    def submitted_options(self) -> tuple[str, ...]:
        """The script's #SBATCH options, then the chain's, which win because the last of two equal options holds."""
        return (*script_options(self.script), *self.options)

    @property
    def limit_s(self) -> int:
        """The time limit of each link, s. Raises ValueError if none is set."""
        limit = asked_limit(self.submitted_options)
        if limit is None:
            raise ValueError(
                f"{self.script}: no time limit: set #SBATCH --time there, or --time in the sbatch options; the agent "
                "needs it to know when a successor is due"
            )
        return limit


def from_file(path: Path) -> dict[str, Any]:
    """Read the values of a chain file; its paths are relative to its folder. Raises ValueError if it is invalid."""
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
            raise ValueError(
                f"{path}: {key} is {value!r}, which has the wrong type; allowed: {_type_names(kinds[key])}"
            )
    for key in ("script", "artifact", "state"):
        if key in values:
            values[key] = str(path.parent / Path(values[key]).expanduser())
    return values


def make(values: Mapping[str, Any]) -> Chain:
    """Build a chain from the values of the command line or of a chain file. Raises ValueError."""
    values = {"links": MOST_LINKS, **values} if values.get("work_h") is not None else values
    missing = [key for key in ("script", "links") if values.get(key) is None]
    if missing:
        raise ValueError(f"{missing[0]} is missing; a chain needs a script, and --links 5 or --work 10d")
    chosen = {key: value for key, value in values.items() if value is not None and key in KINDS}
    chosen |= {key: duration(key, chosen[key]) for key in UNITS_S if isinstance(chosen.get(key), str)}
    script = Path(chosen.pop("script")).absolute()
    artifact = Path(given).absolute() if (given := chosen.pop("artifact", None)) else None
    chosen |= {"options": tuple(chosen.get("options", ())), "limits": limits_of(chosen.get("limits", ()))}
    given = chosen.get("qos_choice", ())
    chosen |= {"qos_choice": tuple(given.split(",") if isinstance(given, str) else given), "name": name_of(values)}
    return Chain(script=script, artifact=artifact, **chosen)


def name_of(values: Mapping[str, Any]) -> str:
    """Return the name of the chain with these values: the one given, or its script's."""
    stem = Path(values.get("script") or "").stem
    return values.get("name") or re.sub(r"[^A-Za-z0-9_.-]", "-", stem).lstrip("-_.")[:40] or "chain"


def _type_names(kind: type | tuple[type, ...]) -> str:
    return " or ".join(one.__name__ for one in (kind if isinstance(kind, tuple) else (kind,)))


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
    "plan": str,
    "ask": str,
    "saves": str,
    "restart_cost_s": (int, float, str),
    "limits": (list, str),
    "work_h": (int, float, str),
    "overlap_weight": (int, float),
    "qos_choice": (list, str),
    "time_min": str,
    "least_nodes": int,
    "scaling": (int, float),
}


# Keys that hold durations, and the unit of a plain number in seconds. `parse_span_s` parses text.
UNITS_S = {"most_overlap_h": HOUR_S, "cycle_s": 1.0, "restart_cost_s": 1.0, "work_h": HOUR_S}


def duration(key: str, text: str) -> float:
    """Parse a duration into the unit of `key`, or minutes; infinite for UNLIMITED. Raises ValueError."""
    unit_s = UNITS_S.get(key, 60.0)
    try:
        seconds = parse_span_s(text, unit_s)
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from None
    return math.inf if seconds is None else seconds / unit_s


def limits_of(given: Sequence[str | float] | str) -> tuple[int, ...]:
    """Parse the limits that links may ask for, in whole minutes as Slurm counts them: s, rising. Raises ValueError."""
    parts = re.split(r",|\.\.", given) if isinstance(given, str) else given
    minutes = {duration("limits", str(part)) for part in parts}
    if isinstance(given, str) and ".." in given:  # a range: its ends, and the usual limits between them
        minutes |= {limit_s / 60 for limit_s in USUAL_S if min(minutes) < limit_s / 60 < max(minutes)}
    if not all(minute == int(minute) and 1 <= minute <= 365 * 1440 for minute in minutes if minute != math.inf):
        raise ValueError("limits: a time limit is a whole number of minutes, from 1 min to 365 days")
    if math.inf in minutes:
        raise ValueError("limits: UNLIMITED is no limit that a link can be planned with")
    return tuple(sorted(60 * int(minute) for minute in minutes))


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
    within("restart_cost_s", chain.restart_cost_s, 0, 10 * DAY_S)
    within("overlap_weight", chain.overlap_weight, 0, 100)
    if chain.work_h is not None:
        within("work_h", chain.work_h, 0, 100_000)
    choices = {"plan": (FIXED, AUTO), "ask": ("any", FIXED), "saves": ("signal", NEVER), "time_min": (ON, OFF)}
    for key, known in choices.items():
        if getattr(chain, key) not in (*known, None):
            raise ValueError(f"{key} is {getattr(chain, key)!r}; allowed: {' or '.join(known)}")
    _check_asks(chain)
    if chain.first and not re.fullmatch(r"[0-9]{1,10}", chain.first):
        raise ValueError(f"first is {chain.first!r}; allowed: a job id such as 1234, not an array task")
    for text in chain.options:
        if not isinstance(text, str) or "\0" in text:
            raise ValueError(f"sbatch option {text!r} must be text without NUL characters")
    _refuse(chain.options, REFUSED, "the sbatch options")
    check_script(chain.script)
    chain.limit_s  # noqa: B018  raises ValueError if there is none


def _check_asks(chain: Chain) -> None:
    """Check what a planned link may ask for. Raises ValueError."""
    for what, is_given in (("limits are", bool(chain.limits)), ("time_min is", chain.time_min == ON)):
        if is_given and not chain.is_free:
            raise ValueError(
                f"{what} given, but each link asks for the script's limit: give --plan auto, without --ask fixed, "
                "--saves never or --time among the sbatch options"
            )
    if chain.shortens and least_limit(chain.options) is not None:
        raise ValueError("time_min is on, and --time-min is among the sbatch options: set it in the script")
    _check_qos(chain)
    if not 0.01 <= chain.scaling <= 1:
        raise ValueError(f"scaling is {chain.scaling:g}; allowed: 0.01 to 1")
    if chain.least_nodes is None:
        return
    if not chain.hands_over:
        raise ValueError("least_nodes is given, but links have the script's: give --plan auto, without --saves never")
    if option(chain.options, "--nodes", "-N") is not None:
        raise ValueError("least_nodes is given, and --nodes is among the sbatch options: set it in the script")
    most = nodes_of(chain.submitted_options) or 1
    if not 1 <= chain.least_nodes <= most:
        raise ValueError(f"least_nodes is {chain.least_nodes}; allowed: 1 to {most}, the script's --nodes")


def _check_qos(chain: Chain) -> None:
    wrong = [name for name in chain.qos_choice if not isinstance(name, str) or not QOS.fullmatch(name)]
    if wrong:
        raise ValueError(f"qos_choice holds {wrong[0]!r}, which is no name of a QOS")
    if chain.qos_choice and not chain.is_planned:
        raise ValueError("qos_choice is given, but links have the script's QOS: give --plan auto")
    if chain.qos_choice and option(chain.options, "--qos", "-q") is not None:
        raise ValueError("qos_choice is given, and --qos is among the sbatch options: set it in the script")


def _refuse(options: Sequence[str], refused: Mapping[str, str], where: str) -> None:
    for name, reason in refused.items():
        if option(options, name, name) is not None or any(_names(text, name) for text in options):
            raise ValueError(f"{where}: {name} is not allowed in a chain: {reason}")
    parts = [word for word in options if word in PARTS]
    if parts:
        raise ValueError(f"{where}: {parts[0]} is not allowed in a chain: a link cannot be a heterogeneous job")


def check_script(script: Path) -> tuple[str, ...]:
    """Read a script's options, as `script_options`. Raises ValueError also for one that no link of a chain may have."""
    options = script_options(script)
    _refuse(options, {key: REFUSED[key] for key in IN_SCRIPT}, str(script))
    return options


def option(options: Sequence[str], long: str, short: str) -> str | None:
    """Return the last value given as `--long VALUE`, `--long=VALUE`, `-s VALUE` or `-sVALUE`, else None.

    A long name may be abbreviated, as in `--tim 5`.
    """
    found = None
    for place, text in enumerate(options):
        if (text == short or (_names(text, long) and "=" not in text)) and place + 1 < len(options):
            found = options[place + 1]
        elif "=" in text and _names(text, long):
            found = text.partition("=")[2]
        elif text.startswith(short) and len(text) > 2 and not text.startswith("--"):
            found = text[2:]
    return found


def nodes_of(options: Sequence[str]) -> int | None:
    """Return the number of nodes that sbatch options ask for, of a range the least; None if it is not valid."""
    nodes = (option(options, "--nodes", "-N") or "1").partition("-")[0]
    return int(nodes) if nodes.isascii() and nodes.isdigit() and 0 < int(nodes) <= MOST_NODES else None


def asked_limit(options: Sequence[str]) -> int | None:
    """Return the time limit that sbatch options ask for, s; None if they name none or UNLIMITED. Raises ValueError."""
    return _limit_s("--time", option(options, "--time", "-t"))


def least_limit(options: Sequence[str]) -> int | None:
    """Return the least limit that sbatch options name (--time-min), s; None if they name none. Raises ValueError."""
    return _limit_s("--time-min", option([t for t in options if not _names(t, "--time")], "--time-min", "--time-min"))


def _limit_s(name: str, text: str | None) -> int | None:
    try:
        return None if text is None else parse_limit_s(text) or None
    except ValueError:
        raise ValueError(f"sbatch option {name} is {text!r}; write 30 (minutes), 12:00:00 or 1-12:00:00") from None


def _names(text: str, name: str) -> bool:
    """Whether the text is that option, with or without `=VALUE`, or an abbreviation of a long one."""
    given = text.partition("=")[0] if text.startswith("--") else text
    return given == name or (len(given) >= SHORTEST and given.startswith("--") and name.startswith(given))


def script_options(script: Path) -> tuple[str, ...]:
    """Read the options of a script's #SBATCH lines before its first command. Raises ValueError."""
    try:
        with script.open("rb") as file:
            content = file.read(MOST_SCRIPT_BYTES + 1)
    except OSError as error:
        raise ValueError(f"{script}: {error.strerror}") from error
    if len(content) > MOST_SCRIPT_BYTES:
        raise ValueError(f"{script}: larger than {MOST_SCRIPT_BYTES} bytes, which Slurm does not accept")
    if not content.startswith(b"#!"):
        raise ValueError(f"{script}: does not begin with #! and an interpreter; sbatch needs that, as #!/bin/sh")
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
