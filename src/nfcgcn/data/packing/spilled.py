"""Arrays that grow in a file instead of in memory."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nfcgcn.data.formats.gathering import Pieces

_numbers = count()


class SpilledPieces(Pieces):
    """An array that grows in a file; the whole is a memory map of it."""

    def __init__(self, folder: Path, dtype: str) -> None:
        super().__init__()
        self._path, self._dtype = folder / f"column-{next(_numbers)}", np.dtype(dtype)

    def append(self, part: npt.NDArray[Any]) -> None:
        """Add a part at the end."""
        self.rows += len(part)
        with self._path.open("ab") as file:
            file.write(np.ascontiguousarray(part, self._dtype).data)

    def clear(self) -> None:
        """Forget all parts."""
        self.rows = 0
        self._path.unlink(missing_ok=True)

    def whole(self) -> npt.NDArray[Any]:
        """Return the array."""
        return np.memmap(self._path, self._dtype, "r", shape=(self.rows,)) if self.rows else np.zeros(0, self._dtype)
