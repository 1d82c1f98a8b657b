"""Matrix products, dense and sparse, with entries of the first factor dropped or not."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from nfcgcn.kernels.product import reference


class Dropped(NamedTuple):
    """A constant sparse matrix of whose entries some are dropped and the others scaled up, when it is multiplied."""

    whole: Tensor
    """``[M, F]``, torch CSR, with all entries."""
    rate: float
    seed: Tensor
    """One number, of the mask; no plain number, for which ``torch.compile`` would compile anew."""

    @property
    def matrix(self) -> Tensor:
        """The same with the entries dropped."""
        return reference.drop_entries(self.whole, dropout=self.rate, seed=int(self.seed))
