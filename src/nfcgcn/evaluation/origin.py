"""Where figures come from: hardware, versions and commit."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch


def environment(device: torch.device) -> dict[str, Any]:
    """Return the hardware, the versions and the commit that figures come from."""
    return {
        "device": device.type,
        "hardware": hardware(device),
        "versions": {
            "python": platform.python_version(),
            "nfcgcn": _nfcgcn_version(),
            **{package: version(package) for package in ("torch", "numpy", "scipy", "numba")},
        },
        "commit": commit(),
    }


def hardware(device: torch.device) -> str:
    """Return the name of the processor that the run used, and for a CPU the number of threads."""
    name = processor(device)
    threads = torch.get_num_threads()
    return name if device.type == "cuda" else f"{name}, {threads} thread{'s' if threads > 1 else ''}"


def processor(device: torch.device) -> str:
    """Return the name of the processor or the graphics card."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
        name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), name)
    return name


def commit() -> str | None:
    """Return the value of ``NFCGCN_COMMIT``, or the commit of the running source tree, or None."""
    if given := os.environ.get("NFCGCN_COMMIT"):
        return given
    root = Path(__file__).resolve().parents[3]
    git = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        if not (root / ".git").exists():
            raise FileNotFoundError(root / ".git")
        done = subprocess.run(git, capture_output=True, text=True, timeout=5, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _nfcgcn_version() -> str:
    from nfcgcn import __version__

    return __version__
