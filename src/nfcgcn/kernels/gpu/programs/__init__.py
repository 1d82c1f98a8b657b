"""The GPU's programs for node-feature convolution, in Triton.

Every array has a leading dimension of runs that train together, with tables, weights and seeds of their own on shared
features. Nothing is added by atomics: sums over nodes follow lists of the nonzeros by slot and column
(:class:`~nfcgcn.kernels.gpu.tables.Lists`), so the same call gives the same bits.
"""
