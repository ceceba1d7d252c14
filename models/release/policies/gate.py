"""The gate: whether a candidate may replace the champion. Pure functions of pair tables and artifacts.

There are three verdicts. `passed`: the candidate is shown to be no worse than by 0.1 h a pair. `failed`: it is shown to
be worse. `cannot tell`: neither, and the champion stays (docs/decisions/0026).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from agent.artifact import Artifact
from features.conventions import (
    ALL_SIZES,
    CANNOT_TELL,
    FAILED,
    GATE_BLOCKS,
    GATE_LEVEL,
    GATE_LOSING,
    LIGHT_H,
    NOT_WORSE_H,
    PASSED,
)
from models.provisioning.comparison.groups import groups
from models.provisioning.comparison.outcomes import cost_h, load_masks
from models.provisioning.protocol import PairTable
from models.release.block_interval import PART_LEVEL, block_interval, blocks_of
from models.release.verdict import Verdict
from simulator.one_thread import one_thread
from traces.arrays import Bools, Float64s
from traces.counted import counted, plural
from traces.units import DAY_S

GATE_S = 84 * DAY_S  # newest pairs compared: twelve blocks, of a cluster that has hardly changed since


@dataclass(frozen=True)
class GateVerdict(Verdict):
    """The paired comparison on the gate's window: candidate minus opponent, cost of weight 1, hours a pair."""

    level: ClassVar[float] = GATE_LEVEL

    losing: int = 0  # pairs on which reactive loses more than LIGHT_H

    @property
    def passed(self) -> bool:
        """Whether the candidate is shown to be no worse."""
        return self.verdict == PASSED


@one_thread
def compare_with(part: PairTable, candidate: Artifact, champion: Artifact | None, kind: str) -> GateVerdict:
    """Compare the candidate with the champion (None: reactive) at their default settings; see `judge`.

    part: the pairs of `gate_window`. kind: their `Scenario.pairs`.
    """
    opponent = "reactive" if champion is None else "the champion"
    if not len(part):
        reason = f"no pair starts after candidate and {opponent} were fitted and their settings picked; add newer logs"
        return GateVerdict(CANNOT_TELL, reason)
    difference_h = cost_h(part, candidate) - cost_h(part, champion)
    return judge(difference_h, part.submit_s, part.gap_h[part.last], parts_of(part, kind), opponent)


def parts_of(pairs: PairTable, kind: str) -> dict[str, Bools]:
    """Masks of the pairs of each size and of each load, by their names in a sentence."""
    sized = [one for one in groups(pairs, kind) if one.size != ALL_SIZES]
    sizes = {f"of {one.size} {plural(one.most, 'node')}": one.of(pairs) for one in sized}
    loads = load_masks(pairs.gap_h[pairs.last])
    return sizes | {f"under {load} load": mask for load, mask in loads.items() if load != "all" and mask.any()}


def judge(
    difference_h: Float64s,
    submit_s: NDArray[np.int64],
    reactive_gap_h: Float64s,
    parts: Mapping[str, Bools],
    opponent: str = "the champion",
) -> GateVerdict:
    """Judge paired differences of cost, (p,) hours, candidate minus opponent, of starts `submit_s` (epoch s).

    It passes if all of these hold. The upper end of the interval (`block_interval`, further out if losses are rare) is
    at most 0.1 h. The pairs span at least GATE_BLOCKS blocks. Reactive loses more than 2 h on at least GATE_LOSING
    pairs, in as many blocks (a calm window shows nothing), and over these pairs the mean difference is at most 0.1 h.
    None of the `parts` (masks by name) is worse by more than 0.1 h at the lower end of its interval of PART_LEVEL. It
    fails if the lower end over all pairs is above 0 and the upper end above 0.1 h.
    """
    block = blocks_of(submit_s)
    losing = reactive_gap_h > LIGHT_H
    found = block_interval(difference_h, block, day=submit_s // DAY_S)
    blocks = len(np.unique(block))
    mean_h = float(difference_h.mean())
    window = (len(submit_s), blocks, int(submit_s.min()), int(submit_s.max()), mean_h)
    if found is None:
        days = (int(submit_s.max()) - int(submit_s.min())) / DAY_S
        reason = (
            f"{counted(len(submit_s), 'pair')} against {opponent} begin within {days:.1f} days, less than two whole "
            "blocks of 7; add newer logs"
        )
        return GateVerdict(CANNOT_TELL, reason, *window, losing=int(losing.sum()))
    verdict, why = PASSED, f"not worse than {opponent}"
    if found.high > NOT_WORSE_H:
        verdict, why = (FAILED, f"worse than {opponent}") if found.low > 0.0 else (CANNOT_TELL, "")
    lacks = _lacking(block, losing, blocks) or _worse_part(difference_h, block, losing, parts)
    if verdict == PASSED and lacks:
        verdict, why = CANNOT_TELL, lacks
    reason = (
        f"{why or f'neither worse nor no worse than {opponent}'}: cost difference {found.mean:+.3f} h a pair, "
        f"{100 * GATE_LEVEL:.0f} % [{found.low:+.3f}, {found.high:+.3f}] (at most {NOT_WORSE_H:+.1f} passes), "
        f"{counted(len(submit_s), 'pair')} in {counted(blocks, 'block')}, reactive loses over {LIGHT_H:g} h on "
        f"{losing.sum()}"
    )
    return GateVerdict(verdict, reason, *window, found.low, found.high, int(losing.sum()))


def _lacking(block: NDArray[np.int64], losing: Bools, blocks: int) -> str:
    """The evidence that the window lacks for passing a candidate; empty if it lacks none."""
    if blocks < GATE_BLOCKS:
        return f"fewer than {GATE_BLOCKS} blocks of 7 days"
    if losing.sum() < GATE_LOSING or len(np.unique(block[losing])) < GATE_BLOCKS:
        return (
            f"a calm window: fewer than {GATE_LOSING} pairs, or pairs in fewer than {GATE_BLOCKS} blocks, on which "
            f"reactive loses over {LIGHT_H:g} h"
        )
    return ""


def _worse_part(difference_h: Float64s, block: NDArray[np.int64], losing: Bools, parts: Mapping[str, Bools]) -> str:
    """The first part of the pairs on which the candidate is worse; empty if there is none."""
    if (mean_h := float(difference_h[losing].mean())) > NOT_WORSE_H:
        return f"worse in the mean where reactive loses over {LIGHT_H:g} h ({mean_h:+.2f} h)"
    for name, mask in parts.items():
        found = block_interval(difference_h[mask], block[mask], PART_LEVEL) if mask.any() else None
        if found is not None and found.low > NOT_WORSE_H:
            spread = f"{found.mean:+.2f} h, {100 * PART_LEVEL:.0f} % from {found.low:+.2f}"
            return f"worse on the {counted(int(mask.sum()), 'pair')} {name} ({spread})"
    return ""


def gate_window(pairs: PairTable, artifacts: Sequence[Artifact], cluster: str) -> PairTable:
    """The newest 84 days of those pairs from which neither the artifacts nor their settings were made."""
    seen = [seen_until_s(artifact, cluster) for artifact in artifacts]
    after_s = max((until_s for until_s in seen if until_s is not None), default=None)
    fresh = pairs if after_s is None else pairs.take(pairs.submit_s >= after_s)
    return fresh.take(fresh.submit_s > fresh.submit_s.max() - GATE_S) if len(fresh) else fresh


def seen_until_s(artifact: Artifact, cluster: str) -> int | None:
    """Epoch s until which the artifact, or its setting, used data of this cluster; None if it used none."""
    ends = [
        int(note["until_s"])
        for note in (artifact.manifest.get("trained_on", {}), artifact.manifest.get("selected_on", {}))
        if note.get("cluster") == cluster
    ]
    return max(ends, default=None)
