"""Feed every reader odd and damaged input, go on to training, explaining and exporting, and see that nothing breaks.

A case is a number: it decides the kind of input, its content and what is done with it. Every case runs in a forked
child, with at most 2 GiB beyond what the interpreter took before and at most a minute. One of our errors is a good end;
any other exception, code from a file, a signal, too much memory or time is a failure. `make fuzz` runs many;
``python tests/fuzz.py --replay NUMBER`` repeats one.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("NUMBA_NUM_THREADS", "1")
os.environ.setdefault("NUMBA_THREADING_LAYER", "workqueue")  # the only one that lives through a fork

import pyarrow.parquet  # noqa: F401  (else every child would load it)
import sklearn.feature_extraction.text  # noqa: F401
import torch

import nfcgcn
from fuzzed_folders import comparisons, keep_run, look, prepare, presets, runs, settings, studies, unfinished, use
from fuzzed_graphs import SPRUNG, Draw, additions, frames, networkx, npz, parquet, pickles, pyg, stores, tables
from fuzzed_tasks import find_links, link_runs, logs, packs, prepare_tasks, recommenders
from nfcgcn import NFCError
from nfcgcn.config.registry import MODELS, make_config
from nfcgcn.evaluation import repeat
from nfcgcn.inference.checkpoint import load_run

MEMORY, SECONDS = 2**31, 60
WIDE = 10_000
"""Of a wider graph no page is drawn: reasons for all its nodes take NFC-GCN many minutes, and no limit is promised."""
KINDS = (
    tables, parquet, npz, pyg, networkx, tables, npz, pyg, pickles, presets, studies, runs, frames, additions,
    unfinished, comparisons, stores, link_runs, recommenders, logs, packs,
)  # fmt: skip


def go_on(draw: Draw, graph: nfcgcn.Graph, folder: Path) -> None:
    """Train on a graph that was accepted, keep the run, read it back and use it."""
    nfcgcn.inspect(graph)
    if draw.chance(0.1):
        nfcgcn.write_npz(graph, folder / "again.npz")
        nfcgcn.load(folder / "again.npz")
    if draw.chance(0.1):
        find_links(draw, graph, folder)
        return
    model = draw.one(("nfc-gcn", "gcn", draw.one(MODELS)))
    config = make_config(model, graph=graph, settings={**settings(draw, model, 0.1), "epochs": draw.one((1, 2))})
    repeats = repeat(graph, config, [draw.one((0, 2**40))])
    keep_run(folder / "kept", graph, config, repeats)
    saved = load_run(folder / "kept")
    saved.check_features(graph)
    use(draw, saved.model, graph)
    if draw.chance(0.05) and graph.num_features <= WIDE:
        look(saved, graph, folder / "kept")


def by_command(draw: Draw, folder: Path) -> None:
    """The same through the command line, with its pages and tables; only the files in the folder are read."""
    from nfcgcn import cli

    path = next((p for p in (folder / "own.npz", folder / "own.pt") if p.exists()), folder)
    for arguments in (
        ["inspect", path], ["train", path, "--set", "epochs=1", "--out", folder / "out"],
        ["predict", folder / "out", path, "--out", folder / "p.csv"], ["explain", folder / "out", path, "--global"],
        ["report", folder / "out"], ["explore", folder / "out", path, "--out", folder / "e.gexf"],
    ):  # fmt: skip
        sys.argv = ["nfcgcn", *map(str, arguments)]
        try:
            cli.main()
        except SystemExit as leaving:
            if leaving.code not in (None, 0, 2):
                raise RuntimeError(f"exit code {leaving.code} of {sys.argv}") from leaving


def run_case(number: int, folder: Path) -> str:
    """Run a case and return how it ended; raises whatever is no error of ours."""
    draw = Draw(number)
    make = KINDS[number % len(KINDS)]
    kind, end = make.__name__, "refused"
    try:
        graph = make(draw, folder)
        end = "accepted"
        if graph is not None:
            go_on(draw, graph, folder)
            end = "accepted and trained"
    except NFCError:
        pass
    if kind in ("tables", "npz", "pyg", "parquet") and draw.chance(0.01):
        by_command(draw, folder)
    if (folder / SPRUNG).exists():
        raise RuntimeError("code from a file was run")
    return f"{kind}: {end}"


def forked(number: int, *, memory: int = MEMORY) -> tuple[bool, str, int]:
    """Run a case in a child; return whether it ended well, how, and how many MiB it held at most."""
    reader, writer = os.pipe()
    with tempfile.TemporaryDirectory(prefix="nfcgcn-fuzz-") as name:
        child = os.fork()
        if not child:
            code = 1
            try:
                os.close(reader)
                os.chdir(name)
                silent = os.open(os.devnull, os.O_RDWR)
                os.dup2(silent, 1)
                os.dup2(silent, 2)
                used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
                resource.setrlimit(resource.RLIMIT_AS, (used + memory, used + memory))
                resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))  # whatever else the machine does
                torch.set_num_threads(1)  # its pool is made anew here: two threads of a case that do so at once fail
                signal.alarm(20 * SECONDS)  # for a case that waits for something
                message = run_case(number, Path(name))
                code = 0
            except BaseException:
                message = traceback.format_exc()
            with os.fdopen(writer, "wb") as stream:
                stream.write(message.encode(errors="replace"))
            os._exit(code)
        os.close(writer)
        with os.fdopen(reader, "rb") as stream:
            message = stream.read().decode()
        _, status, used = os.wait4(child, 0)
    peak = used.ru_maxrss // 1024
    if os.WIFSIGNALED(status):
        return False, f"killed by {signal.Signals(os.WTERMSIG(status)).name}", peak
    return os.WEXITSTATUS(status) == 0, message, peak


def fuzz(numbers: range, *, report: Any = print) -> tuple[Counter[str], dict[int, str]]:
    """Run cases; return how many ended in which way, and the failures by number."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    ends: Counter[str] = Counter()
    failures, most = {}, (0, 0)
    with tempfile.TemporaryDirectory(prefix="nfcgcn-fuzz-seeds-") as folder:
        prepare(Path(folder))
        prepare_tasks(Path(folder))
        shown = time.monotonic()
        for number in numbers:
            good, message, peak = forked(number)
            most = max(most, (peak, number))
            ends[message if good else "FAILED"] += 1
            if not good:
                failures[number] = message
                report(f"case {number} failed: python tests/fuzz.py --replay {number}\n{message}")
            if time.monotonic() - shown > 30:
                shown = time.monotonic()
                report(f"{number - numbers.start + 1} of {len(numbers)} cases, {len(failures)} failures")
        report(f"no case held more than {most[0]} MiB, with the interpreter; case {most[1]} did")
    return ends, failures


def main() -> None:
    """Run many cases, or one again."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--replay", type=int, help="run this case only, in this process")
    options = parser.parse_args()
    if options.replay is not None:
        torch.set_num_threads(1)
        with tempfile.TemporaryDirectory() as seeds, tempfile.TemporaryDirectory() as folder:
            prepare(Path(seeds))
            prepare_tasks(Path(seeds))
            os.chdir(folder)
            print(run_case(options.replay, Path(folder)))
        return
    start = time.monotonic()
    ends, failures = fuzz(
        range(options.first, options.first + options.cases), report=lambda text: print(text, flush=True)
    )
    for end, count in sorted(ends.items()):
        print(f"{count:6} {end}")
    print(f"{len(failures)} failures in {options.cases} cases, {time.monotonic() - start:.0f} s")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
