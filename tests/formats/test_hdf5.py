"""HDF5 files: what is in them, decoded as h5py does, and what may not be followed."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpttool.errors import (
    CkpttoolError,
    CorruptError,
    IncompleteError,
    LimitError,
    UnsafeError,
    UnsupportedError,
)
from ckpttool.formats.dtypes import BY_NAME, numpy_dtype
from ckpttool.formats.elements import swap_words
from ckpttool.formats.hdf5 import ChunkPlace, Dataset
from ckpttool.formats.hdf5_library import Hdf5File
from ckpttool.limits import Limits
from ckpttool.sources.hdf5_values import read_elements, read_strings
from ckpttool.sources.selection import Index, Selection
from tests.support.memory_file import MemoryFile

h5py = pytest.importorskip("h5py")


def written(write: Any, **options: Any) -> bytes:
    """The bytes of a file that ``write`` fills."""
    buffer = io.BytesIO()
    with h5py.File(buffer, "w", **options) as file:
        write(file)
    return buffer.getvalue()


def opened(data: bytes, limits: Limits | None = None, *, before: int = 0) -> Hdf5File:
    return Hdf5File(MemoryFile(bytes(before) + data), limits or Limits(), start=before)


def only(file: Hdf5File) -> Dataset:
    [dataset] = file.walk().datasets
    return dataset


def elements(file: Hdf5File, dataset: Dataset, index: Index = (...,)) -> np.ndarray:
    """A selection of a dataset as an array, as a source makes it."""
    assert dataset.shape is not None
    selection = Selection.of(dataset.shape, index)
    element = BY_NAME[dataset.type.name]
    data = b"".join(read_elements(file, dataset, selection, element.size, check=True))
    if not dataset.type.little_endian:
        data = swap_words(data, element.word)
    return np.frombuffer(data, numpy_dtype(dataset.type.name)).reshape(selection.result_shape)


NUMBERS = ["i1", "u1", "<i2", ">u2", "<i4", ">i4", "<u8", ">i8", "<f2", ">f4", "<f8", "?"]


@pytest.mark.parametrize("dtype", [*NUMBERS, "<c8", ">c16"])
@pytest.mark.parametrize("options", [{}, {"chunks": (2, 3), "compression": 4, "shuffle": True}])
def test_numbers_of_every_type_are_h5pys(dtype, options) -> None:
    values = np.arange(35).reshape(5, 7).astype(dtype)
    file = opened(written(lambda f: f.create_dataset("x", data=values, **options)))
    dataset = only(file)
    assert dataset.type.name == np.dtype(dtype).name
    assert elements(file, dataset).tolist() == values.tolist()


@pytest.mark.parametrize("userblock", [0, 512])
@pytest.mark.parametrize("before", [0, 77])
def test_a_file_inside_another_and_behind_a_userblock(userblock, before) -> None:
    def write(file: Any) -> None:
        file["plain"] = np.arange(12.0).reshape(3, 4)
        file.create_dataset("packed", data=np.arange(50), chunks=(7,), compression="gzip")
        file["words"] = ["a", "bcd"]

    file = opened(written(write, userblock_size=userblock), before=before)
    found = {dataset.path: dataset for dataset in file.walk().datasets}
    assert elements(file, found["plain"], (1,)).tolist() == [4, 5, 6, 7]
    assert elements(file, found["packed"]).tolist() == list(range(50))
    words = read_strings(file, found["words"], Selection.whole((2,)), check=True)
    assert words == [b"a", b"bcd"]


@st.composite
def cases(draw: st.DrawFn) -> tuple[np.ndarray, dict[str, Any], Index]:
    """An array, how to store it, and an index."""
    shape = tuple(draw(st.lists(st.integers(1, 12), min_size=1, max_size=3)))
    values = np.arange(np.prod(shape)).reshape(shape).astype(draw(st.sampled_from(NUMBERS)))
    options: dict[str, Any] = {}
    if draw(st.booleans()):
        options["chunks"] = tuple(draw(st.integers(1, size)) for size in shape)
        options["compression"] = draw(st.sampled_from([None, "gzip", "lzf"]))
        options["shuffle"] = draw(st.booleans())
        options["fletcher32"] = draw(st.booleans())
    index: list[int | slice] = []
    for size in shape:
        if draw(st.booleans()):
            index.append(draw(st.integers(-size, size - 1)))
        else:
            ends = st.integers(-size, size)
            step = draw(st.sampled_from([1, 2, -1, -3]))
            index.append(slice(draw(ends), draw(ends), step))
    return values, options, tuple(index)


@settings(max_examples=150, deadline=None)
@given(cases())
def test_any_selection_of_any_layout_is_numpys(case) -> None:
    values, options, index = case
    file = opened(written(lambda f: f.create_dataset("x", data=values, **options)))
    assert elements(file, only(file), index).tolist() == values[index].tolist()


def test_filters_that_h5py_brings_are_left_to_it() -> None:
    values = np.arange(1000, dtype="<i4").reshape(50, 20)
    options = {"chunks": (7, 6), "scaleoffset": 0}
    file = opened(written(lambda f: f.create_dataset("x", data=values, **options)))
    assert elements(file, only(file), (slice(3, 49, 5),)).tolist() == values[3:49:5].tolist()


def test_what_was_never_written_is_the_fill_value() -> None:
    def write(file: Any) -> None:
        file.create_dataset("plain", (3,), "f4", fillvalue=2.5)
        chunked = file.create_dataset("chunked", (9,), ">i2", chunks=(2,), fillvalue=7)
        chunked[4:6] = [1, 2]
        file.create_dataset("nothing", (0, 3), "f4")
        file["null"] = h5py.Empty("f4")

    file = opened(written(write))
    found = {dataset.path: dataset for dataset in file.walk().datasets}
    assert elements(file, found["plain"]).tolist() == [2.5] * 3
    assert elements(file, found["chunked"]).tolist() == [7, 7, 7, 7, 1, 2, 7, 7, 7]
    assert elements(file, found["nothing"]).shape == (0, 3)
    assert found["null"].shape == (0,)


def test_a_dataset_in_its_own_header() -> None:
    def write(file: Any) -> None:
        created = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        created.set_layout(h5py.h5d.COMPACT)
        space = h5py.h5s.create_simple((4,))
        made = h5py.h5d.create(file.id, b"x", h5py.h5t.STD_I32BE, space, created)
        made.write(h5py.h5s.ALL, h5py.h5s.ALL, np.arange(4, dtype="i4"))

    file = opened(written(write))
    assert only(file).layout == "compact"
    assert elements(file, only(file), (slice(1, None),)).tolist() == [1, 2, 3]


@pytest.mark.parametrize("options", [{}, {"chunks": (2,), "compression": "gzip"}])
@pytest.mark.parametrize("kind", ["S5", h5py.string_dtype(), h5py.string_dtype("utf-8", 9)])
def test_strings(kind, options) -> None:
    values = [b"a", b"", "é".encode(), b"12345", b"x y"]
    any_length = h5py.check_string_dtype(np.dtype(kind)).length is None
    array = np.array(values, object if any_length else kind)

    def write(file: Any) -> None:
        file.create_dataset("x", data=array, dtype=kind, **options)

    file = opened(written(write))
    selection = Selection.of((5,), (slice(None, None, -2),))
    assert read_strings(file, only(file), selection, check=True) == values[::-2]


def test_strings_end_as_their_type_says() -> None:
    def write(file: Any) -> None:
        for name, padding in (
            ("end", h5py.h5t.STR_NULLTERM),
            ("zeros", h5py.h5t.STR_NULLPAD),
            ("spaces", h5py.h5t.STR_SPACEPAD),
        ):
            kind = h5py.h5t.C_S1.copy()
            kind.set_size(6)
            kind.set_strpad(padding)
            made = h5py.h5d.create(file.id, name.encode(), kind, h5py.h5s.create(h5py.h5s.SCALAR))
            made.write(h5py.h5s.ALL, h5py.h5s.ALL, np.array(b"a\0b  ", "S6"), mtype=kind)

    file = opened(written(write))
    found = {
        dataset.path: read_strings(file, dataset, Selection.whole(()), check=True)
        for dataset in file.walk().datasets
    }
    assert found == {"end": [b"a"], "zeros": [b"a\0b  "], "spaces": [b"a\0b  \0"]}


@pytest.mark.parametrize(
    ("values", "word"),
    [
        (np.array([(1, 2.0)], "i4,f4"), "compound"),
        (np.zeros(2, "V3"), "opaque"),
        (np.array([1], "g"), "float_128"),
    ],
)
def test_types_without_a_like_are_named(values, word) -> None:
    file = opened(written(lambda f: f.create_dataset("x", data=values)))
    assert only(file).type.name == word


def test_opaque_elements_are_what_the_file_says() -> None:
    def write(file: Any) -> None:
        file.create_dataset("x", data=np.zeros(2, "V2")).attrs["dtype"] = "bfloat16"

    assert only(opened(written(write))).type.name == "bfloat16"


def test_an_enumeration_is_its_integer() -> None:
    kind = h5py.enum_dtype({"red": 0, "green": 1}, "i2")
    file = opened(written(lambda f: f.create_dataset("x", data=[1, 0], dtype=kind)))
    assert only(file).type.name == "int16"
    assert elements(file, only(file)).tolist() == [1, 0]


# What may not be followed ---------------------------------------------------------------


def test_links_are_not_followed(tmp_path) -> None:
    def write(file: Any) -> None:
        file["group/x"] = [1.0]
        file["soft"] = h5py.SoftLink("/group/x")
        file["dangling"] = h5py.SoftLink("/soft-too")
        file["outside"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "/x")
        file["group/up"] = file["/"]
        file["again"] = file["group"]

    os.mkfifo(tmp_path / "other.h5")  # opening it would wait for ever
    contents = opened(written(write)).walk()
    assert sorted(oddity.path for oddity in contents.oddities) in (
        ["again", "dangling", "group/up", "outside", "soft"],
        ["again/up", "dangling", "group", "outside", "soft"],
    )
    assert len(contents.datasets) == 1


def test_a_name_with_a_slash_leads_nowhere(tmp_path) -> None:
    def write(file: Any) -> None:
        file["aXb"] = [1.0]
        file["a"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "/")

    os.mkfifo(tmp_path / "other.h5")
    data = written(write).replace(b"aXb", b"a/b")
    contents = opened(data).walk()
    assert contents.datasets == []
    assert {oddity.path for oddity in contents.oddities} == {"a", "a/b"}


@pytest.mark.parametrize("kind", ["external", "virtual"])
def test_values_in_other_files_are_refused(kind, tmp_path) -> None:
    """An HDF5 file may not read another one into the weights (FAULTS 20; CVE-2026-1669)."""
    secret = tmp_path / "secret.h5"
    os.mkfifo(secret)
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        if kind == "external":
            file.create_dataset("x", (4,), "f4", external=[(str(secret), 0, 16)])
        else:
            layout = h5py.VirtualLayout((4,), "f4")
            layout[:] = h5py.VirtualSource(str(secret), "d", (4,))
            file.create_virtual_dataset("x", layout)
    file = opened(path.read_bytes())
    dataset = only(file)
    assert (dataset.layout, dataset.type.name) == (kind, "float32")
    with pytest.raises(UnsafeError, match="not read") as caught:
        list(read_elements(file, dataset, Selection.whole((4,)), 4, check=True))
    assert caught.value.id == "hdf5-elsewhere"


def test_a_plug_in_is_never_loaded() -> None:
    def write(file: Any) -> None:
        created = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        created.set_chunk((4,))
        created.set_filter(32015, h5py.h5z.FLAG_OPTIONAL)  # Zstandard
        space = h5py.h5s.create_simple((4,))
        h5py.h5d.create(file.id, b"x", h5py.h5t.NATIVE_INT32, space, created)

    file = opened(written(write))
    with pytest.raises(UnsupportedError) as caught:
        elements(file, only(file))
    assert caught.value.id == "hdf5-filter"


# Bounds -----------------------------------------------------------------------------------


def nested(file: Any) -> None:
    group = file
    for _ in range(6):
        group = group.create_group("inner")
    group["x"] = [1.0]


@pytest.mark.parametrize(
    ("limit", "most"),
    [("hdf5_depth", 5), ("hdf5_objects", 6), ("hdf5_path_bytes", 40), ("entries", 0)],
)
def test_what_a_walk_meets_is_bounded(limit, most) -> None:
    data = written(nested)
    assert [dataset.path for dataset in opened(data).walk().datasets] == ["inner/" * 6 + "x"]
    with pytest.raises(LimitError) as caught:
        opened(data, Limits(**{limit: most})).walk()
    assert (caught.value.exit_code, caught.value.id) == (21, "limit-hdf5")
    assert limit in caught.value.hint


def test_groups_that_multiply_are_entered_once() -> None:
    """Thirty groups, each twice in the one before: 2^30 paths to one dataset."""

    def write(file: Any) -> None:
        group = file
        for _ in range(30):
            inner = group.create_group("a")
            group["b"] = inner
            group = inner
        group["x"] = [1.0]

    contents = opened(written(write)).walk()
    assert len(contents.datasets) == 1
    assert len(contents.oddities) == 30


def test_a_shape_that_nothing_was_written_of_is_bounded() -> None:
    def write(file: Any) -> None:
        file.create_dataset("x", (2**50, 2**10), "f8", chunks=(64, 64), compression="gzip")

    file = opened(written(write))
    dataset = only(file)
    assert elements(file, dataset, (slice(0, 3), slice(0, 2))).tolist() == [[0, 0]] * 3
    assert dataset.shape is not None
    with pytest.raises(LimitError) as caught:
        list(read_elements(file, dataset, Selection.whole(dataset.shape), 8, check=True))
    assert caught.value.id == "hdf5-expansion"


def test_many_chunks_that_nothing_was_written_of_are_bounded() -> None:
    """A file of some kilobytes that claims millions of chunks, of one element each."""
    shape, most = (2**22,), 2**16

    def write(made: Any) -> None:
        made.create_dataset("empty", shape, "<f4", chunks=(1,), fillvalue=5)
        made.create_dataset("some", shape, "<f4", chunks=(1,))[7] = 1

    file = opened(written(write))
    asked = 0
    ask = file.chunk_place

    def counted(dataset: Dataset, start: tuple[int, ...]) -> ChunkPlace | None:
        nonlocal asked
        asked += 1
        return ask(dataset, start)

    file.chunk_place = counted  # type: ignore[method-assign]
    datasets = {dataset.path: dataset for dataset in file.walk().datasets}
    assert (elements(file, datasets["empty"]) == 5).all()
    with pytest.raises(LimitError) as caught:
        elements(file, datasets["some"])
    assert caught.value.id == "hdf5-expansion"
    with pytest.raises(LimitError):
        elements(file, datasets["some"], (slice(None, None, 9),))
    assert asked == 0
    assert elements(file, datasets["some"], (slice(0, most // 16),)).sum() == 1
    assert asked == most // 16


def test_a_chunk_may_not_be_larger_than_its_limit() -> None:
    data = written(lambda f: f.create_dataset("x", (4096,), "f4", chunks=(4096,)))
    file = opened(data, Limits(hdf5_chunk_bytes=4096))
    with pytest.raises(LimitError) as caught:
        elements(file, only(file))
    assert caught.value.id == "limit-hdf5"


def with_chunk(content: bytes) -> Hdf5File:
    """A dataset of one chunk of 64 bytes, packed by deflate, with these bytes as stored."""

    def write(file: Any) -> None:
        made = file.create_dataset("x", (16,), "f4", chunks=(16,), compression="gzip")
        made.id.write_direct_chunk((0,), content)

    return opened(written(write))


@pytest.mark.parametrize("size", [60, 68, 2**26])
def test_a_chunk_unpacks_to_its_shape_or_not_at_all(size) -> None:
    import zlib

    file = with_chunk(zlib.compress(bytes(size)))
    with pytest.raises(CorruptError) as caught:
        elements(file, only(file))
    assert caught.value.id == "hdf5-chunk"


def test_a_chunk_that_is_no_deflate_stream() -> None:
    file = with_chunk(b"not packed at all")
    with pytest.raises(CorruptError, match="damaged in x"):
        elements(file, only(file))


def test_a_wrong_checksum_is_found() -> None:
    values = np.arange(16, dtype="<f4")
    options = {"chunks": (16,), "fletcher32": True}
    data = bytearray(written(lambda f: f.create_dataset("x", data=values, **options)))
    data[data.find(values.tobytes()) + 9] ^= 4
    file = opened(bytes(data))
    with pytest.raises(CorruptError, match="damaged") as caught:
        elements(file, only(file))
    assert "checksum" in caught.value.why
    selection = Selection.whole((16,))
    assert b"".join(read_elements(file, only(file), selection, 4, check=False))


def test_strings_of_many_collections_are_looked_through_once() -> None:
    """Elements that go back and forth between collections, as those of a sorted table do."""
    texts = [f"{number:05d}" * 50 for number in range(2000)]  # some 15 in a collection
    kind = h5py.string_dtype()
    data = written(lambda f: f.create_dataset("x", data=texts, dtype=kind))
    file = opened(data)
    start = only(file).offset
    assert start is not None
    references = [data[at : at + 16] for at in range(start, start + 16 * len(texts), 16)]
    mixed = [number * 617 % len(texts) for number in range(len(texts))]
    crafted = data[:start] + b"".join(references[number] for number in mixed)
    file = opened(crafted + data[len(crafted) :])
    reads = 0
    pread = file.pread

    def counted(offset: int, size: int) -> bytes:
        nonlocal reads
        reads += 1
        return pread(offset, size)

    file.pread = counted  # type: ignore[method-assign]
    found = read_strings(file, only(file), Selection.whole((len(texts),)), check=True)
    assert found == [texts[number].encode() for number in mixed]
    assert reads < 4 * len(texts)


def test_collections_of_strings_that_lie_inside_each_other() -> None:
    kind = h5py.string_dtype()
    inner = b"GCOL\x01\0\0\0" + (64).to_bytes(8, "little") + b"\1\0\0\0\0\0\0\0"
    inner += (8).to_bytes(8, "little") + b"insidein"
    text = b"x" * 100
    data = written(lambda f: f.create_dataset("x", data=[b"a" * 100, text], dtype=kind))
    file = opened(data)
    start = only(file).offset
    assert start is not None
    at = data.find(text)
    first = data[start : start + 16]
    second = (8).to_bytes(4, "little") + at.to_bytes(8, "little") + (1).to_bytes(4, "little")
    data = data[:at] + inner + data[at + len(inner) :]
    file = opened(data[:start] + first + second + data[start + 32 :])
    with pytest.raises(CorruptError) as caught:
        read_strings(file, only(file), Selection.whole((2,)), check=True)
    assert caught.value.id == "hdf5-heap"
    assert "inside another" in caught.value.why


@pytest.mark.parametrize("check", [True, False])
def test_a_chunk_too_short_for_its_checksum(check: bool) -> None:
    def write(made: Any) -> None:
        dataset = made.create_dataset("x", (4,), "<f4", chunks=(4,), fletcher32=True)
        dataset.id.write_direct_chunk((0,), b"ab")

    file = opened(written(write))
    with pytest.raises(CorruptError) as caught:
        list(read_elements(file, only(file), Selection.whole((4,)), 4, check=check))
    assert caught.value.id == "hdf5-chunk"


def test_many_strings_that_share_one_place_are_bounded() -> None:
    """A thousand elements that are all one string of a megabyte claim a gigabyte."""
    kind = h5py.string_dtype()
    data = written(lambda f: f.create_dataset("x", data=["a" * 2**20, *["b"] * 999], dtype=kind))
    file = opened(data, Limits(string_bytes=2**22))
    start = only(file).offset
    assert start is not None
    first = data[start : start + 16]
    crafted = data[:start] + first * 1000 + data[start + 16000 :]
    file = opened(crafted, Limits(string_bytes=2**22))
    with pytest.raises(LimitError) as caught:
        read_strings(file, only(file), Selection.whole((1000,)), check=True)
    assert caught.value.id == "limit-string-bytes"
    assert (
        read_strings(file, only(file), Selection.of((1000,), (7,)), check=True)[0] == b"a" * 2**20
    )


@pytest.mark.parametrize("address", [b"\xff" * 8, bytes(7) + b"\x7f", (100).to_bytes(8, "little")])
def test_a_string_that_lies_nowhere(address) -> None:
    data = written(lambda f: f.create_dataset("x", data=["abc"], dtype=h5py.string_dtype()))
    start = only(opened(data)).offset
    assert start is not None
    file = opened(data[: start + 4] + address + data[start + 12 :])
    with pytest.raises((CorruptError, IncompleteError)):
        read_strings(file, only(file), Selection.whole((1,)), check=True)


def test_attributes_are_text_of_one_value() -> None:
    def write(file: Any) -> None:
        file.attrs["text"] = "é"
        file.attrs["bytes"] = np.bytes_(b"abc")
        file.attrs["number"] = 7
        file.attrs["several"] = [b"a", b"b"]

    file = opened(written(write))
    assert file.attribute("", "text") == "é"
    assert file.attribute("", "bytes") == "abc"
    assert file.attribute("", "number") is None
    assert file.attribute("", "several") is None
    assert file.attribute("", "none") is None
    assert file.has_attribute("", "several")
    assert not file.has_attribute("", "none")


def test_a_file_that_was_cut_off(fixtures_dir: Path) -> None:
    data = (fixtures_dir / "keras-files" / "bfloat16.weights.h5").read_bytes()
    for size in range(0, len(data), 97):
        try:
            file = opened(data[:size])
            for dataset in file.walk().datasets:
                elements(file, dataset)
        except CkpttoolError as error:
            assert error.exit_code == 20  # noqa: PT017 - any of several classes
        else:
            pytest.fail(f"{size} of {len(data)} bytes were read as if all were there")
