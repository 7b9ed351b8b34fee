"""A headless Chromium that opens one page of this machine, with a profile of its own."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

__all__ = ["Page", "dom", "opened", "screenshot", "visited"]

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
)
#: What waits for a page, in the page's own time.
_WAIT = "--virtual-time-budget=5000"


def _installed() -> str:
    found = next((path for name in _NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"no browser here: none of {', '.join(_NAMES)} is installed")
    return found


def _environment(profile: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": profile, "LC_ALL": "C.UTF-8"}


def _run(page: Path, flags: Sequence[str], *, width: int, dark: bool) -> str:
    found = _installed()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        done = subprocess.run(
            [
                found,
                *_FLAGS,
                _WAIT,
                f"--blink-settings=preferredColorScheme={0 if dark else 1}",
                f"--user-data-dir={profile}",
                f"--window-size={width},1200",
                *flags,
                page.absolute().as_uri(),
            ],
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=300,
            env=_environment(profile),
        )
    assert done.returncode == 0, done.stderr
    return done.stdout


def dom(page: Path, *, width: int = 1280, dark: bool = False) -> str:
    """The document after its script has run, as HTML."""
    return _run(page, ["--dump-dom"], width=width, dark=dark)


def screenshot(page: Path, path: Path, *, width: int = 1280, dark: bool = False) -> bytes:
    """What it looks like, as PNG."""
    _run(page, [f"--screenshot={path.absolute()}"], width=width, dark=dark)
    return path.read_bytes()


@contextmanager
def visited(url: str) -> Iterator[None]:
    """A browser that stays on a page of this machine until the block is left."""
    found = _installed()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [found, *_FLAGS, f"--user-data-dir={profile}", url]
        with open(os.path.join(profile, "log"), "wb") as log:
            process = subprocess.Popen(
                command, stdout=log, stderr=log, env=_environment(profile), start_new_session=True
            )
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


class Page:
    """A page in a browser, as long as that runs; its time is the clock's.

    Speaks the DevTools protocol over two pipes: JSON, each message ended by a NUL.
    """

    def __init__(self, reader: IO[bytes], writer: IO[bytes], url: str) -> None:
        self._reader = reader
        self._writer = writer
        self._number = 0
        self._session: str | None = None
        target = self._ask("Target.createTarget", url=url)["targetId"]
        attached = self._ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]

    def html(self) -> str:
        """The document as it is now; empty while the first of it is on its way."""
        asked = "document.documentElement ? document.documentElement.outerHTML : ''"
        found = self._ask("Runtime.evaluate", expression=asked)
        text: str = found["result"]["value"]
        return text

    def look(self, path: Path, *, width: int, dark: bool) -> bytes:
        """What all of it looks like now, as PNG."""
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self._ask("Emulation.setEmulatedMedia", features=scheme)
        size = {"width": width, "height": 1200, "deviceScaleFactor": 1, "mobile": False}
        self._ask("Emulation.setDeviceMetricsOverride", **size)
        shot = self._ask("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))
        return path.read_bytes()

    def _ask(self, method: str, **words: object) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": words}
        if self._session is not None:
            message["sessionId"] = self._session
        self._writer.write(json.dumps(message).encode() + b"\0")
        self._writer.flush()
        while True:
            answer = json.loads(self._message())
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                found: dict[str, Any] = answer["result"]
                return found

    def _message(self) -> bytes:
        text = bytearray()
        while (byte := self._reader.read(1)) != b"\0":
            assert byte, "the browser has ended"
            text += byte
        return bytes(text)


@contextmanager
def opened(url: str) -> Iterator[Page]:
    """A browser that has a page of this machine open until the block is left."""
    found = _installed()
    to_read, writes = os.pipe()
    reads, to_write = os.pipe()
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile,
        open(writes, "wb") as writer,
        open(reads, "rb") as reader,
    ):
        flags = [*_FLAGS, "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"]
        # It reads from 3 and writes to 4.
        shell = f'exec "$@" 3<&{to_read} 4>&{to_write}'
        process = subprocess.Popen(
            ["bash", "-c", shell, "bash", found, *flags],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=_environment(profile),
            pass_fds=[to_read, to_write],
            start_new_session=True,
        )
        os.close(to_read)
        os.close(to_write)
        try:
            yield Page(reader, writer, url)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
