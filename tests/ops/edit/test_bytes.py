"""``edit`` without TensorFlow: big-endian files, unknown fields, no numpy where none is needed."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import numpy as np
import pytest

from ckpttool.api import open as open_checkpoint
from ckpttool.errors import RefusedError
from ckpttool.formats.bundle_writer import encode_string, patch_dtype
from ckpttool.formats.tensor_bytes import string_checksum
from tests.support.command import ROOT
from tests.support.editing import run
from tests.support.handmade import (
    EntryFields,
    entry,
    header,
    masked_crc,
    string_payload,
    write_bundle,
)
from tests.support.memory_file import MemoryFile

VALUES = [1.5, -2.25, 70000.0, 1 / 3]


def big_endian(directory: Path, prefix: str = "s") -> Path:
    data = struct.pack(">4f", *VALUES) + struct.pack(">2q", 7, -1)
    floats: EntryFields = {"shape": (4,), "size": 16}
    integers: EntryFields = {"dtype": 9, "shape": (2,), "offset": 16, "size": 16}
    return write_bundle(
        directory, prefix, {b"w": floats, b"n": integers}, [data], head=header(1, big_endian=True)
    )


@pytest.mark.parametrize("to", ["float64", "bfloat16", "float16"])
def test_big_endian_values_are_cast_in_their_order(tmp_path, to):
    source = big_endian(tmp_path)
    result = run(source, tmp_path / "d", cast=to, renames=("w=v",))
    with open_checkpoint(str(tmp_path / "d")) as checkpoint:
        found = checkpoint.read("v")
        with np.errstate(over="ignore"):
            expected = np.array(VALUES, "f4").astype(found.dtype)
        np.testing.assert_array_equal(found, expected)
        assert checkpoint.read("n").tolist() == [7, -1]
        assert checkpoint["v"].dtype == to
    reasons = {change.what: change.reason for change in result.changes}
    lost = {"float64": "exact", "bfloat16": "2 of 4 values rounded",
            "float16": "1 of 4 values rounded, 1 of 4 values overflowed to inf"}  # fmt: skip
    assert reasons[f"float32 → {to}"] == lost[to]
    raw = (tmp_path / "d.data-00000-of-00001").read_bytes()
    if to == "float64":
        assert struct.unpack(">4d", raw[:32])[0] == 1.5


def test_rounding_is_said_in_one_line_and_what_became_infinite_by_name(tmp_path):
    fields: dict[bytes, EntryFields | bytes] = {
        b"%d" % n: {"shape": (2,), "size": 8, "offset": 8 * n} for n in range(5)
    }
    numbers = [0.1, 0.5, 0.25, 0.5, 0.1, 0.3, 1e9, 0.1, 1e9, 1.0]
    write_bundle(tmp_path, "s", fields, [struct.pack("<10f", *numbers)])
    result = run(tmp_path / "s", tmp_path / "d", cast="float16")
    assert result.warnings == (
        "3: float32 → float16: 1 of 2 values rounded, 1 of 2 values overflowed to inf",
        "4: float32 → float16: 1 of 2 values overflowed to inf",
        "2 variables: 3 of 4 values rounded; each with --json",
    )


def test_a_pattern_that_keeps_nothing_is_named(tmp_path):
    """D19: a typo is the reason, and not that too little would be left."""
    write_bundle(tmp_path, "s", {b"w/kernel": {"shape": (1,), "size": 4}}, [bytes(4)])
    with pytest.raises(RefusedError) as caught:
        run(tmp_path / "s", tmp_path / "d", keep=("kernel",))
    assert caught.value.id == "unmatched"
    assert "w/kernel" in caught.value.hint
    with pytest.raises(RefusedError) as caught:
        run(tmp_path / "s", tmp_path / "d", keep=("kernel",), allow_unmatched=True)
    assert caught.value.id == "nothing-left"


def test_a_layout_of_another_byte_order_is_refused(tmp_path):
    big_endian(tmp_path)
    write_bundle(tmp_path, "l", {b"w": {"shape": (4,), "size": 16}}, [bytes(16)])
    with pytest.raises(RefusedError) as caught:
        run(tmp_path / "s", tmp_path / "d", like=str(tmp_path / "l"))
    assert caught.value.id == "bundles-differ"


@pytest.mark.parametrize("value", [b"", b"x", b"graph" * 1000])
@pytest.mark.parametrize("order", [False, True])
def test_an_encoded_string_has_its_checksums(value, order):
    payload, checksum = encode_string(value, big_endian=order)
    file = MemoryFile(payload)
    assert string_checksum(file, 0, len(payload), 1, big_endian=order) == checksum
    assert payload.endswith(value)
    if not order:
        assert (payload, checksum) == string_payload([value])


@pytest.mark.parametrize("slices", [[], [[(0, 2)], [(2, None)]]])
@pytest.mark.parametrize("extra", [b"", b"\xf2\x06\x03new", b"\x08\x03"])
@pytest.mark.parametrize("shape", [(), (3, 4), (2**40,), (1,) * 40, None])
def test_a_patched_dtype_is_all_that_changes(shape, extra, slices):
    for old, new in ((1, 2), (200, 3), (3, 200)):
        place = {"shard": 3, "offset": 2**33, "size": 48, "crc": 0x80818283}
        before = entry(old, shape, slices=slices, extra=extra, **place)
        after = entry(new, shape, slices=slices, extra=extra.removesuffix(b"\x08\x03"), **place)
        assert patch_dtype(before, new) == after


def test_fields_of_a_later_version_stay(tmp_path):
    """Of an entry that is renamed and cast, everything but type, place and checksum."""
    extra = b"\xf2\x06\x03new"  # field 110
    data = struct.pack("<2f", 1.0, 2.0)
    stored = entry(1, (2,), size=8, crc=masked_crc(data), extra=extra)
    write_bundle(tmp_path, "s", {b"w": stored}, [data])
    run(tmp_path / "s", tmp_path / "d", cast="float64", renames=("w=v",))
    assert extra in (tmp_path / "d.index").read_bytes()


def test_nothing_but_a_cast_needs_numpy(run_cli, fixtures_dir, tmp_path):
    """And nothing at all needs TensorFlow."""
    for name in ("numpy", "tensorflow"):
        (tmp_path / "none" / name).mkdir(parents=True)
        (tmp_path / "none" / name / "__init__.py").write_text("raise ImportError('not here')\n")
    env = {"PYTHONPATH": os.pathsep.join((str(tmp_path / "none"), str(ROOT)))}
    asked = ["--strip-optimizer", "--promote-ema", "--rename", "s/w/v/", "--verify"]
    done = run_cli(["edit", fixtures_dir / "mlp-v1", tmp_path / "d", *asked], env=env)
    assert done.returncode == 0, done.stderr
    done = run_cli(["edit", fixtures_dir / "keras3", tmp_path / "e", "--strip-optimizer"], env=env)
    assert done.returncode == 0, done.stderr
    done = run_cli(["edit", fixtures_dir / "mlp-v1", tmp_path / "f", "--cast", "float64"], env=env)
    assert done.returncode != 0
    assert not list(tmp_path.glob("f.*"))


@pytest.mark.parametrize("seed", range(20))
def test_chains_of_edits_against_a_dictionary(tmp_path, seed):
    """Random renames, drops and casts in a row; the same done to plain arrays."""
    dice = np.random.default_rng(seed)
    arrays = {
        f"s{number % 3}/w{number}": dice.normal(size=dice.integers(0, 40)).astype("<f4")
        for number in range(8)
    }
    arrays |= {f"{name}/Adam": value + 1 for name, value in list(arrays.items())[:4]}
    data = b"".join(arrays[name].tobytes() for name in sorted(arrays))
    entries, offset = {}, 0
    for name in sorted(arrays):
        size = arrays[name].nbytes
        piece = data[offset : offset + size]
        entries[name.encode()] = entry(
            1, arrays[name].shape, offset=offset, size=size, crc=masked_crc(piece)
        )
        offset += size
    here = write_bundle(tmp_path, "m0", entries, [data])
    for step in range(1, 5):
        there = tmp_path / f"m{step}"
        choice = dice.integers(0, 3)
        if choice == 0:
            run(here, there, renames=(f"s#^s{step % 3}/#n{step}/#",), allow_unmatched=True)
            old, new = f"s{step % 3}/", f"n{step}/"
            arrays = {
                new + name.removeprefix(old) if name.startswith(old) else name: value
                for name, value in arrays.items()
            }
        elif choice == 1 and len(arrays) > 4:
            victim = min(name for name in arrays if not name.endswith("Adam"))
            run(here, there, drop=(victim,))
            arrays = {
                name: value
                for name, value in arrays.items()
                if name not in {victim, f"{victim}/Adam"}
            }
        else:
            to = ["float64", "float32", "float16"][dice.integers(0, 3)]
            run(here, there, cast=to, only=("*1*",), allow_unmatched=True)
            arrays = {
                name: value.astype(to) if "1" in name else value for name, value in arrays.items()
            }
        with open_checkpoint(str(there)) as checkpoint:
            assert set(checkpoint) == set(arrays)
            for name, value in arrays.items():
                found = checkpoint.read(name)
                assert found.dtype == value.dtype
                assert found.tobytes() == value.tobytes()
        here = there
