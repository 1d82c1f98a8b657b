"""Draw distinct neighbours of every node.

The variants for arrays, ``reference`` and ``cpu``, are chosen here; for an adjacency that lies on a GPU
:func:`~nfcgcn.method.sampling.draw_table` takes ``gpu``. All give the same table.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nfcgcn.graph import Ints
from nfcgcn.kernels import Backend, choose, numba_refusal
from nfcgcn.kernels.neighbour_draw import reference


def draw(starts: Ints, neighbours: Ints, uniforms: npt.NDArray[np.float64], *, backend: Backend = "auto") -> Ints:
    """Return the table of nodes and drawn neighbours; see :func:`reference.draw`."""
    if choose(backend, "cpu", numba_refusal()) == "reference":
        return reference.draw(starts, neighbours, uniforms)
    from nfcgcn.kernels.neighbour_draw import cpu

    return cpu.draw(starts, neighbours, uniforms)
