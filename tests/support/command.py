"""Runs the command in a child process, in a clean environment and within a memory limit."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

__all__ = ["ROOT", "RunCli", "clean_environment", "limited", "run_cli"]

#: The project's root: the tests run against this tree, whatever is installed.
ROOT = Path(__file__).resolve().parents[2]

#: Sets the address-space limit, then becomes the command (no `preexec_fn`, which is
#: unsafe in a process with threads, such as one that has imported TensorFlow).
_EXEC_LIMITED = (
    "import os, resource, sys; size = int(sys.argv[1]);"
    "resource.setrlimit(resource.RLIMIT_AS, (size, size));"
    "os.execv(sys.argv[2], sys.argv[2:])"
)


class RunCli(Protocol):
    """The type of the `run_cli` fixture."""

    def __call__(
        self,
        args: Sequence[str | bytes | os.PathLike[str]],
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str | None] | None = None,
        memory_mb: int | None = None,
        stdin: str | None = None,
        timeout: float = 120.0,
    ) -> subprocess.CompletedProcess[str]:
        """Run `ckpttool ARGS` and return its exit code and output."""
        ...


def clean_environment(changes: Mapping[str, str | None] | None = None) -> dict[str, str]:
    """An environment in which output depends on nothing of the machine.

    ``changes`` are laid over it; None removes a variable. Keeps PATH and HOME.
    """
    env = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    env |= {
        "COLUMNS": "100",
        "LC_ALL": "C.UTF-8",
        "NO_COLOR": "1",
        "PYTHONPATH": str(ROOT),
        "PYTHONSAFEPATH": "1",  # as the console script: the working directory is no import path
        "TERM": "dumb",
        "TZ": "UTC",
    }
    for name, value in (changes or {}).items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = value
    return env


def limited(
    argv: Sequence[str | bytes | os.PathLike[str]], memory_mb: int | None
) -> list[str | bytes | os.PathLike[str]]:
    """The command line that runs ``argv`` within ``memory_mb`` MiB of address space.

    ``argv[0]`` has to be an absolute path.
    """
    if memory_mb is None:
        return list(argv)
    return [sys.executable, "-I", "-S", "-c", _EXEC_LIMITED, str(memory_mb * 2**20), *argv]


def run_cli(
    args: Sequence[str | bytes | os.PathLike[str]],
    *,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str | None] | None = None,
    memory_mb: int | None = None,
    stdin: str | None = None,
    timeout: float = 120.0,
) -> subprocess.CompletedProcess[str]:
    """Run ``python -m ckpttool ARGS`` in a child.

    Output is decoded as UTF-8 with surrogate escapes, so ``os.fsencode`` gives the exact
    bytes back; stdin is empty unless given.
    """
    argv = limited([sys.executable, "-m", "ckpttool", *args], memory_mb)
    return subprocess.run(
        argv,
        cwd=cwd,
        env=clean_environment(env),
        input=stdin or "",
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        timeout=timeout,
        check=False,
    )
