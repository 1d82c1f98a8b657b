"""How many neighbours a mini-batch draws per node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nfcgcn.errors import ConfigError

MOST = 2**31 - 1
"""The largest fan-out; no node has more neighbours."""


class FanOut(str):
    """One number of neighbours for all graph convolutions, or one per convolution, as text.

    The first is that of the nodes that are scored, the next that of the nodes drawn for them, and so on, as in PyTorch
    Geometric's ``NeighborLoader``.

    >>> FanOut("15, 10").sizes(2)
    [10, 15]
    """

    meaning = "a whole number of neighbours from 1 up, or one per graph convolution, as in 15,10"

    def __new__(cls, given: str | int | Sequence[int]) -> FanOut:
        if isinstance(given, bool) or not isinstance(given, str | int | list | tuple):
            raise ValueError("a fan-out is a whole number")
        parts: Any = given.split(",") if isinstance(given, str) else [given] if isinstance(given, int) else given
        if not all(isinstance(part, str | int) for part in parts):
            raise ValueError("a fan-out is a whole number")
        numbers = [int(part) for part in parts]
        if not numbers or not all(1 <= number <= MOST for number in numbers):
            raise ValueError("a fan-out is at least 1")
        return super().__new__(cls, ",".join(map(str, numbers)))

    def sizes(self, num_hops: int) -> list[int]:
        """Return the number of neighbours for each of so many graph convolutions, in the order they are computed."""
        if not num_hops:
            return []
        numbers = [int(part) for part in self.split(",")]
        numbers = numbers * num_hops if len(numbers) == 1 else numbers[::-1]
        if len(numbers) != num_hops:
            raise ConfigError(
                f"`fan_out` {self} is for {len(numbers)} graph convolutions, and the model has {num_hops}"
            )
        return numbers
