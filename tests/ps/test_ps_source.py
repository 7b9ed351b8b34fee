"""``ps://``: what every source must do, over a real gateway; and what a hostile one sends."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckpttool.errors import CkpttoolError, NotFoundError
from ckpttool.formats.dtypes import BY_NAME
from ckpttool.limits import Limits
from ckpttool.sources.base import Source
from ckpttool.sources.registry import open_source
from ckpttool.sources.selection import Index, Selection
from tests.support.command import RunCli
from tests.support.live_stand_in import TOKEN, Training, gateway

INDICES: list[Index] = [
    (...,),
    (0,),
    (-1,),
    (slice(1, 3),),
    (..., 0),
    (slice(None, None, -2), slice(1, None)),
    (slice(0, 0),),
]


@contextmanager
def live(directory: Path, prefix: Path, **setup: Any) -> Iterator[tuple[Training, str]]:
    training = Training(directory, prefix)
    with training.answering(), gateway(directory, **setup) as said:
        yield training, str(said["rest"]).replace("http", "ps", 1)


@pytest.fixture(scope="module")
def served(
    tmp_path_factory: pytest.TempPathFactory, fixtures_dir: Path
) -> Iterator[tuple[Training, str]]:
    directory = tmp_path_factory.mktemp("run") / "all"
    with live(directory, fixtures_dir / "dtypes" / "all") as found:
        yield found


@pytest.fixture(autouse=True)
def _token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CKPTTOOL_TOKEN", TOKEN)


def error_of(action: Callable[[], object]) -> CkpttoolError:
    with pytest.raises(CkpttoolError) as caught:
        action()
    return caught.value


def pairs(served: Source, local: Source) -> Iterator[tuple[Any, Any]]:
    for one in local.variables():
        yield served.find(one.key), one


def test_lists_what_the_checkpoint_has(served: tuple[Training, str], fixtures_dir: Path) -> None:
    training, address = served
    with open_source(address) as ours, open_source(str(fixtures_dir / "dtypes" / "all")) as local:
        assert (ours.kind, ours.style, ours.address) == ("ps", "name", address)
        assert (ours.location, ours.number) == (address, training.number)
        assert ours.step == training.snapshots[-1]["step"]
        assert [(one.key, one.dtype, one.shape) for one in ours.variables()] == [
            (one.key, one.dtype, one.shape) for one in local.variables()
        ]
        assert list(ours.variables()) == list(ours.variables())


def test_every_dtype_has_the_same_bytes(served: tuple[Training, str], fixtures_dir: Path) -> None:
    with open_source(served[1]) as ours, open_source(str(fixtures_dir / "dtypes" / "all")) as local:
        for mine, theirs in pairs(ours, local):
            whole = Selection.whole(theirs.shape)
            if theirs.dtype == "string":
                assert ours.strings(mine, whole) == local.strings(theirs, whole)
            elif BY_NAME[theirs.dtype].size:
                assert b"".join(ours.chunks(mine, whole)) == b"".join(local.chunks(theirs, whole))
                (read,) = ours.reads(mine, whole)
                assert read.nbytes == theirs.nbytes
            else:
                assert error_of(lambda: list(ours.chunks(mine, whole))).exit_code == 12  # noqa: B023


def test_a_selection_is_what_numpy_selects(
    served: tuple[Training, str], fixtures_dir: Path
) -> None:
    with open_source(served[1]) as ours, open_source(str(fixtures_dir / "dtypes" / "all")) as local:
        for mine, theirs in pairs(ours, local):
            if (
                len(theirs.shape) < 2
                or not theirs.parameters
                or not (BY_NAME[theirs.dtype].size or mine.dtype == "string")
            ):
                continue
            everything = local.read(theirs, Selection.whole(theirs.shape))
            for index in INDICES:
                found = ours.read(mine, Selection.of(theirs.shape, index))
                expected = everything[index]
                assert found.shape == np.shape(expected)
                assert found.tolist() == np.asarray(expected).tolist()


def test_offers_the_nearest_of_what_is_not_there(served: tuple[Training, str]) -> None:
    with open_source(served[1]) as ours:
        with pytest.raises(NotFoundError) as caught:
            ours.find("array/strin")
        assert "array/string" in caught.value.hint
        assert ours.lookup("../x") is None


def test_limits_bound_the_list(served: tuple[Training, str]) -> None:
    assert error_of(lambda: open_source(served[1], Limits(entries=1))).id == "limit-entries"
    small = Limits(gateway_list_bytes=100)
    assert error_of(lambda: open_source(served[1], small)).id == "limit-gateway"


def test_closes_its_connections(served: tuple[Training, str]) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with open_source(served[1]) as ours:
        for variable in ours.variables():
            if variable.shape is not None and BY_NAME[variable.dtype].size:
                pieces = ours.chunks(variable, Selection.whole(variable.shape))
                next(pieces, None)  # the rest is not wanted
        assert len(os.listdir("/proc/self/fd")) > before
    del pieces
    assert len(os.listdir("/proc/self/fd")) == before


def test_one_command_sees_one_snapshot(tmp_path: Path, fixtures_dir: Path) -> None:
    with (
        live(tmp_path / "run", fixtures_dir / "mlp-v1" / "model.ckpt-1000", max_age=0.0) as (
            training,
            address,
        ),
        open_source(address) as first,
    ):
        variable = first.find("hidden/weights")
        whole = Selection.whole(variable.shape or ())
        before = first.read(variable, whole)
        training.prefix = fixtures_dir / "two-shards" / "model.ckpt-42"
        for _ in range(3):
            with open_source(address) as later:
                assert later.step != first.step
                assert later.lookup("tower/kernel") is not None
        training.remove_old()
        assert first.read(variable, whole).tobytes() == before.tobytes()
        for _ in range(10):  # the gateway keeps eight
            open_source(address).close()
        gone = error_of(lambda: first.read(variable, whole))
        assert (gone.id, gone.exit_code) == ("snapshot-gone", 30)


def test_the_commands_read_from_it(
    served: tuple[Training, str], run_cli: RunCli, fixtures_dir: Path, tmp_path: Path
) -> None:
    """D39: what runs is looked into like any checkpoint."""
    _, address = served
    local = str(fixtures_dir / "dtypes" / "all")
    env = {"CKPTTOOL_TOKEN": TOKEN}
    shown = run_cli(["inspect", address, "--json"], env=env)
    assert shown.returncode == 0, shown.stderr
    assert json.loads(shown.stdout)["data"]["kind"] == "ps"
    for command in (["list", address], ["diff", local, address], ["stats", address]):
        done = run_cli(command, env=env)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
    weights = str(tmp_path / "w.npz")
    made = run_cli(
        ["convert", address, weights, "--to", "npz", "--include", "array/float32"], env=env
    )
    assert made.returncode == 0, made.stderr
    out = str(tmp_path / "out")
    made = run_cli(["edit", address, out, "--keep", "array/float32"], env=env)
    assert made.returncode == 0, made.stderr
    same = run_cli(["diff", local, out, "--include", "array/float32"])
    assert same.returncode == 0, same.stdout


@pytest.mark.parametrize("token", ["", "another"])
def test_without_the_token_nothing_is_read(
    token: str, served: tuple[Training, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CKPTTOOL_TOKEN", token)
    error = error_of(lambda: open_source(served[1]))
    assert (error.id, error.exit_code) == ("gateway-token", 42)


def test_the_token_may_come_from_a_file(
    served: tuple[Training, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CKPTTOOL_TOKEN", "")
    monkeypatch.setenv("CKPTTOOL_TOKEN_FILE", str(served[0].directory / "token"))
    open_source(served[1]).close()
    monkeypatch.setenv("CKPTTOOL_TOKEN_FILE", str(served[0].directory / "none"))
    assert error_of(lambda: open_source(served[1])).exit_code == 10


def test_the_token_does_not_travel_in_the_clear() -> None:
    error = error_of(lambda: open_source("ps://192.0.2.1:8500"))
    assert (error.id, error.exit_code) == ("token-in-clear", 31)


@pytest.mark.parametrize(
    "address",
    [
        "ps://",
        "ps://host",
        "ps://:80",
        "ps://h:x",
        "ps://h:1/x",
        "ps://u@h:1",
        "ps://h:1?q",
        "ps://[::1:1",
    ],
)
def test_an_address_that_makes_no_sense(address: str) -> None:
    error = error_of(lambda: open_source(address))
    assert (error.id, error.exit_code) == ("gateway-url", 2)


def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    error = error_of(lambda: open_source(f"ps://127.0.0.1:{port}"))
    assert (error.id, error.exit_code) == ("gateway-unreachable", 60)


def test_a_gateway_without_a_training(tmp_path: Path, fixtures_dir: Path) -> None:
    training = Training(tmp_path / "run", fixtures_dir / "mlp-v1" / "model.ckpt-1000")
    with gateway(training.directory) as said:
        error = error_of(lambda: open_source(str(said["rest"]).replace("http", "ps", 1)))
    assert (error.id, error.exit_code) == ("gateway-failed", 60)
    assert "live" in error.why


# Hostile gateways -------------------------------------------------------------------------

VARIABLE = {"name": "w", "key": "w", "dtype": "float32", "shape": [2], "bytes": 8, "kind": "model"}
SNAPSHOT = {"number": 1, "step": 5, "consistent": True}


def listing(**changes: object) -> bytes:
    return json.dumps(
        {"snapshot": SNAPSHOT, "style": None, "variables": [VARIABLE], **changes}
    ).encode()


@contextmanager
def answering(list_body: bytes, value: bytes = b"", **headers: str) -> Iterator[str]:
    """A server that gives these answers, whatever it is asked."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = list_body if self.path == "/v1/variables" else value
            self.send_response(200)
            sent = {"ETag": '"1"', "Ckpttool-Dtype": "float32", "Content-Length": str(len(body))}
            for name, text in {**sent, **headers}.items():
                self.send_header(name, text)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"ps://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no JSON",
        b"[" * 100_000,
        b"[]",
        listing(snapshot=None),
        listing(snapshot={**SNAPSHOT, "step": "5"}),
        listing(style="other"),
        listing(variables=[1]),
        listing(variables=[VARIABLE, VARIABLE]),
        listing(variables=[{**VARIABLE, "shape": [-1]}]),
        listing(variables=[{**VARIABLE, "shape": [1.5]}]),
        listing(variables=[{**VARIABLE, "shape": [1] * 300}]),
        listing(variables=[{**VARIABLE, "bytes": 9}]),
        listing(variables=[{**VARIABLE, "shape": [2**62], "bytes": 8}]),
        listing(variables=[{**VARIABLE, "name": None}]),
        listing(variables=[{**VARIABLE, "name": "\ud800"}]),
        listing(variables=[{**VARIABLE, "key": "\ud800"}]),
        listing(variables=[{**VARIABLE, "kind": "\x1b"}]),
    ],
)
def test_a_malformed_list_is_refused(body: bytes) -> None:
    with answering(body) as address:
        assert error_of(lambda: open_source(address)).exit_code == 20


NPY = b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }"
GOOD = NPY + b" " * (127 - len(NPY)) + b"\n" + bytes(8)


@pytest.mark.parametrize(
    ("value", "headers", "code"),
    [
        (b"", {}, 60),
        (b"not npy at all and long enough", {}, 20),
        (GOOD[:-1], {}, 20),
        (GOOD + b"x", {}, 20),
        (GOOD.replace(b"(2,)", b"(3,)"), {}, 20),
        (GOOD, {"Ckpttool-Dtype": "float64"}, 20),
        (GOOD[:-4], {"Content-Length": str(len(GOOD)), "Connection": "close"}, 60),
    ],
)
def test_malformed_values_are_refused(value: bytes, headers: dict[str, str], code: int) -> None:
    with answering(listing(), value, **headers) as address:
        if "Content-Length" in headers:
            with pytest.raises(CkpttoolError):  # the list ends early too
                open_source(address)
            return
        with open_source(address) as source:
            variable = source.find("w")
            error = error_of(lambda: source.read(variable, Selection.whole((2,))))
            assert error.exit_code == code


def test_good_values_are_taken() -> None:
    with answering(listing(), GOOD) as address, open_source(address) as source:
        assert source.read(source.find("w"), Selection.whole((2,))).tolist() == [0.0, 0.0]


def test_a_claim_is_not_reserved() -> None:
    huge = {**VARIABLE, "shape": [2**50], "bytes": 2**52}
    with answering(listing(variables=[huge]), GOOD) as address, open_source(address) as source:
        error = error_of(lambda: source.read(source.find("w"), Selection.whole((2**50,))))
        assert error.exit_code == 20
