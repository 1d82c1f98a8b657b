"""Several processes that train one model together, on one machine or several: `torchrun` starts them, torch joins them.

Every process is a rank with a number from 0 up. All run the same program on their share of the nodes; what they learn
is added up after every step. Rank 0 writes.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from time import monotonic
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from nfcgcn.errors import ConfigError, GraphError, NFCError, SilentError
from nfcgcn.graph import Ints
from nfcgcn.settings import one_line
from nfcgcn.training.values import DivergedError

BEAT, SILENCE = 5.0, 45.0
"""Seconds between two signs of life of a rank, and after how many without one the others stop."""
REMEDY = "the same command with --resume goes on from the last checkpoint"
ARRIVAL, PATIENCE = timedelta(minutes=5), timedelta(hours=2)
"""How long a rank waits for one that has not joined yet, and for one that lives but has more to do."""
log = logging.getLogger("nfcgcn")


class LostRankError(NFCError):
    """Another process of the same training has ended before its time."""


class Ranks:
    """The processes that train together; one alone unless :func:`joined` says otherwise."""

    number, count = 0, 1
    device = torch.device("cpu")

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes."""
        return self.number == 0

    def share(self, nodes: Ints) -> Ints:
        """Return this rank's part of some nodes."""
        return np.array_split(nodes, self.count)[self.number]

    def add_up(self, tensor: Tensor) -> Tensor:
        """Replace a tensor by its sum over all ranks, and return it."""
        if self.count > 1:
            with _losses():
                dist.all_reduce(tensor)
        return tensor

    def gather(self, rows: Tensor) -> Tensor:
        """Return the rows of all ranks, one rank's after the other's."""
        if self.count == 1:
            return rows
        with _losses():
            counts = torch.zeros(self.count, dtype=torch.int64, device=rows.device)
            counts[self.number] = len(rows)
            dist.all_reduce(counts)
            most = int(counts.max())
            padded = rows.new_zeros(most, *rows.shape[1:])
            padded[: len(rows)] = rows
            parts = [torch.empty_like(padded) for _ in range(self.count)]
            dist.all_gather(parts, padded)
        return torch.cat([part[: int(count)] for part, count in zip(parts, counts, strict=True)])

    def add_gradients(self, parameters: list[torch.nn.Parameter]) -> None:
        """Replace the gradients by their sums over all ranks.

        One sum of one vector: the models are small, so that DistributedDataParallel's overlap of sums with the backward
        pass would save nothing, and it would divide by the number of ranks, whose shares of a batch can differ.
        """
        if self.count == 1:
            return
        parts = [(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in parameters]
        total = self.add_up(torch.cat(parts))
        for p, part in zip(parameters, torch.split(total, [p.numel() for p in parameters]), strict=True):
            p.grad = part.view_as(p)

    def from_first(self, read: Callable[[], bytes]) -> bytes:
        """Return what rank 0 reads; FileNotFoundError for all if there is nothing, and its error for rank 0."""
        if self.count == 1:
            return read()
        content, error = b"", None
        if self.is_first:
            try:
                content = read()
            except Exception as problem:
                error = problem
        size = len(content) if error is None else -1 if isinstance(error, FileNotFoundError) else -2
        with _losses():
            length = torch.tensor([size], device=self.device)
            dist.broadcast(length, 0)
        if error is not None:
            raise error
        size = int(length)
        if size == -1:
            raise FileNotFoundError
        if size < 0:
            raise SilentError("rank 0 has reported an error")
        with _losses():
            data = torch.empty(size, dtype=torch.uint8, device=self.device)
            if self.is_first:
                data.copy_(torch.frombuffer(bytearray(content), dtype=torch.uint8))
            dist.broadcast(data, 0)
        return data.cpu().numpy().tobytes()

    def agree(self, what: str, text: str) -> None:
        """Refuse to go on if any rank has another `text` than rank 0; rank 0 says which."""
        if self.count == 1:
            return
        row = torch.zeros(1, 256, dtype=torch.uint8, device=self.device)
        content = text.encode()[:256]
        row[0, : len(content)] = torch.tensor(list(content), dtype=torch.uint8, device=self.device)
        rows = self.gather(row)
        others = [number for number in range(self.count) if not torch.equal(rows[number], rows[0])]
        if others:
            if not self.is_first:
                raise SilentError("rank 0 has reported an error")
            theirs = bytes(rows[others[0]].tolist()).rstrip(b"\0").decode(errors="replace")
            raise ConfigError(
                f"rank {others[0]} has another {what} than rank 0: {one_line(theirs)} instead of {one_line(text)}; "
                "give every process the same"
            )


_alone = Ranks()
_joined: Ranks | None = None


def current() -> Ranks:
    """Return the ranks that this process is one of."""
    return _joined or _alone


def wanted() -> bool:
    """Say whether `torchrun` has started this process as one of several."""
    return "RANK" in os.environ and _number("WORLD_SIZE", 1) > 1


def processes() -> int:
    """Return how many processes train together."""
    return _number("WORLD_SIZE", 1) if wanted() else 1


def is_first() -> bool:
    """Say whether this process writes and prints: rank 0, or the only one."""
    return not wanted() or _number("RANK", 0) == 0


def _number(variable: str, default: int) -> int:
    text = os.environ.get(variable) or str(default)
    if not (text.isascii() and text.isdigit()):
        raise ConfigError(f"the variable {variable} must be a whole number, got '{one_line(text)}'; torchrun sets it")
    return int(text)


@contextmanager
def joined(device: torch.device) -> Iterator[Ranks]:
    """Join the other processes that `torchrun` has started inside the block, by gloo on CPUs and NCCL on GPUs."""
    global _joined
    if not wanted():
        yield _alone
        return
    ranks = Ranks()
    ranks.number, ranks.count, ranks.device = _number("RANK", 0), _number("WORLD_SIZE", 1), device
    if device.type == "cuda":
        torch.cuda.set_device(device)
    address, port = os.environ.get("MASTER_ADDR", "localhost"), _number("MASTER_PORT", 29500)
    hosts = ranks.is_first and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    with _losses():
        try:
            store = _open_store(address, port, hosts=hosts, timeout=ARRIVAL)
            own = dist.PrefixStore(f"nfcgcn/{attempt}", store)  # type: ignore[attr-defined]
            _wait_for_all(own, ranks)
            dist.init_process_group(
                "nccl" if device.type == "cuda" else "gloo",
                store=own,
                rank=ranks.number,
                world_size=ranks.count,
                timeout=PATIENCE,
            )
        except (RuntimeError, ValueError) as error:
            raise ConfigError(
                f"rank {ranks.number} of {ranks.count} cannot reach {address}:{port}: {one_line(error)}; "
                "start all processes with torchrun, with the same --rdzv-endpoint"
            ) from error
    heart = _Heart(ranks, address, port, f"nfcgcn/{attempt}/alive")
    _joined = ranks
    try:
        try:
            yield ranks
        except (ConfigError, GraphError, DivergedError) as error:  # which all ranks meet
            if ranks.is_first:
                raise
            raise SilentError("rank 0 says why") from error
        with _losses():
            ranks.add_up(torch.zeros(1, device=device))  # nobody leaves before all are done
    finally:
        heart.stop()
        _joined = None
        if sys.exc_info()[0] is None:
            dist.destroy_process_group()


def _open_store(address: str, port: int, *, hosts: bool, timeout: timedelta) -> Any:
    """Return a connection to what all processes can read and write."""
    return dist.TCPStore(address, port, None, hosts, timeout=timeout, wait_for_workers=False)  # type: ignore[attr-defined]


def _wait_for_all(store: Any, ranks: Ranks) -> None:
    """Wait until every rank has come; one may have failed before, as for lack of the graph on its machine."""
    keys = [f"here/{number}" for number in range(ranks.count)]
    store.set(keys[ranks.number], "")
    missing = ""
    for time in (0.1 * ARRIVAL, 0.9 * ARRIVAL):
        if missing and ranks.is_first:
            log.info("waiting for rank %s", missing)
        try:
            store.wait(keys, time)
            return
        except RuntimeError:
            missing = ", ".join(str(number) for number, key in enumerate(keys) if not store.check([key]))
    raise LostRankError(
        f"rank {missing} has not come within {ARRIVAL.total_seconds():.0f} s; the output of its process says why"
    )


def device_of_rank(device: torch.device) -> torch.device:
    """Return this process's own GPU, by its number on the machine; a CPU is shared."""
    if device.type != "cuda" or not wanted():
        return device
    number = _number("LOCAL_RANK", 0)
    if number >= torch.cuda.device_count():
        raise ConfigError(
            f"there are {torch.cuda.device_count()} GPUs, and this is process {number + 1} of this machine; "
            "lower --nproc-per-node, or use --device cpu"
        )
    return torch.device("cuda", number)


@contextmanager
def _losses() -> Iterator[None]:
    """Turn what torch says about a connection that broke into one line."""
    try:
        yield
    except NFCError:
        raise
    except (RuntimeError, OSError) as error:
        if "memory" in str(error):
            raise
        raise LostRankError(
            f"rank {current().number} has lost the connection to another process of this training, which has ended or "
            f"was killed; {REMEDY}"
        ) from error


class _Heart:
    """Lets the others know that this rank lives, and ends it if one of them falls silent.

    A process that is killed closes its connections, which the others notice at once. One whose machine is gone does
    not, and on GPUs nobody would notice either.
    """

    def __init__(self, ranks: Ranks, address: str, port: int, prefix: str) -> None:
        self.ranks, self.prefix, self.place = ranks, prefix, (address, port)
        self.done = threading.Event()
        self.thread = threading.Thread(target=self._beat, name="nfcgcn-heart", daemon=True)
        self.thread.start()

    def stop(self) -> None:
        """Let the others know that silence is no death from now on."""
        self.done.set()
        self.thread.join(2 * BEAT)

    def _beat(self) -> None:
        heard = {number: (0, monotonic()) for number in range(self.ranks.count) if number != self.ranks.number}
        try:
            store = _open_store(*self.place, hosts=False, timeout=timedelta(seconds=SILENCE))
            while not self.done.wait(BEAT):
                store.add(f"{self.prefix}/{self.ranks.number}", 1)
                for number, (beats, since) in list(heard.items()):
                    now = store.add(f"{self.prefix}/{number}", 0)
                    heard[number] = (beats, since) if now == beats else (now, monotonic())
                    if now >= 0 and monotonic() - heard[number][1] > SILENCE:
                        self._die(f"rank {number} has not been heard of for {SILENCE:.0f} s")
            store.add(f"{self.prefix}/{self.ranks.number}", -(2**40))
        except Exception as error:
            if not self.done.is_set():
                self._die(f"the other processes cannot be reached: {one_line(error)[:90]}")

    def _die(self, reason: str) -> None:
        print(f"error: {reason}; {REMEDY}", file=sys.stderr)
        sys.stderr.flush()
        os._exit(2)
