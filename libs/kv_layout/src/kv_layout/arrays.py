"""The two kinds of arrays this package works with."""

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
"""Addresses, lengths, block numbers: [n]."""
Bytes = npt.NDArray[np.uint8]
"""The memory of a pool: [size_bytes]."""
