"""The table of dtypes, against TensorFlow's own and against arrays."""

from __future__ import annotations

import pytest

from ckpttool.errors import UnsupportedError
from ckpttool.formats.dtypes import BY_NAME, BY_NUMBER, dtype_name, numpy_dtype

FIXED = [dtype.name for dtype in BY_NUMBER.values() if dtype.size]


def test_every_number_has_one_name() -> None:
    assert sorted(BY_NUMBER) == list(range(1, 34))
    assert len(BY_NAME) == len(BY_NUMBER)


def test_an_unknown_number() -> None:
    assert dtype_name(19) == "float16"
    assert dtype_name(34) == "dtype_34"
    assert dtype_name(0) == "dtype_0"
    assert dtype_name(-1) == "dtype_-1"
    assert dtype_name(101) == "dtype_101"


def test_names_are_those_of_tensorflow() -> None:
    tf = pytest.importorskip("tensorflow")
    for number, dtype in BY_NUMBER.items():
        assert tf.dtypes.as_dtype(number).name == dtype.name


@pytest.mark.parametrize("name", FIXED)
def test_an_element_has_the_size_of_an_arrays(name: str) -> None:
    dtype = BY_NAME[name]
    array = numpy_dtype(name)
    assert array.itemsize == dtype.size
    assert array.newbyteorder("<") == array
    words = {"complex64": 4, "complex128": 8}
    assert dtype.word == words.get(name, dtype.size)


def test_strings_are_objects() -> None:
    assert numpy_dtype("string").kind == "O"


@pytest.mark.parametrize("name", ["variant", "resource", "dtype_99", "nonsense"])
def test_what_no_array_can_hold(name: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        numpy_dtype(name)
    assert caught.value.id == "dtype-unsupported"
    assert name in caught.value.what
