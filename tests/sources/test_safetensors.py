"""safetensors files as a source, against the library; and files that lie."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpttool.errors import CkpttoolError, UnsupportedError
from ckpttool.formats.named_array import NamedArray
from ckpttool.formats.safetensors import read_header
from ckpttool.formats.safetensors_writer import write_safetensors
from ckpttool.limits import Limits
from ckpttool.sources.registry import open_source
from ckpttool.sources.safetensors import SafetensorsSource
from ckpttool.sources.selection import Selection
from tests.support.arrays import named
from tests.support.crafted_files import safetensors
from tests.support.memory_file import MemoryFile


def read_all(path: Path | str) -> dict[str, np.ndarray]:
    with open_source(str(path)) as source:
        return {
            variable.name: source.read(variable, Selection.whole(variable.shape or ()))
            for variable in source.variables()
        }


def test_values_are_those_of_the_library(fixtures_dir: Path) -> None:
    library = pytest.importorskip("safetensors")
    path = fixtures_dir / "arrays" / "model.safetensors"
    ours = read_all(path)
    with library.safe_open(path, "numpy") as theirs:
        assert sorted(ours) == sorted(theirs.keys())
        for name in ours:
            if ours[name].dtype.isbuiltin == 1:
                assert ours[name].tolist() == theirs.get_tensor(name).tolist()
    assert ours["half"].astype(np.float32).tolist() == np.arange(12).reshape(3, 4).tolist()
    assert ours["eighth"].astype(np.float32).tolist() == [0, 1, 2, 3]
    assert ours["wide"].astype(np.float32).tolist() == [0, 1, 2, 3]


def test_says_what_its_writer_put_beside_it(fixtures_dir: Path) -> None:
    with open_source(str(fixtures_dir / "arrays" / "model.safetensors")) as source:
        assert isinstance(source, SafetensorsSource)
        assert source.metadata == {"format": "np"}
        assert source.step == 42


@settings(max_examples=60)
@given(st.data())
def test_what_is_written_is_read(data: st.DataObject) -> None:
    arrays = [
        named(f"v{i}", np.arange(int(np.prod(shape)), dtype=dtype).reshape(shape))
        for i, (shape, dtype) in enumerate(
            data.draw(
                st.lists(
                    st.tuples(
                        st.lists(st.integers(0, 4), max_size=3).map(tuple),
                        st.sampled_from(["uint8", "int16", "float32", "float64", "complex64"]),
                    ),
                    max_size=6,
                )
            )
        )
    ]
    file = io.BytesIO()
    write_safetensors(arrays, file.write)
    found, _ = read_header(MemoryFile(file.getvalue()), Limits())
    assert {(t.name, t.type.dtype, t.shape) for t in found} == {
        (array.name, array.dtype, array.shape) for array in arrays
    }
    for tensor in found:
        array = next(array for array in arrays if array.name == tensor.name)
        stored = file.getvalue()[tensor.offset : tensor.offset + tensor.nbytes]
        assert stored == b"".join(array.chunks())


def test_elements_of_half_a_byte(tmp_path: Path) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    values = np.arange(24, dtype=np.uint8) % 16
    array = NamedArray("x", "float4_e2m1fn", (2, 3, 4), lambda: [values.tobytes()], list)
    with (tmp_path / "x.safetensors").open("wb") as file:
        write_safetensors([array], file.write)
    expected = values.view(ml_dtypes.float4_e2m1fn).reshape(2, 3, 4).astype(np.float32)
    with open_source(str(tmp_path / "x.safetensors")) as source:
        variable = source.find("x")
        assert (variable.nbytes, source.extent(variable)) == (12, None)
        for index in [(), (1,), (..., slice(1, 4, 2)), (slice(None, None, -1), 2, slice(1, 2))]:
            selection = Selection.of((2, 3, 4), index)
            found = source.read(variable, selection).astype(np.float32)
            assert found.tolist() == expected[index].tolist()


def test_types_that_tensorflow_lacks_are_listed_and_not_read(tmp_path: Path) -> None:
    header = {"x": {"dtype": "F8_E8M0", "shape": [4], "data_offsets": [0, 4]}}
    (tmp_path / "x.safetensors").write_bytes(safetensors(header, b"1234"))
    with open_source(str(tmp_path / "x.safetensors")) as source:
        variable = source.find("x")
        assert (variable.dtype, variable.nbytes) == ("f8_e8m0", 4)
        with pytest.raises(UnsupportedError):
            list(source.chunks(variable, Selection.whole((4,))))


def tensor(dtype: str = "F32", shape: object = (2,), offsets: object = (0, 8)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def refused(data: bytes, limits: Limits | None = None) -> CkpttoolError:
    with pytest.raises(CkpttoolError) as caught:
        read_header(MemoryFile(data), limits or Limits())
    return caught.value


#: As many digits as Python takes; where the data would begin then has one more.
NINES = b"9" * 4300


@pytest.mark.parametrize(
    ("header", "data", "why"),
    [
        ({"x": tensor(), "y": tensor()}, b"12345678", "overlaps"),
        ({"x": tensor(), "y": tensor(offsets=(4, 12))}, b"1" * 12, "overlaps"),
        ({"x": tensor(), "y": tensor(offsets=(16, 24))}, b"1" * 24, "leaves a hole"),
        ({"x": tensor(offsets=(8, 16))}, b"1" * 16, "leaves a hole"),
        ({"x": tensor()}, b"123456789", "1 bytes follow"),
        ({"x": tensor()}, b"1234567", "take"),
        ({"x": tensor(offsets=(8, 0))}, b"12345678", "data_offsets"),
        ({"x": tensor(offsets=(-8, 0))}, b"12345678", "data_offsets"),
        (
            b'{"x": {"dtype": "U8", "shape": [0], "data_offsets": [%b, %b]}}' % (NINES, NINES),
            b"",
            "data_offsets",
        ),
        ({"x": tensor(offsets=(0, 8, 16))}, b"12345678", "data_offsets"),
        ({"x": tensor(offsets=(0.0, 8.0))}, b"12345678", "another type"),
        ({"x": tensor(shape=(True, 2))}, b"12345678", "another type"),
        ({"x": tensor(shape="22")}, b"12345678", "another type"),
        ({"x": tensor(shape=(3,))}, b"12345678", "take 12"),
        ({"x": tensor("F4", (3,), (0, 1))}, b"1", "take 1.5"),
        ({"x": {**tensor(), "more": 1}}, b"12345678", "not just"),
        ({"x": 1}, b"", "not just"),
        ({"__metadata__": {"a": 1}}, b"", "not of texts"),
        ({"__metadata__": []}, b"", "not of texts"),
        (b"[]", b"", "brace"),
        (b" {}", b"", "brace"),
        (b'{"x": NaN}', b"", "NaN"),
        (b'{"x": 1, "x": 1}', b"", "twice"),
        (b'{"x"', b"", "Expecting"),
        (b'{"\xff": 1}', b"", "UTF-8"),
        (b'{"a":' * 100_000, b"", "nested too deeply"),
        (b'{"x": ' + b"9" * 5000 + b"}", b"", "digits"),
    ],
)
def test_a_header_that_contradicts_itself(header: object, data: bytes, why: str) -> None:
    error = refused(safetensors(header, data))
    assert error.exit_code == 20
    assert why in error.why


def test_claims_are_held_against_the_file_and_the_limits() -> None:
    assert refused(b"").id == "safetensors-cut"
    assert refused(safetensors({}, length=2**63)).id == "safetensors-cut"
    assert refused(safetensors({}), Limits(safetensors_header_bytes=1)).exit_code == 21
    many = {f"x{i}": tensor(shape=(0,), offsets=(0, 0)) for i in range(9)}
    assert refused(safetensors(many), Limits(entries=8)).id == "limit-entries"
    deep = {"x": tensor(shape=[1] * 300, offsets=(0, 4))}
    assert refused(safetensors(deep, b"1234")).id == "limit-rank"
    wide = {"x": tensor(shape=[2**62, 2**62, 0], offsets=(0, 0))}
    assert refused(safetensors(wide)).id == "shape-overflow"
    assert refused(safetensors({"x": tensor(shape=[-1])}, b"12345678")).id == "negative-dimension"
    unknown = {"x": tensor("F128", (1,), (0, 16))}
    assert refused(safetensors(unknown, b"1" * 16)).exit_code == 12


def test_cut_off_or_changed_anywhere_it_is_an_error_or_the_same_arrays(fixtures_dir: Path) -> None:
    whole = (fixtures_dir / "arrays" / "model.safetensors").read_bytes()
    for end in range(len(whole)):
        assert refused(whole[:end]).exit_code in {20, 21}
    header_end = 8 + int.from_bytes(whole[:8], "little")
    for at in range(header_end):
        for bit in (0, 3, 7):
            changed = bytearray(whole)
            changed[at] ^= 1 << bit
            try:
                found, _ = read_header(MemoryFile(bytes(changed)), Limits())
            except CkpttoolError:
                continue
            assert sum(t.nbytes for t in found) == len(whole) - header_end
