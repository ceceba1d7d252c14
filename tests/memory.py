"""By how much a process grew while something ran, whatever it had held before."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Self

PROC = Path("/proc/self")


class Growth:
    """`with Growth() as grown: ...`, then `grown.mib`: the most memory held within, less what was held at its begin.

    The kernel's own peak is of the whole life of the process, and is set back first (proc(5), clear_refs). Where that
    is not allowed the growth is over that peak, and so an underestimate.
    """

    def __enter__(self) -> Self:
        try:
            (PROC / "clear_refs").write_text("5")
            self._before_kib = _kib("VmRSS")
        except OSError:
            self._before_kib = _kib("VmHWM")
        return self

    def __exit__(self, *_: object) -> None:
        self.mib = (_kib("VmHWM") - self._before_kib) / 1024


def _kib(name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB$", (PROC / "status").read_text(), re.MULTILINE)
    assert found is not None, f"/proc/self/status has no {name}"
    return int(found[1])
