"""A gate's verdict on a candidate, with the paired differences that it is based on."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar


@dataclass(frozen=True)
class Verdict:
    """The verdict on candidate less opponent, on the pairs or jobs of the gate's window."""

    level: ClassVar[float]  # of the interval

    verdict: str
    reason: str
    n: int = 0  # pairs or jobs
    blocks: int = 0
    from_s: int | None = None  # first and last submission compared, epoch s
    until_s: int | None = None
    difference_h: float | None = None
    low_h: float | None = None
    high_h: float | None = None

    def figures(self) -> dict[str, Any]:
        """Plain values for a manifest, with the level of the interval."""
        return asdict(self) | {"level": self.level}
