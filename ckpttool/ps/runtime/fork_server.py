"""The process of ``ps/fork_server.py``: imports TensorFlow, forks on request, reaps.

One thread, and no operation of TensorFlow is ever run here. Ends when the supervisor
closes its end, or ends.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import socket
import sys
import traceback
from typing import Any, NoReturn

from ckpttool.ps.channel import Channel

__all__ = ["main"]


def main(descriptor: int) -> NoReturn:
    """Serve the requests that come through this socket."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the supervisor's affair
    control = socket.socket(fileno=descriptor)
    import tensorflow as tf  # noqa: F401 - so that the children have it

    wake, waker = os.pipe()
    os.set_blocking(waker, False)
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, _noted)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    _tell(control, {"event": "ready"})
    requests = _Requests(control)
    children: dict[int, int] = {}
    sources: list[socket.socket | int] = [control, wake]
    while True:
        readable, _, _ = select.select(sources, [], [])
        if control in readable:
            for request, channel, log in requests.read():
                pid = os.fork()
                if pid == 0:
                    signal.set_wakeup_fd(-1)
                    for unneeded in (wake, waker):
                        os.close(unneeded)
                    control.close()
                    _become(request, channel, log)
                os.close(channel)
                os.close(log)
                children[pid] = request["number"]
                _tell(control, {"event": "started", "number": request["number"], "pid": pid})
        if wake in readable:
            os.read(wake, 4096)
            _reap(control, children)


class _Requests:
    """Requests are lines; each comes with two descriptors, in the same order."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._rest = b""
        self._descriptors: list[int] = []

    def read(self) -> list[tuple[dict[str, Any], int, int]]:
        """What has come: request, channel, log. Ends the process when nothing will."""
        data, descriptors, _, _ = socket.recv_fds(self._control, 2**16, 16)
        if not data:
            os._exit(0)
        self._descriptors += descriptors
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [
            (json.loads(line), self._descriptors.pop(0), self._descriptors.pop(0)) for line in lines
        ]


def _become(request: dict[str, Any], channel: int, log: int) -> NoReturn:
    """Be the child: its log, its lifeline, its work."""
    code = 1
    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for stream in (1, 2):
            os.dup2(log, stream)
        os.close(log)
        os.environ.update(request["environment"])
        link = Channel(channel)
        link.watch()
        importlib.import_module(request["module"]).run(request["job"], link)
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:  # noqa: BLE001 - whatever it is, the child must not go on as a server
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _reap(control: socket.socket, children: dict[int, int]) -> None:
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        number = children.pop(pid, None)
        if number is not None:
            code = os.waitstatus_to_exitcode(status)
            _tell(control, {"event": "ended", "number": number, "code": code})


def _tell(control: socket.socket, message: dict[str, object]) -> None:
    try:
        control.sendall(json.dumps(message).encode() + b"\n")
    except OSError:
        os._exit(0)  # the supervisor is gone


def _noted(number: int, frame: object) -> None:
    """SIGCHLD: the wake-up descriptor says so too, and is what is waited for."""
    del number, frame
