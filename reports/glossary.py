"""Technical terms with one-line explanations, and which of them each section of the page explains."""

from __future__ import annotations

import re
from collections.abc import Iterable

from reports.layout import Section

# term as shown -> (pattern that finds it, explanation)
TERMS: dict[str, tuple[str, str]] = {
    "wait": (r"waits?|waited|waiting", "from submission to start"),
    "p50, p95": (
        r"p\d\d|\d\dth percentile|median",
        "of 100 sorted values, the 50th (the median: half are below it) and the 95th",
    ),
    "GPU hour": (r"GPU h(?:ours?)?", "one GPU held for one hour, busy or not"),
    "node hour": (r"node hours?", "one node held for one hour, busy or not"),
    "eligible": (r"eligible", "not kept from starting by a dependency, a hold or a begin time"),
    "fair-share delay": (r"fair[- ]share", "waiting while the user's group used its whole quota"),
    "fragmentation": (
        r"fragmentation|fragmented", "enough is free in total, but scattered over nodes so that the job does not fit"
    ),
    "likely dependency": (
        r"likely (?:a )?dependency", "the job would have fitted earlier, but started just after a job of the same user "
        "and name ended; inferred where the log names no dependency"
    ),
    "own jobs": (
        r"own jobs", "the user's jobs ran a fixed number at a time, or all on one node, although more would have fitted"
    ),
    "array limit": (r"array limit", "a job array runs at most N of its tasks at a time (sbatch --array=...%N)"),
    "nodes down": (r"nodes down", "nodes on which no job ran for three days, or ever: drained, broken or switched off"),
    "reservation": (
        r"reservation(?! for)", "a time or nodes kept for some jobs or for maintenance; inferred from an hour or more "
        "in which nothing started although jobs of several users would have fitted"
    ),
    "quota": (r"quotas?", "the GPUs that a group may use at once"),
    "gang": (r"gangs?", "a job whose nodes must all be free at the same moment"),
    "attempt": (r"attempts?", "one run of a job; a job that is requeued or retried has several"),
    "bounded slowdown": (r"bounded slowdown", "(wait + run) / run, at least 1; runs under 10 s count as 10 s"),
    "backfill": (r"backfill|EASY", "a small job starts ahead of a large one if that does not delay the large one"),
    "FIFO": (r"fifo", "first in, first out: no job overtakes another"),
    "replay": (r"replay(?:s|ed)?|simulat(?:ed|ion)", "the log's own jobs, submitted again to a simulated cluster"),
    "95 % interval": (r"95 %", "in 19 of 20 cases such an interval contains the true value"),
    "rank correlation": (
        r"Spearman|rank correlation", "1: both put the jobs in the same order; 0: the orders have nothing in common"
    ),
    "MAE": (r"MAE", "mean absolute error: the average size of an error, in either direction"),
    "pair, handover": (
        r"pairs?|handovers?", "a job that runs to its time limit and its successor, which takes over from it"
    ),
    "reactive": (r"reactive", "the successor is submitted when its predecessor ends, as is usual without a policy"),
    "oracle": (r"oracle", "knows every future start: no policy can do better, and it cannot be used in practice"),
    "interruption (I)": (
        r"interruptions?|interrupts", "from the end of a job to the start of its successor, if that starts later"
    ),
    "overlap (O)": (
        r"overlaps?", "both jobs hold nodes, from the successor's early start to the predecessor's end"
    ),
    "cost": (r"cost w|cost, h|weight 1", "interruption + w x overlap, in hours per handover; w is the weight"),
    "regret": (r"regret", "cost minus the cost of the oracle"),
    "best rule": (
        r"best (?:of the )?rules?", "the policy with the least cost on the select window among those that learn nothing"
    ),
    "setting": (
        r"settings?(?! GPU)", "one value of a policy's parameter, from late submission (little overlap) to early "
        "submission (much overlap)"
    ),
    "world": (
        r"world", "how the simulation produces waits: plain replays the log under a scheduler, calibrated starts "
        "from the recorded state of the other jobs, recorded-wait draws a recorded wait"
    ),
    "select and report window": (
        r"(?:select|report) window", "the weeks on which a setting is chosen (development, not a result), and the "
        "later weeks on which it is evaluated"
    ),
    "block": (
        r"blocks?", "seven days that are resampled together for an interval, because neighbouring days are alike"
    ),
    "seed": (r"[1-9]\d* seeds?", "the random start of one training; intervals include the spread over seeds"),
    "champion, gate": (
        r"champion|the gate", "the released policy, and the test against it that a candidate must pass to replace it"
    ),
    "hopeless": (r"hopeless", "an error that the same run would produce again"),
}  # fmt: skip
_FOUND = {word: re.compile(rf"(?<![\w-])(?:{pattern})(?![\w-])", re.IGNORECASE) for word, (pattern, _) in TERMS.items()}


def explained(sections: Iterable[Section]) -> list[dict[str, str]]:
    """Return the terms to explain in each section, in order: term -> explanation.

    The first section is always open, so its terms are explained only there. The others open one by one, in any order,
    and each explains its own.
    """
    made: list[dict[str, str]] = []
    for section in sections:
        text = "\n".join(_texts(section))
        meanings = {word: TERMS[word][1] for word, pattern in _FOUND.items() if pattern.search(text)}
        made.append({word: meaning for word, meaning in meanings.items() if not made or word not in made[0]})
    return made


def _texts(section: Section) -> Iterable[str]:
    yield from (section.title, *section.sentences, *section.missing)
    for tile in section.tiles:
        yield from (tile.label, tile.meaning)
    for action in section.actions:
        yield from (action.do, action.effect, action.trust)
    for figure in section.figures:
        yield from (figure.title, figure.caption)
    for table in section.tables:
        if table.holds_something:
            yield from (table.title, table.caption, *(column.label for column in table.known_columns))
