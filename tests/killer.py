"""Run commands of nfcgcn again and again, each time with a kill or an error at another of their file operations.

`python tests/killer.py` reads JSON from stdin: the ``folder`` to start from, its ``setup`` (commands that fill it), and
``commands``, each with the ways in which it fails: at every ``step``-th operation, or only at ``most`` of these, evenly
spread. It runs each command once undisturbed; then, per way and operation, it makes a copy of the folder, forks, and
runs the command in the copy up to that operation. It prints one JSON object per fork. All modules are loaded once, by
the setup.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import itertools
import json
import os
import resource
import shutil
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import pictures

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
EVENTS = {"os.rename", "os.mkdir", "os.rmdir", "os.remove", "os.truncate", "os.link", "os.symlink", "os.chmod"}


class Failure:
    """A kill or an error at one file operation of this process, inside its working folder."""

    def __init__(self, number: int, way: str) -> None:
        self.here, self.left, self.way, self.what = f"{Path.cwd()}/", number, way, ""
        sys.addaudithook(self.hear)
        fsync = os.fsync

        def counted(handle: int) -> None:
            if str(Path(f"/proc/self/fd/{handle}").readlink()).startswith(self.here[:-1]):
                self.count("fsync")
            fsync(handle)

        os.fsync = counted

    def hear(self, event: str, details: tuple[Any, ...]) -> None:
        """Be told of an event by Python's audit hooks."""
        if event == "ctypes.dlsym" and details[1] == "renameat2":
            self.count("exchange")
        elif event in EVENTS:
            inside_folder = isinstance(details[-1], int) and details[-1] >= 0  # by `rmtree`, relative to an open folder
            if inside_folder or self.is_here(details[0]):
                self.count(f"{event} {details[0]}")
        elif event == "open" and (details[2] or 0) & WRITES and self.is_here(details[0]):
            self.count(f"open {details[0]}")

    def is_here(self, path: Any) -> bool:
        return not isinstance(path, int) and str(Path.cwd() / os.fsdecode(path)).startswith(self.here)

    def count(self, what: str) -> None:
        self.left -= 1
        if self.left:
            return
        self.what = what
        if self.way == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.way == "interrupted":
            raise KeyboardInterrupt
        elif self.way == "error":
            raise OSError(errno.ENOSPC, "No space left on device")
        elif self.way == "full":  # from now on, no byte can be written
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))


def call(arguments: list[str]) -> int:
    """Run one command in this process and return its exit code; 99 for an exception that is not one of ours."""
    from nfcgcn import cli
    from nfcgcn.training import unfinished

    pictures.leave_out(setattr)
    unfinished.SECONDS = 0.0 if "--resume" in arguments else 1e9  # keep the place of a run after every epoch, or never
    sys.argv = ["nfcgcn", *arguments]
    try:
        cli.main()
    except SystemExit as leaving:
        return int(leaving.code or 0)
    except BaseException:
        traceback.print_exc()
        return 99
    return 0


def fork(folder: Path, arguments: list[str], number: int = 0, way: str = "") -> dict[str, Any]:
    """Run one command in a fork, inside `folder`; return how it ended."""
    reading, writing = os.pipe()  # holds 64 KiB, more than any command prints
    child = os.fork()
    if not child:
        os.chdir(folder)
        os.dup2(writing, 1)
        os.dup2(writing, 2)
        failure = Failure(number, way)
        code = call(arguments)
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            ended = json.dumps({"what": failure.what, "operations": number - failure.left})
            folder.with_name(folder.name + ".what").write_text(ended)
        os._exit(code)
    os.close(writing)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with os.fdopen(reading, "rb") as file:
        output = file.read().decode()
    path = folder.with_name(folder.name + ".what")
    ended = json.loads(path.read_text()) if path.exists() else {"what": ""}
    reached = code == -signal.SIGKILL or bool(ended["what"])
    return {"folder": str(folder), "code": code, "output": output, "reached": reached, **ended}


def thread_names() -> list[str]:
    """Return the names of all threads of this process."""
    names = []
    for task in Path("/proc/self/task").glob("*/comm"):
        with contextlib.suppress(OSError):  # it has just ended
            names.append(task.read_text())
    return names


def main() -> None:
    """Do as stdin says."""
    sys.modules["numba"] = None  # type: ignore[assignment]  # its threads do not survive a fork; plain formulas will do
    wanted = json.load(sys.stdin)
    start = Path(wanted["folder"])
    os.chdir(start)
    for arguments in wanted["setup"]:
        with contextlib.redirect_stdout(sys.stderr):
            code = call(arguments)
        if code:
            sys.exit(f"{arguments} ended with {code}")
    for _ in range(100):  # a thread that was joined may still be on its way out
        threads = [name for name in thread_names() if not name.startswith("jemalloc")]  # Arrow's; it survives a fork
        if len(threads) == 1:
            break
        time.sleep(0.1)
    else:
        sys.exit(f"a fork would lose threads: {threads}")
    gc.disable()
    gc.freeze()  # so that forks share the memory
    for command in wanted["commands"]:
        whole = attempt(start, command, "", 0)
        for way, (step, most) in command["ways"].items():
            for number in spread(range(1, whole["operations"] + 1, step), most) if most else itertools.count(1, step):
                if not attempt(start, command, way, number)["reached"]:
                    break


def spread(numbers: range, most: int) -> list[int]:
    """Return at most so many of the numbers, evenly spread."""
    most = min(most, len(numbers))
    return [numbers[(2 * i + 1) * len(numbers) // (2 * most)] for i in range(most)]


def attempt(start: Path, command: dict[str, Any], way: str, number: int) -> dict[str, Any]:
    """Run a command in a copy of the folder, let it fail, and print how that went."""
    folder = start.with_name(f"{start.name}-{command['name']}-{way}-{number}")
    shutil.copytree(start, folder, symlinks=True)
    done = fork(folder, command["arguments"], number, way)
    if "--resume" in command["arguments"] and done["code"] == -signal.SIGKILL:
        again = folder.with_name(f"{folder.name}-again")
        shutil.copytree(folder, again, symlinks=True)
        done["again"] = fork(again, command["arguments"])
    print(json.dumps({"command": command["name"], "way": way, "number": number, **done}), flush=True)
    return done


if __name__ == "__main__":
    main()
