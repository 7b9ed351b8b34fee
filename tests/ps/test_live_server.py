"""How ``live.sock`` ends: the training ends, and who has asked something hears of it."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ckpttool.errors import UnreachableError
from ckpttool.ps.live_client import LiveClient
from ckpttool.ps.runtime.live_server import LiveServer


def test_an_answer_under_way_arrives(tmp_path: Path) -> None:
    """`stop` ends the training, and with it the server, before it is answered."""
    asked = threading.Event()

    def stop(_: object) -> object:
        asked.set()
        time.sleep(0.2)
        return {"stopping": True}

    with LiveClient(str(tmp_path)) as live, ThreadPoolExecutor() as pool:
        with LiveServer(str(tmp_path), {"stop": stop}):
            answer = pool.submit(live.ask, "stop")
            assert asked.wait(10)
        assert answer.result(10) == {"stopping": True}
        with pytest.raises(UnreachableError):
            live.ask("stop")


def test_an_answer_that_never_comes_holds_nothing(tmp_path: Path) -> None:
    asked, over = threading.Event(), threading.Event()

    def snapshot(_: object) -> object:
        asked.set()
        over.wait(60)
        return {}

    with LiveClient(str(tmp_path)) as live, ThreadPoolExecutor() as pool:
        with LiveServer(str(tmp_path), {"snapshot": snapshot}):
            answer = pool.submit(live.ask, "snapshot")
            assert asked.wait(10)
            before = time.monotonic()
        assert time.monotonic() - before < 10
        with pytest.raises(UnreachableError):
            answer.result(10)
        over.set()
