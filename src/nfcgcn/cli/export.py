"""`nfcgcn export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from nfcgcn import files
from nfcgcn.cli.console import app, out
from nfcgcn.errors import ConfigError
from nfcgcn.inference import checkpoint
from nfcgcn.inference.export import export


@app.command("export")
def export_run(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A folder that `nfcgcn train` wrote.")],
    out_file: Annotated[Path, typer.Option("--out", help="The .pt2 or .onnx file to write.")],
) -> None:
    """Write a run's model as a program for graphs of any size, which needs only PyTorch (.pt2) or an ONNX runtime.

    The .pt2 program of NFC-GCN draws its own neighbours. The .onnx one takes a table of them as a third input.
    """
    if out_file.suffix not in (".pt2", ".onnx"):
        raise ConfigError(f"--out must end in .pt2 or .onnx, got '{out_file.name}'")
    files.check_writable(out_file)
    saved = checkpoint.load_run(run)
    if saved.weighted:
        raise ConfigError(f"{run} was trained with edge weights, which an exported program cannot use")
    notes: dict[str, Any] = {"model": saved.model_name, "classes": saved.class_names, "features": saved.feature_names}
    if saved.model.temperature != 1:
        notes["temperature"] = saved.model.temperature  # the program returns scores, which are not yet divided by it
    program = export(saved.model, out_file, notes=notes)
    inputs = ", ".join(program.graph_signature.user_inputs)
    out.print(f"written: {out_file}, which takes {inputs}", highlight=False, markup=False, soft_wrap=True)
