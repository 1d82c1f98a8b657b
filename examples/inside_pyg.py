"""Our layer inside a PyTorch Geometric model: `NodeFeatureConv` reads the features, `GCNConv` does the rest.

Nothing else here is ours: the model is a `torch.nn.Module`, the data is a `Data`, and the loop is that of any tutorial.
"""

import torch
import torch.nn.functional as F
from torch_geometric.nn import GCNConv

import nfcgcn


class Net(torch.nn.Module):
    """One node-feature convolution and two graph convolutions."""

    def __init__(self, in_channels: int, hidden_channels: int, out_channels: int) -> None:
        super().__init__()
        self.nfc = nfcgcn.NodeFeatureConv(in_channels, filters=16, bandwidth=6, kernel_size=16, stride=8)
        self.conv1 = GCNConv(self.nfc.out_channels, hidden_channels)
        self.conv2 = GCNConv(hidden_channels, out_channels)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        h = self.nfc(x, edge_index)
        h = F.relu(self.conv1(h, edge_index))
        h = F.dropout(h, 0.5, training=self.training)
        return self.conv2(h, edge_index)


def main() -> None:
    """Train on 20 images of each digit and print the share of test images that are classified correctly."""
    torch.manual_seed(0)
    graph = nfcgcn.load("digits")
    data = graph.to_pyg(nfcgcn.make_split(graph, "per-class", seed=0))
    model = Net(data.num_features, 64, graph.num_classes)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    best_val = test_at_best = 0.0
    for epoch in range(1, 101):
        model.train()
        optimizer.zero_grad()
        scores = model(data.x, data.edge_index)
        loss = F.cross_entropy(scores[data.train_mask], data.y[data.train_mask])
        loss.backward()
        optimizer.step()

        model.eval()
        with torch.no_grad():
            correct = model(data.x, data.edge_index).argmax(1) == data.y
        val, test = (correct[mask].double().mean().item() for mask in (data.val_mask, data.test_mask))
        if val > best_val:
            best_val, test_at_best = val, test
        if epoch % 20 == 0:
            print(f"epoch {epoch}: loss {loss.item():.3f}, validation {val:.1%}")
    print(f"test accuracy {test_at_best:.1%} at the best validation, {best_val:.1%}")


if __name__ == "__main__":
    main()
