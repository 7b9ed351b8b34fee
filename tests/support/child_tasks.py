"""Tasks for a child of `ckpttool/conversion/child.py` that behave as converters do at times."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import Any

from ckpttool.errors import UnsupportedError

__all__ = ["run"]


def run(job: dict[str, Any]) -> dict[str, Any]:  # noqa: PLR0912 - a list of what may happen
    """Do what ``job["do"]`` says."""
    sys.stdout.write("on python's stdout\n")
    os.write(1, b"on descriptor 1\n")
    os.write(2, b"on descriptor 2\n")
    sys.stdout.flush()
    match job["do"]:
        case "answer":
            return {"echo": job}
        case "refuse":
            raise UnsupportedError(
                "no such thing", why="1 of 2", hint="try", id="dtype-unsupported"
            )
        case "fail":
            raise ValueError("first line\nsecond line")
        case "missing":
            raise ModuleNotFoundError("No module named 'tf2onnx'", name="tf2onnx")
        case "abort":
            os.abort()
        case "signal":
            os.kill(os.getpid(), int(job["number"]))
        case "long":
            return {"echo": "x" * (64 * 2**20)}
        case "forges":
            with open(sys.argv[2], "w") as file:
                file.write(job["answer"])
            os._exit(0)
        case "full":
            with open("/dev/full", "w") as file:
                file.write("x")
        case "unanswered":
            os.symlink("/dev/full", f"{sys.argv[2]}~")
            return {"echo": job}
        case "exit":
            os._exit(7)
        case "sys.exit":
            sys.exit(0)
        case "prints":
            while True:
                os.write(1, b"x" * 2**16)
        case "leaves":
            grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            return {"pid": grandchild.pid}
        case "memory":
            held = bytearray(256 * 2**20)
            held[::4096] = b"x" * len(held[::4096])
            time.sleep(600)
        case "hang":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            with open(job["pids"], "w") as file:
                file.write(f"{os.getpid()} {grandchild.pid}")
            time.sleep(600)
    return {}
