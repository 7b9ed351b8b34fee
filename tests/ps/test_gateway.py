"""The gateway over HTTP, a real process on loopback before a stand-in for the training."""

from __future__ import annotations

import http.client
import io
import json
import os
import socket
import stat
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from ckpttool.ps.gateway.openapi import OPENAPI
from ckpttool.sources.registry import open_source
from ckpttool.sources.selection import Selection
from tests.support import browser
from tests.support.clusters import until
from tests.support.live_stand_in import TOKEN, Training, gateway

TABLE = "embedding/table"


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def array(self) -> np.ndarray:
        found: np.ndarray = np.load(io.BytesIO(self.body), allow_pickle=False)
        return found


class Client:
    """Asks a gateway, with the right token unless another is given."""

    def __init__(self, rest: str) -> None:
        self.rest = rest
        self.address = urlsplit(rest).netloc

    def __call__(
        self, path: str, method: str = "GET", body: bytes | None = None, **headers: str
    ) -> Answer:
        sent = {"Authorization": f"Bearer {TOKEN}"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection(self.address, timeout=120)
        try:
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, found, answer.read())
        finally:
            connection.close()

    def values(self, name: str, index: str = "", **headers: str) -> Answer:
        path = f"/v1/values?name={quote(name)}&index={quote(index)}"
        return self(path, "GET", None, **headers)


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory, fixtures_dir: Path) -> Iterator[Training]:
    made = Training(
        tmp_path_factory.mktemp("gateway") / "run", fixtures_dir / "partitioned" / "wide.ckpt-1"
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
def ask(training: Training) -> Iterator[Client]:
    with gateway(training.directory, max_age=3600.0) as said:
        assert set(said) == {"rest"}
        yield Client(said["rest"])


@pytest.fixture
def table(fixtures_dir: Path) -> np.ndarray:
    with open_source(str(fixtures_dir / "partitioned")) as source:
        variable = source.find(TABLE)
        assert variable.shape is not None
        return source.read(variable, Selection.whole(variable.shape))


def test_lists_variables_of_a_snapshot(ask: Client, training: Training) -> None:
    answer = ask("/v1/variables")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json["snapshot"]["number"] == training.number
    (found,) = (one for one in answer.json["variables"] if one["name"] == TABLE)
    assert (found["dtype"], found["kind"]) == ("float32", "model")


@pytest.mark.parametrize("index", ["", "0:2", "1", "-1", "::-1", "...,0", "0:0"])
def test_values_are_what_numpy_selects(index: str, ask: Client, table: np.ndarray) -> None:
    answer = ask.values(TABLE, index)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/x-npy")
    expected = eval(f"table[{index or '...'}]", {"table": table})
    assert np.array_equal(answer.array, expected)
    assert answer.array.shape == expected.shape


def test_what_is_known_is_not_sent_again(ask: Client) -> None:
    first = ask.values(TABLE)
    again = ask.values(TABLE, If_None_Match=first.headers["etag"])
    assert (again.status, again.body) == (304, b"")
    assert ask.values(TABLE, If_None_Match='"0-0", "1-0"').status == 200
    assert ask.values(TABLE, If_Match=first.headers["etag"]).body == first.body
    gone = ask.values(TABLE, If_Match='"999-0"')
    assert (gone.status, gone.json["error"]["id"]) == (412, "snapshot-gone")


def test_a_new_snapshot_has_another_tag(ask: Client) -> None:
    before = ask.values(TABLE).headers["etag"]
    made = ask("/v1/snapshots", "POST", b'{"consistent": true}')
    assert made.status == 201
    after = ask.values(TABLE, If_None_Match=before)
    assert (after.status, after.headers["etag"] != before) == (200, True)
    assert after.headers["etag"] == f'"{made.json["number"]}-{made.json["step"]}"'
    assert ask.values(TABLE, If_Match=before).status == 200


def test_status_is_json_also_with_nan(ask: Client) -> None:
    said = ask("/v1/status").json
    assert said["losses"] == {"loss": 0.25, "odd": None}
    assert said["mode"] == "hosted"


def test_exports_are_asked_for_without_words_for_convert(ask: Client, training: Training) -> None:
    made = ask("/v1/exports", "POST", b'{"to": "savedmodel", "name": "mine", "wait": true}')
    assert (made.status, made.json["name"], made.json["state"]) == (201, "mine", "done")
    assert training.requests[-1] == {
        "do": "export",
        "to": "savedmodel",
        "name": "mine",
        "wait": True,
    }
    assert ask("/v1/exports", "POST", b'{"to": "savedmodel"}').status == 202
    assert ask("/v1/exports", "POST", b'{"to": "x"}').json["error"]["id"] == "target-unknown"
    code = b'{"to": "savedmodel", "options": ["--model", "evil.py:run"]}'
    assert ask("/v1/exports", "POST", code).status == 400


@pytest.mark.parametrize(
    ("path", "method", "body", "status", "id"),
    [
        ("/v1/values", "GET", None, 400, "gateway-request"),
        ("/v1/values?name=a&name=b", "GET", None, 400, "gateway-request"),
        ("/v1/values?name=a&rows=1", "GET", None, 400, "gateway-request"),
        ("/v1/values?" + "&" * 50 + "&".join("abcdefghi"), "GET", None, 400, "gateway-request"),
        ("/v1/status/", "GET", None, 404, "gateway-path"),
        ("/v1/values?name=nothing", "GET", None, 404, "variable-not-found"),
        ("/v1/values?name=%FF%00..%2F", "GET", None, 404, "variable-not-found"),
        (f"/v1/values?name={TABLE}&index=x", "GET", None, 400, "bad-index"),
        (f"/v1/values?name={TABLE}&index=999", "GET", None, 400, "bad-index"),
        ("/v1/values/../../etc/passwd", "GET", None, 404, "gateway-path"),
        ("/v1/variables", "POST", None, 405, "gateway-path"),
        ("/v1/snapshots", "POST", b"[", 400, "gateway-request"),
        ("/v1/snapshots", "POST", b"[" * 10_000, 400, "gateway-request"),
        ("/v1/snapshots", "POST", b"[]", 400, "gateway-request"),
        ("/v1/snapshots", "POST", b'{"consistent": 1}', 400, "gateway-request"),
        ("/v1/snapshots", "POST", b" " * 20_000, 413, "gateway-too-long"),
        ("/v1/exports", "POST", b"{}", 400, "gateway-request"),
    ],
)
def test_requests_that_make_no_sense(
    path: str, method: str, body: bytes | None, status: int, id: str, ask: Client
) -> None:
    answer = ask(path, method, body)
    assert (answer.status, answer.json["error"]["id"]) == (status, id)
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_name_that_is_not_there_is_told_for_readers_elsewhere(ask: Client) -> None:
    """They have no use for a path on this machine."""
    error = ask("/v1/values?name=nothing").json["error"]
    assert "/v1/variables" in error["hint"]
    assert "/" not in error["message"]
    near = ask(f"/v1/values?name={TABLE}x").json["error"]
    assert near["hint"].startswith(f"did you mean: {TABLE}")


@pytest.mark.parametrize("shown", ["", "Bearer ", "Bearer x", f"Basic {TOKEN}", f"Bearer {TOKEN}x"])
def test_only_the_token_lets_in(shown: str, ask: Client) -> None:
    for path in ("/v1/status", "/v1/variables", f"/v1/values?name={TABLE}", "/metrics", "/x"):
        answer = ask(path, Authorization=shown)
        assert (answer.status, answer.json["error"]["id"]) == (401, "gateway-token")
        assert answer.headers["www-authenticate"] == "Bearer"


def test_health_needs_no_token_and_tells_nothing(ask: Client) -> None:
    assert ask("/healthz", Authorization="").body == b"ok\n"
    assert ask("/readyz", Authorization="").body == b"ready\n"


def test_openapi_describes_every_route(ask: Client) -> None:
    said = ask("/openapi.json", Authorization="").json
    assert said == OPENAPI
    for path, methods in said["paths"].items():
        for method in ("GET", "POST"):
            status = ask(path, method, b"[", Authorization="").status
            known = method.lower() in methods
            open_path = methods.get("get", {}).get("security") == []
            assert status in ({200} if known and open_path else {405} if open_path else {401})


def test_metrics_can_be_parsed(ask: Client, training: Training) -> None:
    ask.values(TABLE)
    text = ask("/metrics").body.decode()
    found = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert found["ckpttool_training_up",] == 1
    assert found["ckpttool_training_rate",] == 12.5
    assert found["ckpttool_ps_bytes", "0"] == 3000
    assert found["ckpttool_ps_variables", "1"] == 3
    assert found["ckpttool_sync_total", "failed"] == 1
    assert found["ckpttool_snapshots_total",] >= 1
    made = found["ckpttool_snapshot_duration_seconds_count",]
    assert made == found["ckpttool_sync_total", "ok"] == training.number
    assert found["ckpttool_snapshot_duration_seconds_bucket", "0.02"] == 0
    assert found["ckpttool_snapshot_duration_seconds_bucket", "0.05"] == made
    assert found["ckpttool_snapshot_duration_seconds_bucket", "+Inf"] == made
    assert found["ckpttool_snapshot_duration_seconds_sum",] == pytest.approx(0.03 * made)
    assert found["ckpttool_export_duration_seconds_count",] == 0
    assert found["ckpttool_snapshot_age_seconds",] >= 0
    assert found["ckpttool_param_load_seconds_count", "read"] >= 1
    assert found["ckpttool_served_bytes_total",] > 0
    assert found["ckpttool_gateway_requests_total", "/v1/values", "200"] >= 1


def test_two_hundred_at_once_cause_one_snapshot(alone: Training, table: np.ndarray) -> None:
    with gateway(alone.directory, max_age=3600.0) as said:
        client = Client(said["rest"])
        with ThreadPoolExecutor(200) as pool:
            answers = list(pool.map(lambda _: client.values(TABLE, "0:1"), range(200)))
    assert {answer.status for answer in answers} == {200}
    assert all(np.array_equal(answer.array, table[0:1]) for answer in answers)
    assert alone.number == 1


def test_who_reads_does_not_wait_for_the_next_snapshot(tmp_path: Path, fixtures_dir: Path) -> None:
    training = Training(tmp_path / "run", fixtures_dir / "partitioned" / "wide.ckpt-1")
    training.behind = 3500.0  # so it is due, and may be served for 100 seconds
    with training.answering(), gateway(training.directory, max_age=3600.0) as said:
        client = Client(said["rest"])
        first = client.values(TABLE).headers["etag"]
        training.behind = 0.0
        training.snapshotting.clear()
        try:
            assert client.values(TABLE).headers["etag"] == first
            until(lambda: len(training.requests) == 2, "the next one is not asked for")
            assert client.values(TABLE).headers["etag"] == first
        finally:
            training.snapshotting.set()
        until(lambda: client.values(TABLE).headers["etag"] != first)
        client.values(TABLE)
    assert len(training.requests) == 2


def test_a_head_that_does_not_come_is_not_waited_for(ask: Client) -> None:
    host, _, port = ask.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=120) as slow:
        slow.sendall(b"GET /v1/status HTTP/1.1\r\nHost: x\r\nX: ")
        assert slow.recv(100) == b"", "the gateway closes it"
    assert ask("/healthz").status == 200


def test_a_body_that_does_not_come_is_not_waited_for(ask: Client) -> None:
    """Also where a byte comes now and then, and nobody has shown the token."""
    host, _, port = ask.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=120) as slow:
        slow.sendall(b"POST /v1/exports HTTP/1.1\r\nHost: x\r\nContent-Length: 16000\r\n\r\n{")
        assert slow.recv(1000).startswith(b"HTTP/1.1 401 ")
        slow.settimeout(1)
        for _ in range(120):
            try:
                if not slow.recv(1000):
                    break
            except TimeoutError:
                slow.sendall(b" ")
            except ConnectionResetError:
                break
        else:
            pytest.fail("the gateway keeps it")


def test_a_connection_is_used_again_after_a_refused_body(ask: Client) -> None:
    connection = http.client.HTTPConnection(ask.address, timeout=120)
    body = b" " * 20_000  # longer than is read
    right = {"Authorization": f"Bearer {TOKEN}"}
    try:
        for sent, status in (({}, 401), (right, 413), (right, 413)):
            connection.request("POST", "/v1/snapshots", body, sent)
            answer = connection.getresponse()
            answer.read()
            assert answer.status == status
        connection.request("GET", "/healthz")
        assert connection.getresponse().read() == b"ok\n"
    finally:
        connection.close()


def test_long_heads_and_no_http_are_refused(ask: Client) -> None:
    host, _, port = ask.address.rpartition(":")
    with (
        socket.create_connection((host, int(port)), timeout=120) as long,
        pytest.raises(OSError, match=r"[Pp]ipe|reset"),
    ):
        long.sendall(b"GET / HTTP/1.1\r\nX: " + b"x" * 2**24)
    with socket.create_connection((host, int(port)), timeout=120) as odd:
        odd.sendall(b"\x16\x03\x01\x00\xff\x00 no HTTP at all\r\n\r\n")
        assert b"400" in odd.recv(1000)
    assert ask("/healthz").status == 200


def test_without_a_training_it_says_so(tmp_path: Path, fixtures_dir: Path) -> None:
    training = Training(tmp_path / "run", fixtures_dir / "partitioned" / "wide.ckpt-1")
    with gateway(training.directory, max_age=0.0) as said:
        client = Client(said["rest"])
        assert client("/healthz").status == 200
        assert client("/readyz").status == 503
        answer = client("/v1/variables")
        assert (answer.status, answer.json["error"]["id"]) == (503, "live-unreachable")
        assert "ckpttool_training_up 0.0" in client("/metrics").body.decode()
        with training.answering():
            assert client("/v1/variables").status == 200
        assert client("/v1/variables").status == 503


def test_nothing_stays_after_its_end(tmp_path: Path, fixtures_dir: Path) -> None:
    training = Training(tmp_path / "run", fixtures_dir / "partitioned" / "wide.ckpt-1")
    with training.answering():
        with gateway(training.directory) as said:
            Client(said["rest"]).values(TABLE)
            served = training.directory / "served"
            assert stat.S_IMODE(served.stat().st_mode) & 0o077 == 0
        assert not served.exists()
    with pytest.raises(OSError, match="refused"):
        Client(said["rest"])("/healthz")


@pytest.mark.parametrize(
    ("setup", "id"),
    [
        ({"bind": "0.0.0.0:0"}, "gateway-open"),
        ({"bind": "[::]:0"}, "gateway-open"),
        ({"tls_certificate": "/none", "tls_key": "/none"}, "gateway-certificate"),
        ({"tls_certificate": "/none"}, "gateway-certificate"),
        ({"token_file": "/none"}, "not-found"),
        ({"bind": "127.0.0.1:x"}, "cluster-spec"),
        ({"bind": "192.0.2.1:80", "tls_certificate": "x", "tls_key": "x"}, "gateway-address"),
    ],
)
def test_it_says_why_it_cannot_serve(setup: dict[str, Any], id: str, alone: Training) -> None:
    with gateway(alone.directory, **setup) as said:
        assert said["ok"] is False
        assert said["error"]["id"] == id


# The page ---------------------------------------------------------------------------------


def test_the_page_needs_nothing_from_elsewhere(ask: Client) -> None:
    answer = ask("/", Authorization="")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert b"unsafe" not in answer.headers["content-security-policy"].encode()
    text = answer.body.decode()
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
    assert " style=" not in text


def _dom(url: str) -> str:
    done = subprocess.run(
        [browser._installed(), *browser._FLAGS, browser._WAIT, "--dump-dom", url],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_page_shows_the_training_to_who_has_the_token(ask: Client) -> None:
    ask.values(TABLE)
    shown = _dom(f"{ask.rest}/#token={TOKEN}")
    assert "steps a second" in shown
    assert "12.5" in shown
    assert TOKEN not in shown
    refused = _dom(f"{ask.rest}/")
    assert "a token is needed" in refused
    assert "steps a second" not in refused.partition("<script>")[0]


def test_what_a_killed_one_left_is_removed(tmp_path: Path, fixtures_dir: Path) -> None:
    training = Training(tmp_path / "run", fixtures_dir / "partitioned" / "wide.ckpt-1")
    stale = training.directory / "served" / "7"
    stale.mkdir(parents=True)
    with training.answering(), gateway(training.directory) as said:
        assert not stale.exists()
        assert Client(said["rest"]).values(TABLE).status == 200
