"""Names of array types, for annotations."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Int8s = NDArray[np.int8]
Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]
Float32s = NDArray[np.float32]
Float64s = NDArray[np.float64]
Bools = NDArray[np.bool_]
