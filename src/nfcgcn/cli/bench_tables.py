"""The tables that `nfcgcn bench step` and `nfcgcn bench scale` print."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rich.table import Table

from nfcgcn.cli.console import make_table, out


def print_steps(results: Sequence[dict[str, Any]]) -> None:
    """Print times, memory and ratios, one row per setting."""
    table = Table(box=None, padding=(0, 1), pad_edge=False)
    table.add_column("ms", no_wrap=True)
    for column in (
        "plain",
        "ours",
        "eval",
        "GCN",
        "GAT",
        "plain\n/ours",
        "ours\n/GCN",
        "ours\n/GAT",
        "plain\nMiB",
        "ours\nMiB",
    ):
        table.add_column(column, justify="right")

    def short(value: float) -> str:
        return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 2 else f"{value:.2f}"

    for r in results:
        ours = r["ours_ms"]
        table.add_row(
            f"{r['dataset']} {r['activation']} {r['conv']}",
            *(short(r[key]) for key in ("plain_ms", "ours_ms", "ours_eval_ms", "pyg_gcn_ms", "pyg_gat_ms")),
            short(r["plain_ms"] / ours),
            f"{ours / r['pyg_gcn_ms']:.2f}",
            f"{ours / r['pyg_gat_ms']:.2f}",
            short(r["plain_mib"]),
            short(r["ours_mib"]),
        )
    out.print(table)
    for r in results:
        if "fit_1_s" in r:
            out.print(
                f"{r['dataset']} {r['activation']} {r['conv']}: a step of 10 seeds {r['seeds10_ms']:.2f} ms, "
                f"{r['config']['epochs']} epochs {r['fit_1_s']:.2f} s, of 10 seeds {r['fit_10_s']:.2f} s; a step's "
                f"{r['launches']} kernels take {r['kernels_ms']:.2f} ms, at the device's limits {r['floor_ms']:.2f}; "
                f"of 10 seeds {r['seeds10_kernels_ms']:.2f} and {r['seeds10_floor_ms']:.2f}",
                highlight=False,
                soft_wrap=True,
            )
    out.print(f"{results[0]['hardware']}, torch {results[0]['versions']['torch']}", highlight=False)


def print_scale(result: dict[str, Any]) -> None:
    """Print rates, times and memory, one column per store."""
    table = make_table("", *(f">{r['nodes']:,} nodes" for r in result["stores"]))
    rows: dict[str, Callable[[dict[str, Any]], str]] = {
        "from the store, nodes/s": lambda r: f"{r['store']['nodes_per_s']:,.0f}",
        "from the store, cold, nodes/s": lambda r: f"{r['cold']['nodes_per_s']:,.0f}",
        "from memory, nodes/s": lambda r: f"{r['memory']['nodes_per_s']:,.0f}",
        "store / memory": lambda r: f"{r['store']['nodes_per_s'] / r['memory']['nodes_per_s']:.2f}",
        "ms per batch": lambda r: f"{r['store']['ms_per_batch']:.1f}",
        "CPU ms per batch": lambda r: f"{r['store']['cpu_ms_per_batch']:.1f}",
        "CPU ms per batch, from memory": lambda r: f"{r['memory']['cpu_ms_per_batch']:.1f}",
        "own memory, MiB": lambda r: f"{r['store']['own_mib']:,.0f}",
        "resident with mapped files, MiB": lambda r: f"{r['store']['resident_mib']:,.0f}",
        "two processes / one, a core each": lambda r: (
            f"{r['two processes']['seconds'] / r['one process']['seconds']:.2f}"
        ),
        "difference of their losses": lambda r: f"{r['loss difference']:.1e}",
        "drawing neighbours, ms per batch": lambda r: f"{r['sampling']['ms_per_batch']:.1f}",
    }
    first = result["stores"][0]
    if first["sampling"]["pyg_ms_per_batch"] is not None:
        rows["PyG's NeighborLoader, ms per batch"] = lambda r: f"{r['sampling']['pyg_ms_per_batch']:.1f}"
    if "inference" in first:
        rows["scores of all nodes, nodes/s"] = lambda r: f"{r['inference']['nodes_per_s']:,.0f}"
        rows["their seconds"] = lambda r: f"{r['inference']['seconds']:,.1f}"
        rows["their own memory, MiB"] = lambda r: f"{r['inference']['own_mib']:,.0f}"
    if "pack" in first:
        rows["packing, seconds"] = lambda r: f"{r['pack']['seconds']:,.1f}"
        rows["packing, CPU seconds"] = lambda r: f"{r['pack']['cpu_seconds']:,.1f}"
        rows["packing, resident, MiB"] = lambda r: f"{r['pack']['resident_mib']:,.0f}"
    for name, figure in rows.items():
        table.add_row(name, *(figure(r) for r in result["stores"]))
    out.print(table)
