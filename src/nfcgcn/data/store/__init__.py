"""Graphs larger than memory: a store is a folder of plain arrays that are mapped into memory instead of read."""

from __future__ import annotations

from nfcgcn.data.store.layout import is_store
from nfcgcn.data.store.names import NodeNames
from nfcgcn.data.store.reading import StoredGraph, open_store
from nfcgcn.data.store.writing import StoreWriter, write_store

__all__ = ["NodeNames", "StoreWriter", "StoredGraph", "is_store", "open_store", "write_store"]
