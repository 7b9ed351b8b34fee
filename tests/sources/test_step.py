from __future__ import annotations

from pathlib import Path

import pytest

from ckpttool.limits import Limits
from ckpttool.sources.step import step_inside
from ckpttool.storage import open_directory
from tests.support.handmade import EntryFields, header, write_bundle
from tests.support.saved import save

VALUE = b"/.ATTRIBUTES/VARIABLE_VALUE"


def step(directory: Path, prefix: str = "m") -> int | None:
    with open_directory(str(directory)) as opened:
        return step_inside(opened, prefix, Limits())


@pytest.mark.parametrize(
    "key",
    [
        b"global_step",
        b"global_step" + VALUE,
        b"step" + VALUE,
        b"trainer/global_step" + VALUE,
        b"optimizer/iter" + VALUE,
        b"my_opt/iter" + VALUE,
        b"model/optimizer/_iterations" + VALUE,
        b"save_counter" + VALUE,
    ],
)
def test_where_a_step_is_found(tmp_path: Path, key: bytes) -> None:
    save(tmp_path, "m", step=12345, step_key=key)
    assert step(tmp_path) == 12345


def test_the_more_telling_name_then_the_shorter_path(tmp_path: Path) -> None:
    names = [b"a/step", b"b/c/global_step", b"d/global_step", b"epoch"]
    entries: dict[bytes, EntryFields | bytes] = {
        name + VALUE: {"dtype": 3, "size": 4, "offset": 4 * number}
        for number, name in enumerate(names)
    }
    write_bundle(tmp_path, "m", entries, [b"".join(n.to_bytes(4, "little") for n in range(4))])
    assert step(tmp_path) == 2


def test_a_step_before_a_count_of_saves(tmp_path: Path) -> None:
    entries: dict[bytes, EntryFields | bytes] = {
        b"optimizer/iter" + VALUE: {"dtype": 9, "size": 8},
        b"save_counter" + VALUE: {"dtype": 9, "size": 8, "offset": 8},
    }
    write_bundle(tmp_path, "m", entries, [(500).to_bytes(8, "little") + (3).to_bytes(8, "little")])
    assert step(tmp_path) == 500


@pytest.mark.parametrize(
    ("dtype", "data", "value"),
    [
        (3, (7).to_bytes(4, "little"), 7),
        (9, (-1).to_bytes(8, "little", signed=True), -1),
        (22, b"\xff" * 4, 2**32 - 1),
        (23, b"\xff" * 8, 2**64 - 1),
        (1, b"\0\0\x80?", None),  # a float is no step
        (9, b"1234", None),  # a size that does not fit
    ],
)
def test_types_of_a_step(tmp_path: Path, dtype: int, data: bytes, value: int | None) -> None:
    write_bundle(tmp_path, "m", {b"global_step": {"dtype": dtype, "size": len(data)}}, [data])
    assert step(tmp_path) == value


def test_big_endian(tmp_path: Path) -> None:
    entries: dict[bytes, EntryFields | bytes] = {b"global_step": {"dtype": 3, "size": 4}}
    write_bundle(tmp_path, "m", entries, [b"\0\0\1\2"], head=header(1, big_endian=True))
    assert step(tmp_path) == 258


def test_no_step(tmp_path: Path) -> None:
    save(tmp_path, "m")
    assert step(tmp_path) is None
    assert step(tmp_path, "absent") is None


def test_a_vector_is_no_step(tmp_path: Path) -> None:
    entries: dict[bytes, EntryFields | bytes] = {
        b"global_step": {"dtype": 9, "shape": (1,), "size": 8}
    }
    write_bundle(tmp_path, "m", entries, [b"\1" * 8])
    assert step(tmp_path) is None


def test_a_step_that_cannot_be_trusted_is_none(tmp_path: Path) -> None:
    save(tmp_path, "m", step=5)
    shard = tmp_path / "m.data-00000-of-00001"
    data = shard.read_bytes()
    shard.write_bytes(data[:-1] + b"\x7f")  # no longer what the checksum says
    assert step(tmp_path) is None
    shard.write_bytes(data[:10])
    assert step(tmp_path) is None
    shard.unlink()
    assert step(tmp_path) is None
    (tmp_path / "m.index").write_bytes(b"broken")
    assert step(tmp_path) is None


@pytest.mark.parametrize(
    ("name", "prefix", "value"),
    [
        ("v2-widedeep-5steps", "model.ckpt-15280", 15280),
        ("v2-taxi-2shard-tf1x", "model.ckpt-10000", 10000),
        ("obj-manager-timestamps/ckpt_nstep", "ckpt-6", 50194),
        ("obj-a2c-2shard-unlisted", "ckpt-5", 8442),
    ],
)
def test_steps_of_the_corpus(corpus: Path, name: str, prefix: str, value: int) -> None:
    assert step(corpus / name, prefix) == value
