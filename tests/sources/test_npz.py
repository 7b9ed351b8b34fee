""".npz and .npy files as a source, against numpy; and archives that lie."""

from __future__ import annotations

import contextlib
import io
import struct
from pathlib import Path

import numpy as np
import pytest

from ckpttool.errors import (
    CkpttoolError,
    LimitError,
    NotFoundError,
    UnsafeError,
    UnsupportedError,
)
from ckpttool.limits import Limits
from ckpttool.sources.registry import open_source
from ckpttool.sources.selection import Index, Selection
from tests.support.crafted_files import npy, zip_of

F4 = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }"


def assert_same(path: Path, expected: dict[str, np.ndarray]) -> None:
    with open_source(str(path)) as source:
        assert {v.name for v in source.variables()} == set(expected)
        for variable in source.variables():
            theirs = expected[variable.name]
            assert variable.shape == theirs.shape
            ours = source.read(variable, Selection.whole(theirs.shape))
            if variable.dtype == "string":
                kind = [x if isinstance(x, bytes) else x.encode() for x in theirs.ravel().tolist()]
                assert ours.ravel().tolist() == kind
            else:
                assert ours.dtype.newbyteorder("=") == theirs.dtype.newbyteorder("=")
                assert ours.tobytes() == np.ascontiguousarray(theirs, ours.dtype).tobytes()


@pytest.mark.parametrize("name", ["model-7.npz", "odd.npz"])
def test_values_are_those_of_numpy(fixtures_dir: Path, name: str) -> None:
    path = fixtures_dir / "arrays" / name
    with np.load(path, allow_pickle=False) as theirs:
        assert_same(path, dict(theirs))


def test_one_array_is_called_like_its_file(fixtures_dir: Path) -> None:
    path = fixtures_dir / "arrays" / "embedding.npy"
    assert_same(path, {"embedding": np.load(path)})


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("order", ["C", "F"])
def test_selections_in_either_order_packed_or_not(tmp_path: Path, packed: bool, order: str) -> None:
    array = np.asarray(np.arange(2 * 70 * 5 * 3, dtype=">i4").reshape(2, 70, 5, 3), order=order)  # type: ignore[call-overload]
    texts = np.asarray(np.array([["a", "bc", "d"], ["", "é", "fgh"]]), order=order)  # type: ignore[call-overload]
    write = np.savez_compressed if packed else np.savez
    write(tmp_path / "x.npz", array=array, texts=texts)
    indices: list[Index] = [
        (),
        (1, slice(3, 60, 7), -1),
        (slice(None, None, -1), slice(None, None, -2), 2, slice(2, 0, -1)),
        (..., 0),
        (0, slice(0, 0)),
    ]
    with open_source(str(tmp_path / "x.npz")) as source:
        variable = source.find("array")
        for index in indices:
            selection = Selection.of(array.shape, index)
            assert source.read(variable, selection).tolist() == array[index].tolist()
        words = source.find("texts")
        for index in ((1,), (..., slice(None, None, -1)), (slice(1), slice(1, 3))):
            expected = [text.encode() for text in texts[index].ravel().tolist()]
            assert source.strings(words, Selection.of((2, 3), index)) == expected


def test_many_windows_of_a_large_array_in_fortran_order(tmp_path: Path) -> None:
    array = np.asfortranarray(np.arange(1500 * 1700, dtype=np.float64).reshape(1500, 1700))
    np.savez_compressed(tmp_path / "x.npz", x=array)
    np.savez(tmp_path / "y.npz", x=array)
    for name in ("x.npz", "y.npz"):
        with open_source(str(tmp_path / name)) as source:
            variable = source.find("x")
            chunks = list(source.chunks(variable, Selection.whole(array.shape)))
            assert len(chunks) > 1
            assert b"".join(chunks) == array.tobytes("C")


def test_checksums_are_compared_where_everything_is_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.arange(1000, dtype=np.int32))
    data = bytearray((tmp_path / "x.npz").read_bytes())
    data[2000] ^= 1
    (tmp_path / "x.npz").write_bytes(bytes(data))
    with open_source(str(tmp_path / "x.npz")) as source:
        variable = source.find("x")
        with pytest.raises(CkpttoolError) as caught:
            list(source.chunks(variable, Selection.whole((1000,))))
        assert caught.value.id == "zip-checksum"
        everything = list(source.chunks(variable, Selection.whole((1000,)), check=False))
        assert sum(map(len, everything)) == 4000
        assert source.read(variable, Selection.of((1000,), (3,))) == 3


@pytest.mark.parametrize("what", ["numbers", "texts"])
def test_checksums_are_compared_in_fortran_order_too(tmp_path: Path, what: str) -> None:
    array = np.arange(600).reshape(20, 30)
    array = np.asfortranarray(array if what == "numbers" else array.astype("U3"))
    np.savez(tmp_path / "x.npz", x=array)
    data = bytearray((tmp_path / "x.npz").read_bytes())
    data[1000] ^= 1
    (tmp_path / "x.npz").write_bytes(bytes(data))
    with open_source(str(tmp_path / "x.npz")) as source:
        variable = source.find("x")
        whole = Selection.whole((20, 30))
        with pytest.raises(CkpttoolError) as caught:
            source.read(variable, whole)
        assert caught.value.id == "zip-checksum"
        assert source.read(variable, whole, check=False).shape == (20, 30)


def test_python_objects_are_listed_and_never_unpickled(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return open, (str(tmp_path / "sprung"), "w")  # type: ignore[return-value]

    np.savez(tmp_path / "x.npz", bad=np.array([Trap()], object), good=np.zeros(2))
    with open_source(str(tmp_path / "x.npz")) as source:
        variable = source.find("bad")
        assert variable.dtype == "object"
        with pytest.raises(UnsafeError) as caught:
            list(source.chunks(variable, Selection.whole((1,))))
        assert caught.value.id == "pickled-objects"
        assert [finding.id for finding in source.findings()] == ["npz-opaque"]
        assert source.read(source.find("good"), Selection.whole((2,))).tolist() == [0, 0]
    assert not (tmp_path / "sprung").exists()


def test_what_numpy_has_no_type_for_is_told(tmp_path: Path) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    np.savez(
        tmp_path / "x.npz",
        half=np.zeros(2, ml_dtypes.bfloat16),
        record=np.zeros(2, [("a", "f4"), ("b", "i8")]),
        when=np.zeros(2, "M8[ns]"),
        long=np.zeros(2, np.longdouble),
    )
    with open_source(str(tmp_path / "x.npz")) as source:
        dtypes = {variable.name: variable.dtype for variable in source.variables()}
        assert dtypes == {
            "half": "void2",
            "record": "structured",
            "when": "datetime64",
            "long": f"float{8 * np.dtype(np.longdouble).itemsize}",
        }
        told = {(finding.id, finding.object) for finding in source.findings()}
        assert told == {("npz-typeless", "half"), ("npz-opaque", "record")}
        for name in dtypes:
            with pytest.raises(UnsupportedError):
                list(source.chunks(source.find(name), Selection.whole((2,))))


def opened(path: Path, data: bytes, limits: Limits | None = None) -> CkpttoolError:
    """The error of opening such a file and reading all of it."""
    path.write_bytes(data)
    with pytest.raises(CkpttoolError) as caught, open_source(str(path), limits) as source:
        for variable in source.variables():
            list(source.chunks(variable, Selection.whole(variable.shape or ())))
    return caught.value


GOOD = npy(F4, b"12345678")


def test_archives_that_lie(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    one = {"x.npy": GOOD}
    two = {"x.npy": GOOD, "y.npy": GOOD}
    assert opened(path, zip_of({"../x.npy": GOOD})).id == "zip-unsafe"
    assert opened(path, zip_of({"a/../../x.npy": GOOD})).exit_code == 22
    assert opened(path, zip_of(one, mode=0o120777)).id == "zip-unsafe"
    assert opened(path, zip_of(one, flags=1)).exit_code == 22
    assert opened(path, zip_of(one, method=14)).id == "zip-method"
    assert opened(path, zip_of(two, offsets={"y.npy": 0})).exit_code in {20, 22}
    assert opened(path, zip_of(one, offsets={"x.npy": 2**31})).id == "zip-malformed"
    assert opened(path, zip_of(one, sizes={"x.npy": 9})).id == "zip-malformed"
    assert opened(path, zip_of(one, crcs={"x.npy": 1})).id == "zip-checksum"
    for size in (2**31, len(GOOD) + 4):
        error = opened(path, zip_of(one, deflated=True, sizes={"x.npy": size}))
        assert error.exit_code == 20
    assert isinstance(opened(path, zip_of(two), Limits(entries=1)), LimitError)
    assert isinstance(opened(path, zip_of(two), Limits(zip_members=1)), LimitError)


def test_a_bomb_gives_no_more_than_it_says(tmp_path: Path) -> None:
    """16 MB of zeros in 16 KB; the directory says that there are 8 bytes."""
    bomb = GOOD + bytes(2**24)
    archive = zip_of({"x.npy": bomb}, deflated=True, sizes={"x.npy": len(GOOD)})
    error = opened(tmp_path / "x.npz", archive)
    assert error.id == "zip-malformed"
    assert "more than" in error.why


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 8), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-2,), }",
        "{'descr': '<f4', 'fortran_order': 0, 'shape': (2,), }",
        "{'descr': '<q4', 'fortran_order': False, 'shape': (2,), }",
        "{'descr': 4, 'fortran_order': False, 'shape': (2,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': 2, }",
        "{'descr': '<f4', 'fortran_order': False}",
        "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), } 1",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2,",
        "__import__('os').system('true')",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1+1,), }",
        "(" * 5000,
        "{" * 5000,
        "",
    ],
)
def test_headers_that_lie(tmp_path: Path, header: str) -> None:
    for data in (npy(header, b"12345678"), zip_of({"x.npy": npy(header, b"12345678")})):
        error = opened(tmp_path / "x.npz", data)
        assert error.exit_code == 20
        assert "cannot be read" in error.what


def test_headers_of_every_version_are_read(tmp_path: Path) -> None:
    for version in (1, 2, 3):
        (tmp_path / "x.npy").write_bytes(npy(F4, struct.pack("<2f", 1, 2), version))
        assert_same(tmp_path / "x.npy", {"x": np.array([1, 2], np.float32)})
    old = "{'descr': '<f4', 'fortran_order': False, 'shape': (2L,), }"  # Python 2
    (tmp_path / "x.npy").write_bytes(npy(old, struct.pack("<2f", 1, 2)))
    assert_same(tmp_path / "x.npy", {"x": np.array([1, 2], np.float32)})
    assert opened(tmp_path / "x.npy", npy(F4, b"12345678", 9)).id == "npy-version"


def test_members_that_are_no_arrays_are_told(tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_bytes(zip_of({"x.npy": GOOD, "notes.txt": b"hello"}))
    with open_source(str(tmp_path / "x.npz")) as source:
        assert [variable.name for variable in source.variables()] == ["x"]
        assert [finding.id for finding in source.findings()] == ["npz-other-member"]


def test_cut_off_anywhere_it_is_an_error(fixtures_dir: Path, tmp_path: Path) -> None:
    for name in ("odd.npz", "embedding.npy"):
        whole = (fixtures_dir / "arrays" / name).read_bytes()
        for end in range(len(whole)):
            error = opened(tmp_path / "x", whole[:end])
            assert error.exit_code in {10, 11, 20}, end


def test_changed_anywhere_it_is_an_error_or_the_same_number_of_bytes(
    fixtures_dir: Path, tmp_path: Path
) -> None:
    whole = (fixtures_dir / "arrays" / "odd.npz").read_bytes()
    path = tmp_path / "x.npz"
    for at in range(len(whole)):
        changed = bytearray(whole)
        changed[at] ^= 1 << at % 8
        path.write_bytes(bytes(changed))
        with contextlib.suppress(CkpttoolError), open_source(str(path)) as source:
            for variable in source.variables():
                whole_of_it = Selection.whole(variable.shape or ())
                if variable.dtype == "string":
                    assert len(source.strings(variable, whole_of_it)) == whole_of_it.size
                else:
                    chunks = source.chunks(variable, whole_of_it)
                    assert sum(map(len, chunks)) == variable.nbytes


def test_a_file_that_numpy_writes_without_seeking(tmp_path: Path) -> None:
    """Then sizes stand behind the bytes of a member; the directory has them all the same."""

    class Pipe(io.RawIOBase):
        data = b""

        def writable(self) -> bool:
            return True

        def write(self, data: object) -> int:
            self.data += bytes(data)  # type: ignore[call-overload]
            return len(data)  # type: ignore[arg-type]

    pipe = Pipe()
    np.savez_compressed(pipe, x=np.arange(5))
    (tmp_path / "x.npz").write_bytes(pipe.data)
    assert_same(tmp_path / "x.npz", {"x": np.arange(5)})


def test_one_variable_is_no_plural(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", w=np.zeros(2))
    with open_source(str(tmp_path / "x.npz")) as source, pytest.raises(NotFoundError) as caught:
        source.find("bias")
    assert caught.value.why == "none of its 1 variable has this name or key"
