"""The values for "none", "never" and "no room" in the arrays of every world.

The modules that declare a world's arrays re-export them (`import NONE as NONE`) for the world's code.
"""

from __future__ import annotations

import numpy as np

NONE = -1  # no such row; as a start: never
NEVER = int(np.iinfo(np.int64).max)  # a time that is not reached in this run
NO_ROOM = -2  # more jobs are live than a branch has room for
ANY_EXTRA = -3  # in place of a row: whichever of the rows given to `submit`
