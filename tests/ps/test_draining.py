"""A snapshot that is under way for long: what is held, and what happens to it meanwhile."""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from ckpttool.errors import CkpttoolError, NoSpaceError
from ckpttool.formats.crc32c import crc, extend
from ckpttool.ps.live_client import LiveClient
from ckpttool.ps.runtime.fetched import chunks_of
from ckpttool.ps.runtime.pace import Pace
from tests.support.clusters import Cluster, until
from tests.support.command import run_cli
from tests.support.trained import counters, training

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are counted in /proc")

#: A byte a second: whoever is held does not live to see the end.
FOR_EVER = ("--drain-rate", "1")


@pytest.fixture
def _tensorflow() -> None:
    """Imported in children only."""
    if find_spec("tensorflow") is None:
        pytest.skip("TensorFlow is not installed")


def client(running: Cluster) -> LiveClient:
    return LiveClient(str(running.directory), timeout=300)


def trains(running: Cluster, beyond: int = 5) -> int:
    """Wait until the training is past a step; gives the step."""

    def step() -> int:
        assert running.process.poll() is None, running.said()
        try:
            with client(running) as live:
                found = live.ask("status")["step"] or 0
        except CkpttoolError:
            return 0  # it is being started again
        return found if found > beyond else 0

    return int(until(step, running.said()))


def left(running: Cluster) -> list[str]:
    """All names in ``snapshots`` but those of locks."""
    names = (path.name for path in (running.directory / "snapshots").iterdir())
    return sorted(name for name in names if not name.endswith(".lock"))


def half_written(running: Cluster) -> list[str]:
    """The files of a snapshot that is being written."""
    return [name for name in left(running) if name.startswith(".")]


@pytest.fixture
def held(tmp_path: Path, _tensorflow: None) -> Iterator[Cluster]:
    """A training whose snapshots take for ever, as long as it goes on."""
    words = ("--partition", "fixed", "--snapshot-every", "0", *FOR_EVER)
    with training(tmp_path, "wide", *words) as running:
        running.wait_for()
        trains(running)
        yield running


def asked(running: Cluster) -> dict[str, object] | CkpttoolError:
    """What a client that asks for a snapshot gets."""
    with client(running) as live:
        try:
            return dict(live.ask("snapshot"))
        except CkpttoolError as error:
            return error


def test_training_goes_on_beside_it_and_a_stop_does_not_wait_for_it(held) -> None:
    """What is copied is of one moment, however many steps are made until it is fetched."""
    with ThreadPoolExecutor(1) as thread:
        answer = thread.submit(asked, held)
        until(lambda: half_written(held), held.said())
        trains(held, trains(held) + 100)
        assert not answer.done()
        with client(held) as live:
            live.ask("stop")
        made = answer.result()
    assert isinstance(made, dict), made
    assert counters(str(made["prefix"])) == (made["step"], made["step"])
    assert run_cli(["verify", str(made["prefix"])]).returncode == 0


@pytest.mark.slow
def test_deaths_in_the_middle_of_it(held) -> None:
    """FAULTS 22. The client hears of it, nothing half stays, and training goes on."""
    for victim in ("ps-1", "chief-0"):
        with ThreadPoolExecutor(1) as thread:
            answer = thread.submit(asked, held)
            until(lambda: half_written(held), held.said())
            chief = held.task("chief-0")["pid"]
            os.kill(held.task(victim)["pid"], signal.SIGKILL)
            error = answer.result()
        assert isinstance(error, CkpttoolError), error
        assert error.id in {"ps-lost", "live-unreachable"}
        held.wait_for_restart("chief-0", chief)
        trains(held)
        assert left(held) == []


@pytest.mark.usefixtures("_tensorflow")
def test_a_disk_that_is_full_in_the_middle_of_it(tmp_path: Path) -> None:
    """The training goes on, nothing half stays, and the next one is made when there is room."""
    with training(tmp_path, "wide", "--partition", "fixed", "--snapshot-every", "0") as running:
        running.wait_for()
        step = trains(running)
        chief = running.task("chief-0")["pid"]
        old = resource.prlimit(chief, resource.RLIMIT_FSIZE)
        resource.prlimit(chief, resource.RLIMIT_FSIZE, (2**24, old[1]))
        error = asked(running)
        assert isinstance(error, NoSpaceError), error
        assert "snapshots" in error.what
        assert left(running) == []
        trains(running, step + 20)
        resource.prlimit(chief, resource.RLIMIT_FSIZE, old)
        made = asked(running)
        assert isinstance(made, dict), made
        assert counters(str(made["prefix"])) == (made["step"], made["step"])
        with client(running) as live:
            assert live.ask("status")["syncs"] == {"ok": 1, "failed": 1}


@pytest.mark.usefixtures("_tensorflow")
def test_nothing_is_held_when_nobody_trains(tmp_path: Path) -> None:
    with training(tmp_path, "still", *FOR_EVER, "--exit-when-done") as running:
        assert running.process.wait(300) == 0, running.said()
    (newest,) = (running.directory / "snapshots").glob("*.index")
    assert counters(str(newest.with_suffix(""))) == (20, 20)


def test_a_pace_lets_so_much_pass_and_no_more() -> None:
    pace = Pace(1000.0, lambda: True, threading.Event())
    began = time.monotonic()
    for _ in range(10):
        pace.passed(100)
    assert time.monotonic() - began >= 0.7  # a quarter of a second may be caught up with


@pytest.mark.parametrize("rate", [0, 1])
def test_a_pace_that_holds_nothing(rate) -> None:
    hurry = threading.Event()
    if rate:
        hurry.set()
    Pace(rate, lambda: True, hurry).passed(10**9)
    Pace(1, lambda: False, threading.Event()).passed(10**9)


@pytest.mark.parametrize("size", [0, 1, 2**20 - 4, 2**20, 2**21 + 4])
def test_a_fetched_array_is_the_bytes_of_a_file(size, tmp_path: Path) -> None:
    """Whatever takes bytes takes what comes: it is written, summed and measured."""
    array = np.arange(size // 4, dtype=np.float32)
    chunks = list(chunks_of(array))
    value = 0
    with (tmp_path / "file").open("wb", buffering=0) as file:
        for chunk in chunks:
            assert file.write(chunk) == len(chunk)
            value = extend(value, chunk)
    assert (tmp_path / "file").read_bytes() == array.tobytes()
    assert value == crc(array.tobytes())
    assert b"".join(chunks) == array.tobytes()
    assert all(isinstance(chunk, bytes) for chunk in chunks if len(chunk) < 2**20)


@pytest.mark.parametrize("dtype", ["bfloat16", "bool", "complex64", "int8"])
def test_fetched_elements_of_every_size(dtype) -> None:
    array = np.zeros((3, 5), __import__("ml_dtypes").bfloat16 if dtype == "bfloat16" else dtype)
    assert b"".join(chunks_of(array)) == array.tobytes()


@pytest.mark.parametrize(("first", "count"), [(0, 40), (0, 48), (0, 7), (3, 37), (5, 16), (9, 0)])
def test_pieces_of_a_tensor_are_all_of_it_in_order(first, count, monkeypatch) -> None:
    """Whole pieces, a rest, both, and ranges that begin anywhere."""
    tf = pytest.importorskip("tensorflow")
    from ckpttool.ps.runtime import hosted

    monkeypatch.setattr(hosted, "PIECE_BYTES", 64)
    elements = np.arange(48 if first + count > 40 else 40, dtype=np.float32)
    pieces = list(hosted._fetch(tf.constant(elements.reshape(4, -1)), first, count))
    assert [piece.nbytes for piece in pieces[:-1]] == [64] * (len(pieces) - 1)
    found = np.concatenate([np.empty(0, np.float32), *pieces])
    assert np.array_equal(found, elements[first : first + count])
