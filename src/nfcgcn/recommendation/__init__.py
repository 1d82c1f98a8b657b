"""Recommendation: users and items as the nodes of one graph, encoded by NFC-GCN, ranked by the product of vectors."""
