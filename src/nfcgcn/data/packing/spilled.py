"""Arrays that grow in a file instead of in memory."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nfcgcn.data.formats.columns import Pieces

_numbers = count()


class SpilledPieces(Pieces):
    """An array that grows in a file; the whole is a memory map of it."""

    def __init__(self, folder: Path, dtype: str) -> None:
        super().__init__()
        self._path, self._dtype = folder / f"column-{next(_numbers)}", np.dtype(dtype)
        self._file: Any = None

    def append(self, part: npt.NDArray[Any]) -> None:
        """Add a part at the end."""
        if self._file is None:
            self._file = self._path.open("wb")
        self.rows += len(part)
        self._file.write(np.ascontiguousarray(part, self._dtype).data)

    def clear(self) -> None:
        """Forget all parts."""
        self.close()
        self.rows = 0

    def close(self) -> None:
        """Remove the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
            self._path.unlink(missing_ok=True)

    def whole(self) -> npt.NDArray[Any]:
        """Return the array."""
        if not self.rows:
            return np.zeros(0, self._dtype)
        self._file.flush()
        return np.memmap(self._path, self._dtype, "r", shape=(self.rows,))
