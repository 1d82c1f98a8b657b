"""The paper: sampling, feature map, node-feature convolution, graph convolutions, and the model they make."""
