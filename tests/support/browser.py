"""A headless Chromium that opens one page of this machine, with a profile of its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["dom", "dom_of", "screenshot", "screenshot_of", "visited"]

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


def _waiting(seconds: int) -> str:
    return f"--virtual-time-budget={1000 * seconds}"


def _installed() -> str:
    found = next((path for name in _NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"no browser here: none of {', '.join(_NAMES)} is installed")
    return found


def _environment(profile: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": profile, "LC_ALL": "C.UTF-8"}


def _run(url: str, flags: Sequence[str], *, width: int, dark: bool, wait: str = _WAIT) -> str:
    found = _installed()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        done = subprocess.run(
            [
                found,
                *_FLAGS,
                wait,
                f"--blink-settings=preferredColorScheme={0 if dark else 1}",
                f"--user-data-dir={profile}",
                f"--window-size={width},1200",
                *flags,
                url,
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
    return _run(page.absolute().as_uri(), ["--dump-dom"], width=width, dark=dark)


def dom_of(url: str, *, seconds: int, width: int = 1280, dark: bool = False) -> str:
    """The document of a page that goes on changing, after so many seconds of its own time."""
    return _run(url, ["--dump-dom"], width=width, dark=dark, wait=_waiting(seconds))


def screenshot(page: Path, path: Path, *, width: int = 1280, dark: bool = False) -> bytes:
    """What it looks like, as PNG."""
    _run(page.absolute().as_uri(), [f"--screenshot={path.absolute()}"], width=width, dark=dark)
    return path.read_bytes()


def screenshot_of(
    url: str, path: Path, *, seconds: int, width: int = 1280, dark: bool = False
) -> bytes:
    """What it looks like then, as PNG."""
    flags = [f"--screenshot={path.absolute()}"]
    _run(url, flags, width=width, dark=dark, wait=_waiting(seconds))
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
