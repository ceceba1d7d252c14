"""The field's words in one line each, and which of them a section of the page explains."""

from __future__ import annotations

import re
from collections.abc import Iterable

from reports.layout import Section

# word as shown -> (pattern that finds it, explanation)
TERMS: dict[str, tuple[str, str]] = {
    "wait": (r"waits?|waited|waiting", "from submission to start"),
    "p50, p95": (
        r"p\d\d|\d\dth percentile|median",
        "of 100 jobs in order, the 50th (the median: half stay below it) and the 95th",
    ),
    "GPU hour": (r"GPU h(?:ours?)?", "one GPU held for one hour, busy or not"),
    "node hour": (r"node hours?", "one node held for one hour, busy or not"),
    "eligible": (r"eligible", "free to start as far as its user is concerned: no dependency, hold or begin time left"),
    "fair-share delay": (r"fair[- ]share", "waited while the user's group used all that its quota allows"),
    "fragmentation": (
        r"fragmentation|fragmented", "enough is free, but scattered over nodes so that the job does not fit"
    ),
    "likely dependency": (
        r"likely (?:a )?dependency", "the job started just after one of the same user and name ended, though it would "
        "have fitted before: inferred, where the log names no dependency"
    ),
    "own jobs": (
        r"own jobs", "the user's jobs ran a fixed number at a time, or all on one node, though more would have fitted"
    ),
    "array limit": (r"array limit", "a job array runs only so many of its tasks at a time (sbatch --array=...%N)"),
    "nodes down": (r"nodes down", "nodes on which nothing ran for three days or ever: drained, broken or switched off"),
    "reservation": (
        r"reservation(?! for)", "a time or nodes kept for some jobs or for maintenance: here an hour or more in which "
        "nothing started though jobs of several users would have fitted"
    ),
    "quota": (r"quotas?", "the GPUs that a group may use at once"),
    "gang": (r"gangs?", "a job whose nodes must all be free at the same moment"),
    "attempt": (r"attempts?", "one run of a job; a job that is requeued or retried has several"),
    "bounded slowdown": (r"bounded slowdown", "(wait + run) / run, at least 1; runs under 10 s count as 10 s"),
    "backfill": (r"backfill|EASY", "a small job goes ahead of a large one where that does not delay the large one"),
    "FIFO": (r"fifo", "first in, first out: nobody overtakes"),
    "replay": (r"replay(?:s|ed)?|simulat(?:ed|ion)", "the log's own jobs, submitted again to a simulated cluster"),
    "95 % interval": (r"95 %", "chance alone would leave the true value outside it once in 20 times"),
    "rank correlation": (
        r"Spearman|rank correlation", "1: both put the jobs in the same order; 0: the orders have nothing in common"
    ),
    "MAE": (r"MAE", "mean absolute error: how far off on average, whichever way"),
    "pair, hand-over": (
        r"pairs?|hand-overs?", "a job that runs to its time limit and its successor, which takes over from it"
    ),
    "reactive": (r"reactive", "the successor is submitted when its predecessor ends: what one does without a policy"),
    "oracle": (r"oracle", "knows every future start: a bound for all policies, and none that could be used"),
    "interruption (I)": (r"interruptions?|interrupts", "from the end of a job to the start of its late successor"),
    "overlap (O)": (r"overlaps?", "both jobs held, from the successor's early start to the predecessor's end"),
    "cost": (r"cost w|cost, h|weight 1", "interruption + w x overlap, in hours a hand-over; w is the weight"),
    "regret": (r"regret", "cost above that of the oracle"),
    "best rule": (
        r"best (?:of the )?rules?", "of the rules that learned nothing, the one of least cost on the select window"
    ),
    "setting": (r"settings?(?! GPU)", "one position of a policy's knob, from late and safe to early and double-booked"),
    "world": (
        r"world", "how waits come about in the simulation: plain replays the log under a scheduler, calibrated starts "
        "from the recorded state of the others, recorded-wait draws a recorded wait"
    ),
    "select and report window": (
        r"(?:select|report) window", "the weeks that chose the setting (development, no headline), and the later ones "
        "that judged it"
    ),
    "block": (r"blocks?", "seven days that are drawn together for an interval, since neighbouring days are alike"),
    "seed": (r"[1-9]\d* seeds?", "one training from another random start; intervals hold the spread over seeds"),
    "champion, gate": (
        r"champion|the gate", "the released policy, and the test against it that a candidate must pass to replace it"
    ),
    "hopeless": (r"hopeless", "an error that the same run would meet again"),
}  # fmt: skip
_FOUND = {word: re.compile(rf"(?<![\w-])(?:{pattern})(?![\w-])", re.IGNORECASE) for word, (pattern, _) in TERMS.items()}


def explained(sections: Iterable[Section]) -> list[dict[str, str]]:
    """For each section in order the words to explain in it: word -> explanation.

    The first section is always seen, so its words are explained there alone; the others open one by one, in any order,
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
