"""Runs ckpttool and says what making things durable cost.

python -m benchmarks.durability FILE ARGUMENT…: FILE gets the seconds of CPU and the seconds
that passed in fsync. Python's own ``os.fsync`` is wrapped; nothing else is different.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from pathlib import Path

from ckpttool.cli.main import main

_real = os.fsync
_spent = [0.0, 0.0]


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _timed(descriptor: int) -> None:
    cpu, start = _cpu(), time.perf_counter()
    try:
        _real(descriptor)
    finally:
        _spent[0] += _cpu() - cpu
        _spent[1] += time.perf_counter() - start


if __name__ == "__main__":
    os.fsync = _timed  # type: ignore[assignment]
    code = main(sys.argv[2:])
    Path(sys.argv[1]).write_text(f"{_spent[0]} {_spent[1]}\n")
    sys.exit(code)
