"""The neighbour draw in NumPy: the first steps of a Fisher-Yates shuffle, on positions alone."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nfcgcn.graph import Ints


def draw(starts: Ints, neighbours: Ints, uniforms: npt.NDArray[np.float64]) -> Ints:
    """Return the table ``[N, m + 1]`` of each node and up to ``m`` of its neighbours; ``uniforms`` is ``[m, N]``.

    Step t swaps position t with one drawn from those not yet passed; what stands there by now follows from the earlier
    draws. Slots for which a node has no neighbour left hold the node itself.
    """
    degrees = np.diff(starts)
    table = np.repeat(np.arange(len(degrees))[:, None], len(uniforms) + 1, axis=1)
    draws: list[Ints] = []
    for step, uniform in enumerate(uniforms):
        drawn = step + (uniform * (degrees - step)).astype(np.int64)
        position = drawn
        for earlier in reversed(range(step)):
            position = np.where(position == draws[earlier], earlier, position)
        draws.append(drawn)
        has = degrees > step
        table[has, step + 1] = neighbours[(starts[:-1] + position)[has]]
    return table
