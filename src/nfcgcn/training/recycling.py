"""Memory that serves one batch after the other."""

from __future__ import annotations

from collections import defaultdict
from threading import Lock
from typing import Any
from weakref import finalize

import numpy as np
import numpy.typing as npt

SMALL = 2**20
"""Bytes below which memory is not kept: the allocator keeps such pieces itself."""


class Recycler:
    """Gives arrays whose memory comes back when nobody uses them any more.

    Memory that is new costs a page fault per 4 KiB when it is first written to, which was more than a third of the time
    to read the features of a batch of 130 MB. Never more is kept than was in use at the same time.

    >>> recycler = Recycler()
    >>> array = recycler.empty(1_000_000, np.float32)
    >>> place = array.ctypes.data
    >>> del array
    >>> recycler.empty(900_000, np.float32).ctypes.data == place
    True
    """

    def __init__(self) -> None:
        self._idle: dict[Any, list[npt.NDArray[np.uint8]]] = defaultdict(list)
        self._lock = Lock()

    def empty(self, count: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return an array of so many numbers, which hold anything; tensors made of it count as its users."""
        kind = np.dtype(dtype)
        size = count * kind.itemsize
        if size < SMALL:
            return np.empty(count, kind)
        idle = self._idle[kind]
        memory = self._take(idle, size)
        # Through a memoryview, so that slices of the array refer to it and not to the memory behind it.
        array = np.frombuffer(memoryview(memory), kind, count)  # type: ignore[arg-type]
        finalize(array, idle.append, memory).atexit = False
        return array

    def _take(self, idle: list[npt.NDArray[np.uint8]], size: int) -> npt.NDArray[np.uint8]:
        """Return idle memory of at least so many bytes; where all is too small, new memory replaces some."""
        with self._lock:
            for place, memory in enumerate(idle):
                if len(memory) >= size:
                    return idle.pop(place)
            if idle:
                idle.pop()
        return np.empty(size + size // 8, np.uint8)  # the next batch may be a little larger; unused pages take no room
