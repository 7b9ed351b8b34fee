"""`verify` from an address to an answer, its Python call and its command."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

import pytest

import ckpttool
from ckpttool.errors import ForeignFormatError, IncompleteError, NotFoundError
from ckpttool.ops.verify import Unjudged, VerifyResult, verify, verify_all
from tests.support import handmade
from tests.support.command import RunCli
from tests.support.handmade import write_bundle

EIGHT = bytes(range(8))


@pytest.fixture
def good(tmp_path: Path) -> Path:
    """The prefix of a whole checkpoint."""
    (tmp_path / "good").mkdir()
    return write_bundle(tmp_path / "good", "m-1", {b"v": {"shape": (2,), "size": 8}}, [EIGHT])


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    """The prefix of a checkpoint with one damaged variable, named to draw on terminals."""
    (tmp_path / "bad").mkdir()
    fields: handmade.EntryFields = {"shape": (2,), "size": 8, "crc": 1}
    return write_bundle(tmp_path / "bad", "m-1", {b"\x1b[31mv\xff": fields}, [EIGHT])


# The call -------------------------------------------------------------------------------


def test_the_python_call(good: Path, bad: Path) -> None:
    result = ckpttool.verify(str(good))
    assert (result.healthy, result.damaged, result.level) == (True, False, "deep")
    assert (result.checked.variables, result.checked.nbytes) == (1, 8)
    assert (result.findings, result.not_checked) == ((), ())
    assert result.location == str(good)
    result = ckpttool.verify(str(bad), level="quick")
    assert result.healthy, "quick does not look at bytes"
    assert not ckpttool.verify(str(bad)).healthy


def test_progress_counts_up_to_all_bytes(tmp_path: Path) -> None:
    data = os.urandom(3 * 2**20)
    fields: handmade.EntryFields = {"dtype": 4, "shape": (2**20,), "size": 2**20}
    entries: dict[bytes, handmade.EntryFields | bytes] = {
        b"%d" % number: {**fields, "offset": number * 2**20} for number in range(3)
    }
    prefix = write_bundle(tmp_path, "m", entries, [data])
    calls: list[tuple[int, int]] = []
    verify(str(prefix), jobs=2, progress=lambda done, total: calls.append((done, total)))
    assert calls[-1] == (len(data), len(data))
    assert calls == sorted(calls)
    assert len(calls) == 3


@pytest.mark.parametrize("name", ["m-1.index", "m-1.data-00000-of-00001", "", "@1", "@latest"])
def test_every_form_of_an_address(good: Path, name: str) -> None:
    result = verify(f"{good.parent}/{name}")
    assert (result.location, result.healthy) == (str(good), True)


def test_files_without_their_index_are_damage(good: Path) -> None:
    Path(f"{good}.index").unlink()
    for address in (str(good), f"{good}.data-00000-of-00001", str(good.parent)):
        result = verify(address)
        assert [finding.id for finding in result.findings] == ["index-missing"]
        assert (result.damaged, result.healthy, result.checked.variables) == (True, False, 0)
        assert result.not_checked


def test_latest_that_is_not_whole_is_an_error_that_names_the_newest_whole_one(good: Path) -> None:
    write_bundle(good.parent, "m-2", {b"v": {"shape": (2,), "size": 8}}, [EIGHT])
    (good.parent / "m-2.data-00000-of-00001").unlink()
    (good.parent / "checkpoint").write_text('model_checkpoint_path: "m-2"\n')
    with pytest.raises(IncompleteError) as caught:
        verify(f"{good.parent}/@latest")
    assert caught.value.id == "latest-incomplete"
    assert "m-1" in caught.value.hint
    # The run itself stands for what its state file says, which is what is to be checked.
    assert [finding.id for finding in verify(str(good.parent)).findings] == ["shard-missing"]


def test_what_is_no_checkpoint_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        verify(str(tmp_path / "nothing"))
    (tmp_path / "model.ckpt").write_bytes(b"PK\3\4" + bytes(100))
    with pytest.raises(ForeignFormatError):
        verify(str(tmp_path / "model.ckpt"))


def test_several_sources_one_of_which_is_none(good: Path, bad: Path, tmp_path: Path) -> None:
    nothing = str(tmp_path / "nothing")
    first, second, third = verify_all([nothing, str(good), str(bad)])
    assert isinstance(first, Unjudged)
    assert first.error.id == "not-found"
    assert isinstance(second, VerifyResult)
    assert second.healthy
    assert isinstance(third, VerifyResult)
    assert third.damaged
    with pytest.raises(NotFoundError):
        verify_all([nothing, nothing])


def test_every_readable_checkpoint_of_the_corpus_is_healthy(corpus: Path) -> None:
    checked = 0
    for folder, _, names in os.walk(corpus):
        if Path(folder).relative_to(corpus).parts[:1] == ("derived-damaged-iris",):
            continue
        if "bad-" in folder:
            continue
        for name in names:
            if name.endswith(".index"):
                result = verify(os.path.join(folder, name))
                assert result.healthy, result
                assert result.findings == (), result
                checked += 1
    assert checked > 40


# The command ------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [[], ["--quick"], ["--jobs", "2"]])
def test_healthy_is_zero(run_cli: RunCli, good: Path, options: list[str]) -> None:
    done = run_cli(["verify", good, *options])
    assert (done.returncode, done.stderr) == (0, "")
    level = "quick" if "--quick" in options else "deep"
    assert done.stdout.split("\n")[0].split("\t")[:3] == [str(good), "healthy", level]


def test_damage_is_one_and_nothing_draws_on_the_terminal(run_cli: RunCli, bad: Path) -> None:
    for options in ([], ["--color", "always"]):
        done = run_cli(["verify", bad, *options])
        assert (done.returncode, done.stderr) == (1, "")
        assert "checksum-mismatch" in done.stdout
        assert "\x1b[31mv" not in done.stdout
        assert done.stdout.isprintable() or "\x1b" not in done.stdout or options


def test_json_is_whole_and_fits_its_schema(
    run_cli: RunCli, good: Path, bad: Path, tmp_path: Path
) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schemas = Path(ckpttool.__file__).parent / "schemas"
    for sources, code in (
        ([good], 0),
        ([bad], 1),
        ([good, bad], 1),
        ([good, tmp_path / "nothing"], 10),
        ([bad, tmp_path / "nothing"], 1),
    ):
        done = run_cli(["verify", "--json", *sources])
        assert done.returncode == code
        document = json.loads(done.stdout)
        assert document["schema"] == "ckpttool.verify/1"
        assert document["ok"] == (code == 0)
        jsonschema.validate(document, json.loads((schemas / "envelope.json").read_text()))
        jsonschema.validate(document["data"], json.loads((schemas / "verify.json").read_text()))
        assert document["data"]["healthy"] == (code == 0)
        assert len(document["data"]["sources"]) == len(sources)


def test_ndjson_is_a_finding_a_line_and_a_summary(run_cli: RunCli, good: Path, bad: Path) -> None:
    done = run_cli(["verify", "--ndjson", good, bad])
    finding, summary = map(json.loads, done.stdout.splitlines())
    assert (finding["type"], finding["id"]) == ("finding", "checksum-mismatch")
    assert finding["source"] == str(bad)
    assert (summary["type"], summary["ok"], summary["healthy"]) == ("summary", False, False)
    assert summary["checked"] == {"variables": 2, "bytes": 16}
    assert base64.b64decode(finding["object_base64"]) == b"\x1b[31mv\xff"


def test_errors_keep_their_exit_codes(run_cli: RunCli, tmp_path: Path) -> None:
    assert run_cli(["verify"]).returncode == 2
    assert run_cli(["verify", ""]).returncode == 2
    done = run_cli(["verify", tmp_path / "nothing", "--json"])
    assert (done.returncode, done.stdout) == (10, "")
    assert json.loads(done.stderr)["code"] == 10
    (tmp_path / "page.ckpt").write_text("<!DOCTYPE html><html></html>")
    assert run_cli(["verify", tmp_path / "page.ckpt"]).returncode == 11
