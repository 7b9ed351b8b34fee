"""A process by its number and its start, so that a number that is used again is nobody.

Knows nothing of clusters.
"""

from __future__ import annotations

import os
import subprocess
import sys

__all__ = ["start_of"]


def start_of(pid: int) -> str | None:
    """What only this process of all that have this number has; None where there is none.

    The boot and the clock tick at which it started (field 22 of ``/proc/PID/stat``), or
    where there is no such file, the time that ``ps`` tells. A process that has ended and is
    not yet reaped is none.
    """
    if sys.platform != "linux":
        return _asked(pid)
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name, in parentheses, may hold anything: fields count from its end.
            fields = file.read().rpartition(b")")[2].split()
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
    except OSError:
        return None
    state, ticks = fields[0], fields[19]
    return None if state in {b"Z", b"X"} else f"{boot}:{ticks.decode()}"


def _asked(pid: int) -> str | None:
    environment = {**os.environ, "LC_ALL": "C"}
    command = ["/bin/ps", "-o", "lstart=", "-p", str(pid)]
    answer = subprocess.run(  # noqa: S603 - a number
        command, capture_output=True, text=True, env=environment, check=False
    )
    return answer.stdout.strip() or None
