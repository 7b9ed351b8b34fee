"""TLS and mutual TLS of the gateway, and ``pss://``, with certificates made by openssl."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from ckpttool.errors import CkpttoolError
from ckpttool.sources.registry import open_source
from tests.support.live_stand_in import TOKEN, Training, gateway


class Pair(NamedTuple):
    certificate: str
    key: str


def pair(directory: Path, name: str) -> Pair:
    """A certificate for 127.0.0.1 that signs itself, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl here to make certificates with")
    made = Pair(str(directory / f"{name}.crt"), str(directory / f"{name}.key"))
    options = "-x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    names = ["-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", made.key, "-out", made.certificate]
    subprocess.run(
        ["openssl", "req", *options.split(), *names, *files], check=True, capture_output=True
    )
    return made


@pytest.fixture
def training(tmp_path: Path, fixtures_dir: Path) -> Iterator[Training]:
    made = Training(tmp_path / "run", fixtures_dir / "partitioned" / "wide.ckpt-1")
    with made.answering():
        yield made


def refused(address: str) -> CkpttoolError:
    with pytest.raises(CkpttoolError) as caught:
        open_source(address)
    return caught.value


def test_only_a_certificate_that_is_trusted_is_spoken_to(
    training: Training, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, other = pair(tmp_path, "server"), pair(tmp_path, "other")
    monkeypatch.setenv("CKPTTOOL_TOKEN", TOKEN)
    with gateway(
        training.directory, tls_certificate=server.certificate, tls_key=server.key
    ) as said:
        assert said["rest"].startswith("https://")
        address = said["rest"].replace("https", "pss", 1)
        monkeypatch.setenv("CKPTTOOL_CA", server.certificate)
        with open_source(address) as source:
            assert source.lookup("embedding/table") is not None
        monkeypatch.setenv("CKPTTOOL_CA", other.certificate)
        error = refused(address)
        assert (error.id, error.exit_code) == ("gateway-unreachable", 60)
        assert "certificate verify failed" in error.why
        assert refused(address.replace("pss", "ps", 1)).exit_code == 60
        monkeypatch.setenv("CKPTTOOL_CA", str(tmp_path / "none"))
        assert refused(address).id == "gateway-url"


def test_mutual_tls_asks_for_a_certificate_of_the_client(
    training: Training, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, client = pair(tmp_path, "server"), pair(tmp_path, "client")
    both = tmp_path / "client.pem"
    both.write_text(Path(client.certificate).read_text() + Path(client.key).read_text())
    monkeypatch.setenv("CKPTTOOL_CA", server.certificate)
    monkeypatch.delenv("CKPTTOOL_TOKEN", raising=False)
    with gateway(
        training.directory,
        bind="0.0.0.0:0",  # reached from elsewhere, so this is what it takes
        token_file=None,
        tls_certificate=server.certificate,
        tls_key=server.key,
        client_ca=client.certificate,
    ) as said:
        port = said["rest"].rpartition(":")[2]
        address = f"pss://127.0.0.1:{port}"
        assert refused(address).exit_code == 60
        monkeypatch.setenv("CKPTTOOL_CLIENT_CERT", str(both))
        with open_source(address) as source:
            assert source.lookup("embedding/table") is not None
