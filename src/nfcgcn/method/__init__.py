"""The paper, and nothing else: sampling, feature map, node-feature convolution, graph convolutions, the model.

Read in this order: :mod:`sampling`, :mod:`node_feature_conv`, :mod:`operations`, :mod:`graph_conv`, :mod:`model`.
:mod:`acceleration` explains how faster code replaces these formulas.
"""
