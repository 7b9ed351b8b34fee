"""The gateway's process as the supervisor sees it: start, the line that it says, its end."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from ckpttool.conversion.wire import encode
from ckpttool.errors import CkpttoolError, ClusterError
from ckpttool.ps.live_protocol import error_of
from ckpttool.ps.restarts import Restarts
from ckpttool.ps.setup import GatewaySetup
from ckpttool.ps.tied import end_tied, spawn_tied

__all__ = ["GatewayProcess"]

_MODULE = "ckpttool.ps.gateway"


class GatewayProcess:
    """A gateway that is started again on the addresses that it once had.

    Attributes:
        rest: where it serves HTTP, while it does: a URL.
        grpc: where it serves gRPC, if it does: ``host:port``.
        was_ready: whether it ever did.
    """

    def __init__(self, setup: GatewaySetup, log: str) -> None:
        self._setup = setup
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._said = b""
        self.rest: str | None = None
        self.grpc: str | None = None
        self.was_ready = False
        self.restarts = Restarts()

    def start(self) -> None:
        """Start the process; ``fileno`` is readable when it says something, or ends."""
        self._said = b""
        self._process = spawn_tied(
            _MODULE, [encode(self._setup)], log=self._log, stdout=subprocess.PIPE
        )

    @property
    def pid(self) -> int | None:
        """Its process, while there is one."""
        return None if self._process is None else self._process.pid

    def fileno(self) -> int:
        """For a selector; only between ``start`` and its end."""
        assert self._process is not None
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def read(self) -> bool:
        """Take what it says; false: it has ended.

        Raises:
            CkpttoolError: it cannot serve at all, and why.
        """
        data = os.read(self.fileno(), 2**16)
        line, ended, rest = (self._said + data).partition(b"\n")
        self._said = rest if ended else line
        if ended:
            self._listen(line)
        return bool(data)

    def end(self) -> None:
        """End the process, if there is one."""
        self.rest = self.grpc = None
        if self._process is not None:
            end_tied(self._process)
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None

    def silent(self) -> CkpttoolError:
        """The error of a gateway that ended before it had said anything."""
        return ClusterError(
            "the gateway ended before it could serve",
            why="it did not say why",
            hint=f"its output is in {self._log}",
            id="gateway-died",
        )

    def _listen(self, line: bytes) -> None:
        try:
            said: Any = json.loads(line)
            if "error" in said:
                raise error_of(said["error"])
            self.rest = str(said["rest"])
            self.grpc = None if self._setup.grpc is None else str(said["grpc"])
        except (ValueError, TypeError, KeyError):
            raise self.silent() from None
        self.was_ready = True
        # A gateway that is started again is found where the first one was.
        bind = urlsplit(self.rest).netloc
        self._setup = replace(self._setup, bind=bind, grpc=self.grpc)
