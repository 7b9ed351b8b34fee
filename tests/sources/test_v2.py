"""The V2 source on crafted checkpoints: what it lists, finds, reads and refuses."""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from ckpttool.errors import (
    ChangedError,
    CkpttoolError,
    CorruptError,
    ForeignFormatError,
    IncompleteError,
    LimitError,
    NotFoundError,
    UnsupportedError,
)
from ckpttool.formats.entry import SliceSpec
from ckpttool.limits import Limits
from ckpttool.model import Variable
from ckpttool.ops.inspect import inspect
from ckpttool.sources import v2
from ckpttool.sources.address import resolve
from ckpttool.sources.registry import open_source
from ckpttool.sources.selection import Selection, parse_index
from ckpttool.sources.v2 import BundleSource
from ckpttool.storage import open_directory
from tests.support.faults import Faults, faulty
from tests.support.handmade import (
    EntryFields,
    header,
    masked_crc,
    slice_key,
    string_payload,
    write_bundle,
)

FLOAT, STRING, HALF = 1, 7, 19


def opened(prefix: Path) -> BundleSource:
    source = open_source(str(prefix))
    assert isinstance(source, BundleSource)
    return source


def whole(variable: Variable) -> Selection:
    assert variable.shape is not None
    return Selection.whole(variable.shape)


def read(source: BundleSource, name: str, index: str = "...") -> np.ndarray:
    variable = source.find(name)
    assert variable.shape is not None
    return source.read(variable, Selection.of(variable.shape, parse_index(index)))


def floats(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


# Listing ------------------------------------------------------------------------------


Dims = Sequence[tuple[int, int | None]]


def partitioned(
    directory: Path,
    shape: Sequence[int],
    slices: Sequence[Dims],
    dtype: int = FLOAT,
    payloads: Sequence[bytes] = (),
) -> Path:
    """One partitioned variable ``emb`` and a plain one ``bias``, in one data file."""
    data = b"".join(payloads)
    entries: dict[bytes, EntryFields | bytes] = {
        b"emb": {"dtype": dtype, "shape": shape, "slices": slices},
    }
    at = 0
    for dims, payload in zip(slices, payloads, strict=False):
        entries[slice_key(b"emb", dims)] = {"dtype": dtype, "offset": at, "size": len(payload)}
        at += len(payload)
    entries[b"bias"] = {"shape": (2,), "offset": at, "size": 8}
    return write_bundle(directory, "p", entries, [data + floats(5, 6)])


def test_slices_are_parts_of_their_variable_and_no_variables(tmp_path: Path) -> None:
    slices = [[(0, 2), (0, None)], [(2, 1), (0, None)]]
    prefix = partitioned(tmp_path, (3, 2), slices, payloads=[floats(1, 2, 3, 4), floats(5, 6)])
    with opened(prefix) as source:
        bias, emb = source.variables()
        assert (bias.name, emb.name) == ("bias", "emb")
        assert emb.nbytes == 24
        assert (emb.shard, emb.offset) == (0, None)
        assert emb.slices is not None
        assert [(part.start, part.extent, part.offset) for part in emb.slices] == [
            ((0, 0), (2, 2), 0),
            ((2, 0), (1, 2), 16),
        ]
        assert source.find("emb") == emb
        assert source.shards()[0].expected == 32


def test_a_key_that_begins_like_a_slice_is_a_variable_unless_it_is_one(tmp_path: Path) -> None:
    stray = slice_key(b"gone", [(0, 1)])
    entries: dict[bytes, EntryFields | bytes] = {
        b"\0mine": {"shape": (1,), "size": 4},
        stray: {"shape": (1,), "size": 4},
        b"emb": {"shape": (2,), "slices": [[(0, 2)]]},
        slice_key(b"emb", [(0, 2)]): {"offset": 0, "size": 8},
    }
    prefix = write_bundle(tmp_path, "p", entries, [floats(1, 2)])
    with opened(prefix) as source:
        names = [variable.key.encode("utf-8", "surrogateescape") for variable in source.variables()]
        assert names == sorted([stray, b"\0mine", b"emb"])
        assert read(source, "\0mine").tolist() == [1.0]
        hidden = slice_key(b"emb", [(0, 2)]).decode("utf-8", "surrogateescape")
        assert source.lookup(hidden) is None


def test_keys_that_begin_like_slices_are_bounded_each_time(tmp_path: Path) -> None:
    """All of them are held until it is known which are slices."""
    entries: dict[bytes, EntryFields | bytes] = {
        b"\0%d" % number: {"shape": (1,), "size": 4} for number in range(20)
    }
    prefix = str(write_bundle(tmp_path, "m", entries, [b"1234"]))
    with open_source(prefix, Limits(index_slices=20)) as source:
        assert len(list(source.variables())) == 20
    with open_source(prefix, Limits(index_slices=19)) as source:
        for _ in range(2):  # what failed is not taken for an answer later
            with pytest.raises(LimitError) as caught:
                list(source.variables())
            assert caught.value.id == "limit-index-slices"


def test_a_name_that_is_none_is_said_without_looking_up_a_slice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner: EntryFields = {"shape": (4,), "slices": [[(0, 2)], [(2, 2)]]}
    entries: dict[bytes, EntryFields | bytes] = {
        b"emb": owner,
        b"other": owner,
        b"w": {"shape": (2,), "size": 8},
    }
    write_bundle(tmp_path, "m", entries, [floats(1, 2)])

    def key(spec: SliceSpec, name: bytes) -> bytes:
        raise AssertionError(spec, name)

    monkeypatch.setattr(SliceSpec, "key", key)
    with opened(tmp_path / "m") as source:
        with pytest.raises(NotFoundError) as caught:
            source.find("emc")
        assert caught.value.why == "none of its 3 variables has this name, key or path"
        assert caught.value.hint == "did you mean: emb"
        assert [(shard.nbytes, shard.expected) for shard in source.shards()] == [(8, 8)]


def test_a_listing_goes_on_past_slices_that_make_no_sense(tmp_path: Path) -> None:
    prefix = partitioned(tmp_path, (3, 2), [[(0, 2)], [(2, 2**40), (0, None)]], payloads=[b""])
    with opened(prefix) as source:
        _, emb = source.variables()
        assert emb.slices is not None
        assert emb.slices[0].shard == 0
        assert emb.slices[1] == ((2, 0), (2**40, -1), None, None, None, None)
        with pytest.raises(CorruptError) as caught:
            read(source, "emb")
        assert caught.value.id == "slice-shape"
        assert read(source, "bias").tolist() == [5.0, 6.0]


def test_an_unknown_dtype_is_listed_and_cannot_be_read(tmp_path: Path) -> None:
    prefix = write_bundle(tmp_path, "u", {b"w": {"dtype": 77, "shape": (1,), "size": 4}}, [b"abcd"])
    with opened(prefix) as source:
        (variable,) = source.variables()
        assert (variable.dtype, variable.nbytes) == ("dtype_77", 4)
        with pytest.raises(UnsupportedError, match="dtype_77") as caught:
            list(source.chunks(variable, whole(variable)))
        assert caught.value.id == "dtype-unsupported"
        assert source.extent(variable) is None


def test_an_unknown_rank_is_listed_and_cannot_be_read(tmp_path: Path) -> None:
    entry = {b"w": b"\x08\x01\x12\x02\x18\x01"}  # float32, shape {unknown_rank: true}
    prefix = write_bundle(tmp_path, "u", entry, [b""])
    with opened(prefix) as source:
        (variable,) = source.variables()
        assert variable.shape is None
        with pytest.raises(UnsupportedError) as caught:
            list(source.chunks(variable, Selection.whole(())))
        assert caught.value.id == "shape-unknown"


def test_one_variable_is_no_plural(tmp_path: Path) -> None:
    entries: dict[bytes, EntryFields | bytes] = {b"w": {"shape": (1,), "size": 4}}
    with opened(write_bundle(tmp_path, "n", entries, [b"abcd"])) as source:
        with pytest.raises(NotFoundError) as caught:
            source.find("bias")
        assert caught.value.why == "none of its 1 variable has this name, key or path"


def test_the_nearest_names_are_offered(tmp_path: Path) -> None:
    entries: dict[bytes, EntryFields | bytes] = {
        b"dense/kernel": {"shape": (1,), "size": 4},
        b"dense/bias": {"shape": (1,), "size": 4},
    }
    with opened(write_bundle(tmp_path, "n", entries, [b"abcd"])) as source:
        assert source.lookup("dense/kernal") is None
        with pytest.raises(NotFoundError, match="dense/kernal") as caught:
            source.find("dense/kernal")
        assert caught.value.id == "variable-not-found"
        assert "did you mean: dense/kernel" in caught.value.hint


def test_a_broken_object_graph_costs_names_and_nothing_else(tmp_path: Path) -> None:
    payload, crc = string_payload([b"\xff\xff no graph"])
    entries: dict[bytes, EntryFields | bytes] = {
        b"_CHECKPOINTABLE_OBJECT_GRAPH": {
            "dtype": STRING,
            "offset": 4,
            "size": len(payload),
            "crc": crc,
        },
        b"w/.ATTRIBUTES/VARIABLE_VALUE": {"shape": (1,), "size": 4},
    }
    prefix = write_bundle(tmp_path, "g", entries, [floats(7) + payload])
    with opened(prefix) as source:
        assert source.style == "object"
        names = [variable.name for variable in source.variables()]
        assert names == ["_CHECKPOINTABLE_OBJECT_GRAPH", "w"]
        assert any("names and kinds are guessed" in note for note in source.notes)
        assert read(source, "w/.ATTRIBUTES/VARIABLE_VALUE").tolist() == [7.0]


# Shards -------------------------------------------------------------------------------


def test_shards_are_those_on_disk_and_those_referred_to(tmp_path: Path) -> None:
    entries: dict[bytes, EntryFields | bytes] = {
        b"a": {"shape": (1,), "size": 4, "shard": 0},
        b"b": {"shape": (1,), "size": 4, "shard": 1, "offset": 100, "crc": 1},
    }
    prefix = write_bundle(tmp_path, "s", entries, [b"abcdefgh"], head=header(3))
    (tmp_path / "s.data-00000-of-00001").rename(tmp_path / "s.data-00000-of-00003")
    (tmp_path / "s.data-00002-of-00003").write_bytes(b"")
    (tmp_path / "s.data-00000-of-00002").write_bytes(b"of another save")
    with opened(prefix) as source:
        found = [(shard.nbytes, shard.expected, shard.present) for shard in source.shards()]
        assert found == [(8, 4, True), (None, 104, False), (0, 0, True)]


def test_the_list_of_missing_shards_ends_and_that_of_present_ones_does_not(
    tmp_path: Path,
) -> None:
    """A small index may say that its variables lie in 99,999 data files."""
    count, there = 400, range(250, 400)
    entries: dict[bytes, EntryFields | bytes] = {
        b"v%03d" % number: {"shape": (1,), "size": 4, "shard": number, "crc": 1}
        for number in range(count)
    }
    prefix = write_bundle(tmp_path, "m", entries, [], head=header(count))
    for number in there:
        (tmp_path / f"m.data-{number:05d}-of-00400").write_bytes(bytes(4))
    with opened(prefix) as source:
        shards = source.shards()
    assert [shard.present for shard in shards] == [False] * 100 + [True] * len(there)
    assert shards[99].path.endswith("m.data-00099-of-00400")
    report = inspect(str(prefix)).checkpoint
    assert report is not None
    missing = [found for found in report.problems if found.id == "shard-missing"]
    assert len(missing) == 101
    assert missing[-1].object == str(prefix)
    assert missing[-1].message == (
        "150 more of its data files are not there: 150 entries, 600 bytes"
    )


def test_a_header_that_claims_a_billion_shards_costs_nothing(tmp_path: Path) -> None:
    entry: dict[bytes, EntryFields | bytes] = {b"a": {"shape": (1,), "size": 4, "crc": 0}}
    prefix = write_bundle(tmp_path, "s", entry, [], head=header(2**31 - 1))
    with opened(prefix) as source:
        (shard,) = source.shards()
        assert shard.path.endswith("s.data-00000-of-2147483647")
        with pytest.raises(IncompleteError) as caught:
            read(source, "a")
        assert caught.value.id == "shard-missing"


def test_a_bounded_number_of_data_files_is_open(tmp_path: Path) -> None:
    count = 80
    entries: dict[bytes, EntryFields | bytes] = {
        b"v%02d" % number: {"shape": (1,), "size": 4, "shard": number} for number in range(count)
    }
    prefix = write_bundle(tmp_path, "m", entries, [floats(number) for number in range(count)])
    with opened(prefix) as source:
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(2):
            for number in range(count):
                assert read(source, f"v{number:02d}").tolist() == [number]
        assert len(os.listdir("/proc/self/fd")) - before <= 32


# Values -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [FLOAT, HALF, 17, 22, 23, 24, 8, 18, 10, 14, 29])
def test_puts_slices_of_every_dtype_together(tmp_path: Path, dtype: int) -> None:
    size = {FLOAT: 4, HALF: 2, 17: 2, 22: 4, 23: 8, 24: 1, 8: 8, 18: 16, 10: 1, 14: 2, 29: 1}[dtype]
    bits = np.arange(12 * size, dtype=np.uint8).reshape(4, 3, size)
    bits[..., 1:] = 0  # numbers small enough to be sound in every dtype
    bits[..., 0] &= 1
    boxes = [(slice(0, 4), slice(2, 3)), (slice(0, 1), slice(0, 2)), (slice(1, 4), slice(0, 2))]
    slices: list[Dims] = [[(0, None), (2, 1)], [(0, 1), (0, 2)], [(1, 3), (0, 2)]]
    payloads = [bits[box].tobytes() for box in boxes]
    prefix = partitioned(tmp_path, (4, 3), slices, dtype, payloads)
    with opened(prefix) as source:
        emb = source.find("emb")
        assert b"".join(source.chunks(emb, whole(emb))) == bits.tobytes()
        some = Selection.of((4, 3), parse_index("::-2, 1:"))
        assert b"".join(source.chunks(emb, some)) == bits[::-2, 1:].tobytes()
        assert source.read(emb, some).shape == (2, 2)


def test_puts_slices_of_strings_together(tmp_path: Path) -> None:
    words = [[b"a", b"bb"], [b"", b"d" * 300], [b"\xff", b"f\0"]]
    top, top_crc = string_payload([words[0][0], words[1][0], words[2][0]])
    right, right_crc = string_payload([words[0][1], words[1][1], words[2][1]])
    dims = [[(0, None), (0, 1)], [(0, None), (1, 1)]]
    entries: dict[bytes, EntryFields | bytes] = {
        b"s": {"dtype": STRING, "shape": (3, 2), "slices": dims},
        slice_key(b"s", dims[0]): {"dtype": STRING, "size": len(top), "crc": top_crc},
        slice_key(b"s", dims[1]): {
            "dtype": STRING,
            "offset": len(top),
            "size": len(right),
            "crc": right_crc,
        },
    }
    prefix = write_bundle(tmp_path, "s", entries, [top + right])
    with opened(prefix) as source:
        assert read(source, "s").tolist() == words
        assert read(source, "s", "::-1, 1").tolist() == [b"f\0", b"d" * 300, b"bb"]
        assert read(source, "s", "1, 1") == b"d" * 300


def test_big_endian_files_are_read(tmp_path: Path) -> None:
    numbers = struct.pack(">4f", 1.5, -2, 3, 4)
    pairs = struct.pack(">4f", 1, 2, 3, -4)
    bools = b"\1\0"
    lengths = struct.pack(">II", 3, 0)
    checksum = struct.pack(">I", masked_crc(lengths))
    words = b"\3\0" + checksum + b"abc"
    entries: dict[bytes, EntryFields | bytes] = {
        b"bools": {"dtype": 10, "shape": (2,), "offset": 32, "size": 2},
        b"floats": {"shape": (2, 2), "size": 16},
        b"pairs": {"dtype": 8, "shape": (2,), "offset": 16, "size": 16},
        b"words": {
            "dtype": STRING,
            "shape": (2,),
            "offset": 34,
            "size": len(words),
            "crc": masked_crc(lengths + checksum + b"abc"),
        },
    }
    data = numbers + pairs + bools + words
    prefix = write_bundle(tmp_path, "be", entries, [data], head=header(1, big_endian=True))
    with opened(prefix) as source:
        assert read(source, "floats").tolist() == [[1.5, -2], [3, 4]]
        assert read(source, "floats", ":, 1").tolist() == [-2, 4]
        assert read(source, "pairs").tolist() == [1 + 2j, 3 - 4j]
        assert read(source, "bools").tolist() == [True, False]
        assert read(source, "words").tolist() == [b"abc", b""]
        extent = source.extent(source.find("floats"))
        assert extent is not None
        assert not extent.little_endian
        extent = source.extent(source.find("bools"))
        assert extent is not None
        assert extent.little_endian


def test_reads_only_the_bytes_of_the_rows_wanted(tmp_path: Path) -> None:
    data = np.arange(100_000, dtype="<f4").reshape(1000, 100)
    entry: dict[bytes, EntryFields | bytes] = {
        b"emb": {"shape": (1000, 100), "size": data.nbytes, "offset": 4}
    }
    prefix = write_bundle(tmp_path, "big", entry, [b"skip" + data.tobytes()])
    faults = Faults()
    resolved = resolve(str(prefix))
    with BundleSource(
        faulty(open_directory(str(tmp_path)), faults),
        "big",
        address=resolved.address,
        location=resolved.location,
        kind="tf-v2",
        notes=(),
        limits=Limits(),
    ) as source:
        emb = source.find("emb")
        rows = Selection.of((1000, 100), parse_index("990:, :"))
        planned = list(source.reads(emb, rows))
        faults.reads.clear()
        assert b"".join(source.chunks(emb, rows)) == data[990:].tobytes()
        assert faults.reads == planned == [(str(prefix) + ".data-00000-of-00001", 396_004, 4000)]


# What is wrong ------------------------------------------------------------------------


def plain(directory: Path, data: bytes, **fields: int) -> Path:
    entry: EntryFields = {"shape": (4,), "size": 16, "crc": masked_crc(floats(1, 2, 3, 4))}
    entry.update(fields)  # type: ignore[typeddict-item]
    return write_bundle(directory, "w", {b"w": entry}, [data])


def failure(prefix: Path, index: str = "...") -> CkpttoolError:
    with opened(prefix) as source, pytest.raises(CkpttoolError) as caught:
        read(source, "w", index)
    return caught.value


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    prefix = plain(tmp_path, floats(1, 2, 3, 4))
    (tmp_path / "w.data-00000-of-00001").unlink()
    error = failure(prefix)
    assert isinstance(error, IncompleteError)
    assert error.id == "shard-missing"
    assert "values of w" in error.what
    assert "w.data-00000-of-00001" in error.why
    assert "shard 0 of 1" in error.why


def test_a_short_shard_is_named_and_what_it_has_can_be_read(tmp_path: Path) -> None:
    prefix = plain(tmp_path, floats(1, 2, 3))
    error = failure(prefix)
    assert isinstance(error, IncompleteError)
    assert error.id == "shard-short"
    assert "16 bytes are wanted at offset 0, and the file has 12 bytes" in error.why
    with opened(prefix) as source:
        assert read(source, "w", "1:3").tolist() == [2.0, 3.0]
        with pytest.raises(IncompleteError):
            source.extent(source.find("w"))


def test_a_data_file_that_is_a_git_lfs_pointer(tmp_path: Path) -> None:
    pointer = (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"ab" * 32 + b"\nsize 987654\n"
    )
    error = failure(plain(tmp_path, pointer, offset=1000))
    assert isinstance(error, ForeignFormatError)
    assert error.id == "git-lfs-pointer"
    assert "987654" in error.why


def test_a_checksum_is_compared_where_all_is_read(tmp_path: Path) -> None:
    prefix = plain(tmp_path, floats(1, 2, 3, 5))
    error = failure(prefix)
    assert isinstance(error, CorruptError)
    assert error.id == "checksum-mismatch"
    assert "w.data-00000-of-00001" in error.why
    assert "bytes 0 to 16" in error.why
    with opened(prefix) as source:
        w = source.find("w")
        assert read(source, "w", "2:").tolist() == [3.0, 5.0], "a part cannot be checked"
        assert b"".join(source.chunks(w, whole(w), check=False)) == floats(1, 2, 3, 5)


def test_a_checksum_is_compared_slice_by_slice(tmp_path: Path) -> None:
    slices = [[(0, 2)], [(2, 2)]]
    prefix = partitioned(tmp_path, (4,), slices, payloads=[floats(1, 2), floats(3, 4)])
    file = tmp_path / "p.data-00000-of-00001"
    file.write_bytes(floats(1, 2, 3, 9, 5, 6))
    with opened(prefix) as source:
        assert read(source, "emb", ":2").tolist() == [1.0, 2.0]
        with pytest.raises(CorruptError, match="bytes 8 to 16"):
            read(source, "emb")
        with pytest.raises(CorruptError, match="bytes 8 to 16"):
            read(source, "emb", "1:")  # all of the second slice


def test_a_checksum_that_is_not_stored_is_not_compared(tmp_path: Path) -> None:
    entry: dict[bytes, EntryFields | bytes] = {b"w": {"shape": (2,), "size": 8, "crc": None}}
    with opened(write_bundle(tmp_path, "w", entry, [floats(1, 2)])) as source:
        assert read(source, "w").tolist() == [1.0, 2.0]


def test_a_damaged_string_names_its_variable(tmp_path: Path) -> None:
    payload, crc = string_payload([b"hello", b"world"])
    for at in range(len(payload)):
        broken = bytearray(payload)
        broken[at] ^= 4
        entry: dict[bytes, EntryFields | bytes] = {
            b"w": {"dtype": STRING, "shape": (2,), "size": len(payload), "crc": crc}
        }
        error = failure(write_bundle(tmp_path, "w", entry, [bytes(broken)]))
        assert isinstance(error, CorruptError)
        assert "values of w" in error.what


@pytest.mark.parametrize(
    ("slices", "stored", "id"),
    [
        ([[(0, 3)], [(2, 2)]], 2, "slice-overlap"),
        ([[(0, 2)], [(3, 1)]], 2, "slice-gap"),
        ([[(0, 2)], [(2, 2)]], 1, "slice-missing"),
        ([[(0, 2)], [(2, 3)]], 2, "slice-shape"),
        ([[(0, 2)], [(2, 2), (0, 1)]], 2, "slice-shape"),
    ],
)
def test_layouts_that_cannot_be_read(
    tmp_path: Path, slices: list[Dims], stored: int, id: str
) -> None:
    payloads = [floats(*range(dims[0][1] or 0)) for dims in slices[:stored]]
    with opened(partitioned(tmp_path, (4,), slices, payloads=payloads)) as source:
        with pytest.raises(CkpttoolError, match="emb") as caught:
            read(source, "emb")
        assert caught.value.id == id
        assert caught.value.exit_code == 20
        assert [variable.name for variable in source.variables()] == ["bias", "emb"]
        assert read(source, "bias").tolist() == [5.0, 6.0]


def test_a_size_that_does_not_fit_the_shape(tmp_path: Path) -> None:
    error = failure(plain(tmp_path, floats(1, 2, 3, 4), size=12))
    assert error.id == "size-mismatch"
    assert "12 bytes are stored" in error.why
    assert "are 16" in error.why


def test_a_linked_data_file_is_not_followed(tmp_path: Path) -> None:
    prefix = plain(tmp_path, floats(1, 2, 3, 4))
    file = tmp_path / "w.data-00000-of-00001"
    file.rename(tmp_path / "elsewhere")
    file.symlink_to("elsewhere")
    error = failure(prefix)
    assert error.id == "unsafe-link"
    assert error.exit_code == 22
    assert "values of w" in error.what


# Change and failure underneath --------------------------------------------------------


def test_a_checkpoint_that_is_replaced_while_it_is_read(tmp_path: Path) -> None:
    prefix = plain(tmp_path, floats(1, 2, 3, 4))
    with opened(prefix) as source:
        w = source.find("w")
        fresh = tmp_path / "fresh"
        fresh.write_bytes(floats(9, 9, 9, 9))
        fresh.replace(tmp_path / "w.data-00000-of-00001")
        os.utime(tmp_path / "w.index", ns=(1, 1))
        with pytest.raises(ChangedError, match="while w was read") as caught:
            source.read(w, whole(w))
        assert "checksum" in caught.value.why
        with pytest.raises(ChangedError):
            source.read(w, Selection.of((4,), parse_index("0:2")))  # no checksum tells here


def test_what_was_checked_is_good_though_the_files_are_gone(tmp_path: Path) -> None:
    prefix = plain(tmp_path, floats(1, 2, 3, 4))
    with opened(prefix) as source:
        w = source.find("w")
        assert source.extent(w) is not None, "the data file is open now"
        for file in tmp_path.iterdir():
            file.unlink()
        assert source.read(w, whole(w)).tolist() == [1.0, 2.0, 3.0, 4.0]
        with pytest.raises(ChangedError):
            source.read(w, Selection.of((4,), parse_index("0:2")))


@pytest.mark.parametrize("how", ["eio", "short"])
def test_every_read_may_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: Literal["eio", "short"]
) -> None:
    """The n-th read fails, for every n: an error that says where, and no values."""
    slices = [[(0, 2)], [(2, 2)]]
    prefix = partitioned(tmp_path, (4,), slices, payloads=[floats(1, 2), floats(3, 4)])

    def attempt(faults: Faults) -> np.ndarray:
        monkeypatch.setattr(v2, "open_directory", lambda path: faulty(open_directory(path), faults))
        with opened(prefix) as source:
            return read(source, "emb")

    counting = Faults()
    assert attempt(counting).tolist() == [1.0, 2.0, 3.0, 4.0]
    assert len(counting.reads) > 5, "of the index and of the data"
    for number, (path, _, _) in enumerate(counting.reads, 1):
        with pytest.raises(CkpttoolError) as caught:
            attempt(Faults(number, how))
        error = caught.value
        assert path in f"{error.what} {error.why}"
        assert error.exit_code == (40 if how == "eio" else 20)
        if ".data-" in path:
            assert "values of emb" in error.what
            assert error.id == ("storage" if how == "eio" else "shard-short")
