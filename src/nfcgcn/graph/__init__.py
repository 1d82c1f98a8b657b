"""The graph and its split: frozen values, checked here and nowhere else."""

from nfcgcn.graph.graph import Graph as Graph
from nfcgcn.graph.parts import DIRECTIONS as DIRECTIONS
from nfcgcn.graph.parts import Floats as Floats
from nfcgcn.graph.parts import Ints as Ints
from nfcgcn.graph.split import Split as Split
from nfcgcn.graph.tensors import Edges as Edges
from nfcgcn.graph.tensors import WeightedEdges as WeightedEdges
from nfcgcn.graph.tensors import check_finite as check_finite
from nfcgcn.graph.tensors import csr_tensor as csr_tensor
from nfcgcn.graph.tensors import edge_parts as edge_parts
from nfcgcn.graph.tensors import quiet_sparse as quiet_sparse
