"""What stands for "none", "never" and "no room" in the arrays of every world: declared here alone.

The modules that declare a world's arrays hand them on (`import NONE as NONE`), so that its code has them at one place.
"""

from __future__ import annotations

import numpy as np

NONE = -1  # no such row; as a start, one that never comes
NEVER = int(np.iinfo(np.int64).max)  # a time that does not come in this run
NO_ROOM = -2  # more jobs are alive than a branch has room for
