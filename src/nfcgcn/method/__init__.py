"""The paper, and nothing else: sampling, feature map, node-feature convolution, graph convolutions, the model.

Read in this order: :mod:`sampling`, :mod:`node_feature_conv`, :mod:`operations`, :mod:`graph_conv`, :mod:`model`.
Around it stand :mod:`features`, where features are scaled, :mod:`classifier`, what all models share, and
:mod:`hops`, the graph convolutions one after the other. :mod:`additions` and :mod:`stacked_conv` are settings of
ours that the paper does not have. :mod:`acceleration` explains how faster code replaces these formulas.
"""
