"""A traced model as an ONNX file, for runtimes without PyTorch."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nfcgcn.errors import ConfigError

if TYPE_CHECKING:
    from torch.export import ExportedProgram


def to_onnx(program: ExportedProgram, takes: Mapping[str, Sequence[int | str]], notes: tuple[str, Any]) -> bytes:
    """Return the content of an ONNX file.

    `takes` has the shapes of the inputs by name; a text stands for a size that is free. `notes` is a name and plain
    JSON values for it, which the file keeps as metadata.
    """
    import torch

    try:
        import onnxscript  # noqa: F401  (what torch converts with)
    except ImportError as error:
        raise ConfigError("an ONNX file needs the package onnxscript: pip install 'nfcgcn[onnx]'") from error
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)  # they speak of packages that are not installed, and are not needed
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            converted = torch.onnx.export(program, verbose=False)
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
    if converted is None:  # so says its type; it is for another way to call it
        raise ConfigError("torch.onnx gave no file")
    proto = converted.model_proto
    names = {}
    for value in proto.graph.input:
        for size, name in zip(value.type.tensor_type.shape.dim, takes[value.name], strict=True):
            if isinstance(name, str):
                names[size.dim_param] = name
    for value in (*proto.graph.input, *proto.graph.output, *proto.graph.value_info):
        for size in value.type.tensor_type.shape.dim:
            if size.dim_param in names:
                size.dim_param = names[size.dim_param]
    key, values = notes
    proto.metadata_props.add(key=key, value=json.dumps({"takes": takes, **values}))
    return bytes(proto.SerializeToString())
