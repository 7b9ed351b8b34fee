"""The gateway over gRPC: the client of grpc against a real process on loopback."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from grpc_health.v1 import health_pb2, health_pb2_grpc
from prometheus_client.parser import text_string_to_metric_families

from ckpttool.ps.gateway import messages
from ckpttool.ps.runtime.exports import Export
from ckpttool.ps.runtime.snapshot import Snapshot
from ckpttool.sources.registry import open_source
from ckpttool.sources.selection import Selection
from tests.ps.test_gateway import TABLE, Client
from tests.ps.test_gateway_tls import pair
from tests.support.clusters import port_is_open, until
from tests.support.command import ROOT
from tests.support.live_stand_in import TOKEN, Training, gateway, gateway_process

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
PATIENCE = 120.0
PATH = f"/{messages.SERVICE}/ReadVariable"
#: Method → its request, its answer, whether it streams.
METHODS = {
    "GetStatus": (messages.GetStatusRequest, messages.Status, False),
    "ListVariables": (messages.ListVariablesRequest, messages.ListPiece, True),
    "ReadVariable": (messages.ReadVariableRequest, messages.ReadPiece, True),
    "TakeSnapshot": (messages.TakeSnapshotRequest, messages.Snapshot, False),
    "MakeExport": (messages.MakeExportRequest, messages.Export, False),
}


class Rpc:
    """Calls a gateway, with the right token unless another is given."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.channel = channel
        self.health = health_pb2_grpc.HealthStub(channel)

    def __call__(self, name: str, /, token: str | None = f"Bearer {TOKEN}", **members: Any) -> Any:
        request, answer, streams = METHODS[name]
        make = self.channel.unary_stream if streams else self.channel.unary_unary
        call = make(f"/{messages.SERVICE}/{name}", request.SerializeToString, answer.FromString)
        metadata = [] if token is None else [("authorization", token)]
        return call(request(**members), metadata=metadata, timeout=PATIENCE)

    def pieces(self, name: str, /, **members: Any) -> list[Any]:
        return list(self(name, **members))

    def read(self, name: str, index: str = "", **members: Any) -> tuple[Any, np.ndarray]:
        """The head of an answer, and its elements."""
        pieces = self.pieces("ReadVariable", name=name, index=index, **members)
        head = pieces[0].head
        data = b"".join(piece.data for piece in pieces)
        assert head.bytes == len(data)
        return head, np.frombuffer(data, head.dtype).reshape(head.shape)

    def error(self, name: str, /, **members: Any) -> tuple[str, dict[str, Any]]:
        """The status of a call that fails, and the error that it carries."""
        with pytest.raises(grpc.RpcError) as caught:
            answer = self(name, **members)
            list(answer if METHODS[name][2] else [answer])
        said = dict(caught.value.trailing_metadata())
        return caught.value.code().name, json.loads(said.get("ckpttool-error", "{}"))


@contextmanager
def rpc(address: str, credentials: grpc.ChannelCredentials | None = None) -> Iterator[Rpc]:
    options = [("grpc.enable_http_proxy", 0)]
    with (
        grpc.insecure_channel(address, options)
        if credentials is None
        else grpc.secure_channel(address, credentials, options)
    ) as channel:
        yield Rpc(channel)


def counted(rest: str) -> dict[tuple[str, str], float]:
    """The answers that a gateway counts, by path and status."""
    text = Client(rest)("/metrics").body.decode()
    return {
        (sample.labels["path"], sample.labels["status"]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "ckpttool_gateway_requests_total"
    }


def ended_reads(rest: str) -> float:
    """How many reads have ended; of one that nobody takes, all may be on its way to the client."""
    return sum(count for (path, _), count in counted(rest).items() if path == PATH)


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory, fixtures_dir: Path) -> Iterator[Training]:
    made = Training(
        tmp_path_factory.mktemp("grpc") / "run", fixtures_dir / "partitioned" / "wide.ckpt-1"
    )
    with made.answering():
        yield made


@pytest.fixture
def alone(tmp_path: Path, fixtures_dir: Path) -> Iterator[Training]:
    """One for a gateway of the test's own: a run directory has one at a time."""
    made = Training(tmp_path / "run", fixtures_dir / "partitioned" / "wide.ckpt-1")
    with made.answering():
        yield made


@pytest.fixture(scope="module")
def said(training: Training) -> Iterator[dict[str, Any]]:
    with gateway(training.directory, max_age=3600.0, grpc="127.0.0.1:0") as found:
        yield found


@pytest.fixture(scope="module")
def ask(said: dict[str, Any]) -> Iterator[Rpc]:
    with rpc(said["grpc"]) as made:
        yield made


@pytest.fixture
def table(fixtures_dir: Path) -> np.ndarray:
    with open_source(str(fixtures_dir / "partitioned")) as source:
        variable = source.find(TABLE)
        assert variable.shape is not None
        return source.read(variable, Selection.whole(variable.shape))


def test_lists_variables_of_a_snapshot(ask: Rpc, training: Training) -> None:
    (piece,) = ask.pieces("ListVariables")
    assert (piece.snapshot.number, piece.style) == (training.number, "name")
    assert piece.snapshot.tag
    (found,) = (one for one in piece.variables if one.name == TABLE)
    assert (found.dtype, found.kind, found.key) == ("float32", "model", TABLE.encode())
    assert (list(found.shape), found.bytes, found.unknown_rank) == ([50, 4], 800, False)


@pytest.mark.parametrize("index", ["", "0:2", "1", "-1", "::-1", "...,0", "0:0"])
def test_reads_what_numpy_selects(index: str, ask: Rpc, table: np.ndarray) -> None:
    _, found = ask.read(TABLE, index)
    expected = eval(f"table[{index or '...'}]", {"table": table})
    assert np.array_equal(found, expected)
    assert found.shape == expected.shape


def test_a_key_is_a_name_too(ask: Rpc, table: np.ndarray) -> None:
    pieces = ask.pieces("ReadVariable", key=TABLE.encode())
    assert b"".join(piece.data for piece in pieces) == table.tobytes()


def test_a_snapshot_is_read_on_by_its_tag(ask: Rpc, training: Training) -> None:
    before = ask.read(TABLE)[0].snapshot
    made = ask("TakeSnapshot", consistent=True)
    assert training.requests[-1]["consistent"] is True
    assert made.number > before.number
    assert ask.read(TABLE)[0].snapshot == made
    assert ask.read(TABLE, snapshot=before.tag)[0].snapshot == before
    assert ask.pieces("ListVariables", snapshot=before.tag)[0].snapshot == before
    (nothing,) = ask.pieces("ReadVariable", name=TABLE, known=made.tag)
    assert nothing.head.unchanged
    assert not nothing.data
    head, values = ask.read(TABLE, known=before.tag)
    assert (head.unchanged, values.shape) == (False, (50, 4))
    code, error = ask.error("ReadVariable", name=TABLE, snapshot="999-0")
    assert (code, error["id"]) == ("FAILED_PRECONDITION", "snapshot-gone")


def test_a_call_that_is_given_up_disturbs_no_other(alone: Training) -> None:
    """What it asked for is awaited first: two questions on one connection would get mixed up."""
    with gateway(alone.directory, max_age=3600.0, grpc="127.0.0.1:0") as said:
        options = [("grpc.enable_http_proxy", 0)]
        with grpc.insecure_channel(said["grpc"], options) as channel:
            take = channel.unary_unary(
                f"/{messages.SERVICE}/TakeSnapshot",
                messages.TakeSnapshotRequest.SerializeToString,
                messages.Snapshot.FromString,
            )
            metadata = [("authorization", f"Bearer {TOKEN}")]

            def begin() -> Any:
                request = messages.TakeSnapshotRequest()
                return take.future(request, metadata=metadata, timeout=PATIENCE)

            before = alone.number
            alone.snapshotting.clear()
            for _ in range(4):
                given_up = begin()
                until(lambda: len(alone.requests) == 1)
                time.sleep(0.2)  # those behind the first wait for it
                given_up.cancel()
            last = begin()
            time.sleep(0.2)
            alone.snapshotting.set()
            assert last.result().number == before + 2
            assert len(alone.requests) == 2


def test_status_and_exports(ask: Rpc, training: Training) -> None:
    status = ask("GetStatus")
    assert (status.mode, status.step, status.rate) == ("hosted", training.step, 12.5)
    assert status.losses["loss"] == 0.25
    assert np.isnan(status.losses["odd"])
    assert [one.bytes for one in status.per_ps] == [3000, 1096]
    made = ask("MakeExport", to="savedmodel", wait=True)
    assert (made.name, made.state, made.seconds) == ("savedmodel", "done", 1.5)
    assert training.requests[-1] == {
        "do": "export",
        "to": "savedmodel",
        "name": "savedmodel",
        "wait": True,
    }


@pytest.mark.parametrize(
    ("name", "members", "code", "id"),
    [
        ("ReadVariable", {}, "INVALID_ARGUMENT", "gateway-request"),
        ("ReadVariable", {"name": "nothing"}, "NOT_FOUND", "variable-not-found"),
        ("ReadVariable", {"key": b"\xff\0../"}, "NOT_FOUND", "variable-not-found"),
        ("ReadVariable", {"name": TABLE, "index": "x"}, "INVALID_ARGUMENT", "bad-index"),
        ("ReadVariable", {"name": TABLE, "index": "99"}, "INVALID_ARGUMENT", "bad-index"),
        ("ReadVariable", {"name": "ä" * 20_000}, "NOT_FOUND", "variable-not-found"),
        ("ListVariables", {"snapshot": "x"}, "FAILED_PRECONDITION", "snapshot-gone"),
        ("MakeExport", {}, "INVALID_ARGUMENT", "gateway-request"),
        ("MakeExport", {"to": "x"}, "INVALID_ARGUMENT", "target-unknown"),
    ],
)
def test_calls_that_make_no_sense(
    name: str, members: dict[str, Any], code: str, id: str, ask: Rpc
) -> None:
    found, error = ask.error(name, **members)
    assert (found, error["id"]) == (code, id)
    assert error["message"]


def test_what_is_no_message_is_refused(ask: Rpc) -> None:
    def error_of(name: str, data: bytes) -> str:
        call = ask.channel.unary_unary(f"/{name}", lambda given: given, lambda given: given)
        with pytest.raises(grpc.RpcError) as caught:
            call(data, metadata=[("authorization", f"Bearer {TOKEN}")], timeout=PATIENCE)
        return str(caught.value.code().name)

    status = f"{messages.SERVICE}/GetStatus"
    assert error_of(status, b"\xff" * 10) == "INVALID_ARGUMENT"
    assert error_of(status, b"\0" * 100_000) == "RESOURCE_EXHAUSTED"
    assert error_of(f"{messages.SERVICE}/Nothing", b"") == "UNIMPLEMENTED"
    assert error_of("x/../../etc", b"") == "UNIMPLEMENTED"
    assert ask("GetStatus").mode == "hosted"


@pytest.mark.parametrize("token", [None, "", "Bearer ", "Bearer x", f"Basic {TOKEN}", f"{TOKEN}x"])
def test_only_the_token_lets_in(token: str | None, ask: Rpc) -> None:
    for name in METHODS:
        code, error = ask.error(name, token=token)
        assert (code, error["id"]) == ("UNAUTHENTICATED", "gateway-token")


def test_health_needs_no_token(ask: Rpc) -> None:
    for name in ("", messages.SERVICE):
        answer = ask.health.Check(health_pb2.HealthCheckRequest(service=name), timeout=PATIENCE)
        assert answer.status == SERVING
    with pytest.raises(grpc.RpcError) as caught:
        ask.health.Check(health_pb2.HealthCheckRequest(service="x"), timeout=PATIENCE)
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND
    watch = ask.health.Watch(health_pb2.HealthCheckRequest(service="x"), timeout=PATIENCE)
    assert next(watch).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
    watch.cancel()


def test_who_watches_hears_that_the_training_has_ended(tmp_path: Path, fixtures_dir: Path) -> None:
    training = Training(tmp_path / "run", fixtures_dir / "partitioned" / "wide.ckpt-1")
    with (
        gateway(training.directory, grpc="127.0.0.1:0", max_age=0.0) as said,
        rpc(said["grpc"]) as ask,
    ):
        request = health_pb2.HealthCheckRequest()
        watch = ask.health.Watch(request, timeout=PATIENCE)
        assert next(watch).status == NOT_SERVING
        assert ask.health.Check(request, timeout=PATIENCE).status == NOT_SERVING
        code, error = ask.error("ListVariables")
        assert (code, error["id"]) == ("UNAVAILABLE", "live-unreachable")
        with training.answering():
            assert next(watch).status == SERVING
            ask.pieces("ListVariables")
        assert next(watch).status == NOT_SERVING


def test_watchers_are_not_without_number(said: dict[str, Any]) -> None:
    request = health_pb2.HealthCheckRequest()
    with rpc(said["grpc"]) as ask:
        watching = [ask.health.Watch(request, timeout=PATIENCE) for _ in range(64)]
        for one in watching:
            assert next(one).status == SERVING
        with pytest.raises(grpc.RpcError) as caught:
            next(ask.health.Watch(request, timeout=PATIENCE))
        assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert ask("GetStatus").mode == "hosted"

        def is_free() -> bool:
            try:
                again = ask.health.Watch(request, timeout=PATIENCE)
                return bool(next(again).status == SERVING)
            except grpc.RpcError:
                return False

        watching[0].cancel()
        until(is_free, "who has gone still counts")


def test_two_hundred_at_once_cause_one_snapshot(alone: Training, table: np.ndarray) -> None:
    with (
        gateway(alone.directory, max_age=3600.0, grpc="127.0.0.1:0") as said,
        rpc(said["grpc"]) as ask,
        ThreadPoolExecutor(200) as pool,
    ):
        answers = list(pool.map(lambda _: ask.read(TABLE, "0:1")[1], range(200)))
    assert all(np.array_equal(answer, table[0:1]) for answer in answers)
    assert alone.number == 1


# What is large ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Training, np.ndarray]]:
    """A training with a table of 24 MB, and with many variables."""
    folder = tmp_path_factory.mktemp("large")
    values = np.arange(6 * 2**20, dtype=np.float32).reshape(-1, 64)
    many: dict[str, Any] = {
        f"many/{'x' * 300}/{number}": np.zeros(1, np.float32) for number in range(5000)
    }
    np.savez(folder / "arrays.npz", large=values, **many)
    (folder / "made").mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "ckpttool", "convert", "arrays.npz", "made/c", "--to", "checkpoint"],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    made = Training(folder / "run", folder / "made" / "c")
    with made.answering():
        yield made, values


@pytest.fixture(scope="module")
def said_large(large: tuple[Training, np.ndarray]) -> Iterator[dict[str, Any]]:
    with gateway(large[0].directory, max_age=3600.0, grpc="127.0.0.1:0") as found:
        yield found


@pytest.fixture(scope="module")
def ask_large(said_large: dict[str, Any], large: tuple[Training, np.ndarray]) -> Iterator[Rpc]:
    with rpc(said_large["grpc"]) as made:
        yield made
    log = (large[0].directory / "gateway.log").read_text()
    assert "Traceback" not in log, log


def test_a_large_read_comes_in_pieces(ask_large: Rpc, large: tuple[Training, np.ndarray]) -> None:
    pieces = ask_large.pieces("ReadVariable", name="large")
    assert len(pieces) >= 24
    assert max(len(piece.data) for piece in pieces) <= 2**20
    assert all(piece.HasField("head") == (piece is pieces[0]) for piece in pieces)
    assert b"".join(piece.data for piece in pieces) == large[1].tobytes()
    _, rows = ask_large.read("large", "1000:1010")
    assert np.array_equal(rows, large[1][1000:1010])


def test_a_long_list_comes_in_pieces(ask_large: Rpc) -> None:
    pieces = ask_large.pieces("ListVariables")
    assert len(pieces) > 2
    assert max(piece.ByteSize() for piece in pieces) <= 2**20
    names = [one.name for piece in pieces for one in piece.variables]
    assert len(names) == len(set(names)) == 5001
    assert [bool(piece.style) for piece in pieces] == [True] + [False] * (len(pieces) - 1)


def test_a_reader_that_stops_holds_nobody_up(
    ask_large: Rpc, large: tuple[Training, np.ndarray]
) -> None:
    """It has its deadline, may go, and what it began is one snapshot all the same."""
    stopped = [ask_large("ReadVariable", name="large") for _ in range(40)]
    tags = {next(one).head.snapshot.tag for one in stopped}
    assert len(tags) == 1
    assert ask_large.read("large", "5")[1].shape == (64,)
    ask_large("TakeSnapshot")
    late = stopped.pop()
    assert sum(len(piece.data) for piece in late) < large[1].nbytes  # its first piece is taken
    for one in stopped:
        one.cancel()
    assert np.array_equal(ask_large.read("large")[1], large[1])


def test_a_reader_that_is_killed_is_let_go(said_large: dict[str, Any], ask_large: Rpc) -> None:
    code = f"""
import sys, time, grpc
from ckpttool.ps.gateway.messages import ReadPiece, ReadVariableRequest
call = grpc.insecure_channel("{said_large["grpc"]}").unary_stream(
    "{PATH}", ReadVariableRequest.SerializeToString, ReadPiece.FromString
)
token = [("authorization", "Bearer {TOKEN}")]
answers = [call(ReadVariableRequest(name="large"), metadata=token) for _ in range(8)]
for one in answers:
    next(one)
print("reads", flush=True)
time.sleep({PATIENCE})
"""
    before = ended_reads(said_large["rest"])
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, env={"PYTHONPATH": str(ROOT)}
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"reads\n"
        child.kill()
    until(lambda: ended_reads(said_large["rest"]) >= before + 8)
    assert ask_large("GetStatus").mode == "hosted"


def test_a_deadline_is_kept(ask_large: Rpc, said_large: dict[str, Any]) -> None:
    request, answer, _ = METHODS["ReadVariable"]
    before = ended_reads(said_large["rest"])
    call = ask_large.channel.unary_stream(PATH, request.SerializeToString, answer.FromString)
    answers = call(
        request(name="large"), metadata=[("authorization", f"Bearer {TOKEN}")], timeout=0.3
    )
    with pytest.raises(grpc.RpcError) as caught:
        for _ in answers:
            time.sleep(0.2)
    assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    until(lambda: ended_reads(said_large["rest"]) >= before + 1)
    assert ask_large("GetStatus").mode == "hosted"


# Connections --------------------------------------------------------------------------------


def test_tls_and_mutual_tls(alone: Training, tmp_path: Path) -> None:
    server, client = pair(tmp_path, "server"), pair(tmp_path, "client")
    authority = Path(server.certificate).read_bytes()
    own = (Path(client.key).read_bytes(), Path(client.certificate).read_bytes())
    tls = {"tls_certificate": server.certificate, "tls_key": server.key}
    anyone = grpc.ssl_channel_credentials(authority)
    member = grpc.ssl_channel_credentials(authority, *own)
    with gateway(alone.directory, grpc="127.0.0.1:0", **tls) as said:
        with rpc(said["grpc"], anyone) as ask:
            assert ask.read(TABLE)[1].shape == (50, 4)
            assert ask.error("GetStatus", token="Bearer x")[0] == "UNAUTHENTICATED"
        with rpc(said["grpc"]) as plain:
            assert plain.error("GetStatus")[0] == "UNAVAILABLE"
        with rpc(said["grpc"], grpc.ssl_channel_credentials(own[1])) as distrustful:
            assert distrustful.error("GetStatus")[0] == "UNAVAILABLE"
    mutual = {**tls, "client_ca": client.certificate, "token_file": None}
    # Reached from elsewhere, so this is what it takes.
    with gateway(alone.directory, bind="0.0.0.0:0", grpc="0.0.0.0:0", **mutual) as said:
        address = said["grpc"].replace("0.0.0.0", "127.0.0.1")
        with rpc(address, anyone) as ask:
            assert ask.error("GetStatus")[0] == "UNAVAILABLE"
        with rpc(address, member) as ask:
            assert ask("GetStatus", token=None).mode == "hosted"


def test_it_says_why_it_cannot_serve(alone: Training, said: dict[str, Any]) -> None:
    for setup, id in (
        ({"grpc": "0.0.0.0:0"}, "gateway-open"),
        ({"grpc": "127.0.0.1:x"}, "cluster-spec"),
        ({"grpc": said["grpc"]}, "gateway-address"),  # another gateway has it
    ):
        with gateway(alone.directory, **setup) as refused:
            assert refused["ok"] is False
            assert refused["error"]["id"] == id


def test_who_connects_and_says_nothing_is_not_waited_for(said: dict[str, Any], ask: Rpc) -> None:
    host, _, port = said["grpc"].rpartition(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as silent:
        while silent.recv(4096):
            pass  # the server's own settings; then it closes the connection
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as odd:
        odd.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        while odd.recv(4096):
            pass
    assert ask("GetStatus").mode == "hosted"


def test_both_ports_close_at_sigterm(alone: Training) -> None:
    """Also while somebody reads, watches, and waits for an export that does not end."""
    with (
        gateway_process(alone.directory, grpc="127.0.0.1:0") as (child, said),
        rpc(said["grpc"]) as ask,
    ):
        ports = [int(said[name].rpartition(":")[2]) for name in ("rest", "grpc")]
        assert all(map(port_is_open, ports))
        alone.exporting.clear()
        try:
            waiting = ask("ReadVariable", name=TABLE)
            next(waiting)
            export = ThreadPoolExecutor(1).submit(ask.error, "MakeExport", to="savedmodel")
            watch = ask.health.Watch(health_pb2.HealthCheckRequest(), timeout=PATIENCE)
            next(watch)
            until(lambda: alone.requests[-1]["do"] == "export")
            child.send_signal(signal.SIGTERM)
            until(lambda: not any(map(port_is_open, ports)))
            assert child.wait(PATIENCE) == 0
            assert export.result(PATIENCE)[0] in {"UNAVAILABLE", "CANCELLED"}
        finally:
            alone.exporting.set()


# Figures and the schema ---------------------------------------------------------------------


def test_calls_are_in_the_metrics(said: dict[str, Any], ask: Rpc) -> None:
    ask.read(TABLE)
    ask.error("GetStatus", token=None)
    found = counted(said["rest"])
    assert found[PATH, "OK"] >= 1
    assert found[f"/{messages.SERVICE}/GetStatus", "UNAUTHENTICATED"] >= 1


def test_the_descriptors_are_those_of_the_schema() -> None:
    pytest.importorskip("grpc_tools")
    from fixtures.make_gateway_proto import compiled

    shipped = FileDescriptorSet.FromString(messages.DESCRIPTORS.read_bytes())
    assert shipped == FileDescriptorSet.FromString(compiled(messages.PROTO)), (
        "run: PYTHONPATH=. python fixtures/make_gateway_proto.py"
    )


def test_the_schema_has_all_that_the_training_says() -> None:
    def members(message: Any) -> set[str]:
        return {one.name for one in message.DESCRIPTOR.fields}

    assert members(messages.Snapshot) == {one.name for one in fields(Snapshot)} | {"tag"}
    assert members(messages.Export) == {one.name for one in fields(Export)}


def test_the_schema_can_be_fetched(said: dict[str, Any]) -> None:
    answer = Client(said["rest"])("/gateway.proto", Authorization="")
    assert (answer.status, answer.body) == (200, messages.PROTO.read_bytes())


def test_the_client_of_the_docs(
    said: dict[str, Any], training: Training, table: np.ndarray, tmp_path: Path
) -> None:
    pytest.importorskip("grpc_tools")
    text = (ROOT / "docs" / "serve-ps.md").read_text("utf-8").partition("### gRPC")[2]
    shell, code = (
        re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL)[0] for kind in ("sh", "python")
    )
    fetch, compiles = shell.splitlines()
    assert fetch.endswith("/gateway.proto")
    schema = Client(said["rest"])("/gateway.proto", Authorization="").body
    (tmp_path / "gateway.proto").write_bytes(schema)
    (tmp_path / "ps-run").symlink_to(training.directory)
    (tmp_path / "client.py").write_text(code.replace("127.0.0.1:8501", said["grpc"]))
    for words in (compiles.split()[1:], ["client.py"]):
        done = subprocess.run(
            [sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE
        )
        assert done.returncode == 0, done.stderr
    assert done.stdout == f"step {training.step}: {table[0:10].shape}\n"


def test_who_does_not_ask_for_grpc_does_not_wait_for_its_import() -> None:
    code = "import sys, ckpttool.ps.gateway.__main__; print({'grpc', 'google'} & {*sys.modules})"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.stdout == "set()\n", done.stderr


@pytest.mark.slow
def test_the_messages_and_tensorflow_go_together() -> None:
    """Both have their descriptors in one process, whichever is imported first."""
    pytest.importorskip("tensorflow")
    code = "import tensorflow, ckpttool.ps.gateway.messages as m; print(m.Status(step=3).step)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "3\n", done.stderr
