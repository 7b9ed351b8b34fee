"""Examples for a converter that measures ranges: cut, checked, counted."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpttool.conversion.ports import Port, Signature
from ckpttool.conversion.worker.calibration import Calibration, open_calibration
from ckpttool.errors import CkpttoolError

np = pytest.importorskip("numpy")

IMAGE = Port("image", "float32", (None, 2, 2))
IDS = Port("ids", "int64", (None,))
RATE = Port("rate", "float32", ())


def signature(*inputs: Port, name: str = "serving_default") -> Signature:
    return Signature(name, inputs, ())


def of_file(path: Path, *signatures: Signature, **arrays: Any) -> Calibration:
    np.savez(path / "data.npz", **arrays)
    return open_calibration(str(path / "data.npz"), signatures)


def of_code(path: Path, body: str, *signatures: Signature) -> Calibration:
    (path / "code.py").write_text(f"import numpy as np\n\n\ndef rows():\n    {body}\n")
    return open_calibration(f"{path / 'code.py'}:rows", signatures)


def error_of(make: Callable[[], Calibration]) -> CkpttoolError:
    with pytest.raises(CkpttoolError) as caught:
        list(make().samples())
    assert "--calibration" in str(caught.value)
    return caught.value


def test_an_array_is_cut_into_examples(tmp_path: Path) -> None:
    images = np.arange(24, dtype=np.float64).reshape(6, 2, 2)
    calibration = of_file(
        tmp_path,
        signature(IMAGE, IDS, RATE),
        image=images,
        ids=np.arange(6, dtype=np.int32),
        rate=np.float64(0.5),
        other=np.array(["not", "asked", "for"]),
    )
    samples = list(calibration.samples())
    assert [name for name, _ in samples] == ["serving_default"] * 6
    for number, (_, sample) in enumerate(samples):
        assert {key: (a.dtype.name, a.shape) for key, a in sample.items()} == {
            "image": ("float32", (1, 2, 2)),
            "ids": ("int64", (1,)),
            "rate": ("float32", ()),
        }
        assert (sample["image"][0] == images[number]).all()
        assert sample["ids"] == [number]
    for _ in range(2):  # a converter may ask again
        assert calibration.counts == {"serving_default": 6}
        assert len(list(calibration.samples())) == 6
    (said,) = calibration.warnings
    assert "6 examples" in said


def test_a_scalar_may_have_a_value_an_example(tmp_path: Path) -> None:
    calibration = of_file(
        tmp_path, signature(IDS, RATE), ids=np.arange(3), rate=np.array([1, 2, 3], np.float32)
    )
    assert [float(sample["rate"]) for _, sample in calibration.samples()] == [1, 2, 3]


def test_a_fixed_number_of_rows_makes_one_example(tmp_path: Path) -> None:
    fixed = Port("ids", "int64", (4,))
    calibration = of_file(tmp_path, signature(fixed), ids=np.arange(10))
    assert [sample["ids"].tolist() for _, sample in calibration.samples()] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
    ]
    assert any("2 rows" in one for one in calibration.warnings)
    few = error_of(lambda: of_file(tmp_path, signature(fixed), ids=np.arange(3)))
    assert "--batch" in few.hint


def test_every_signature_has_its_own(tmp_path: Path) -> None:
    one, two = signature(IMAGE), signature(IDS, name="lookup")
    pictures = np.arange(480.0).reshape(120, 2, 2)
    calibration = of_file(tmp_path, one, two, image=pictures, ids=np.arange(150))
    assert len(list(calibration.samples())) == 270
    assert calibration.counts == {"serving_default": 120, "lookup": 150}
    assert calibration.warnings == []


def test_a_function_gives_batches_of_any_size(tmp_path: Path) -> None:
    body = "yield from ({'ids': np.arange(n)} for n in (1, 5, 2))"
    calibration = of_code(tmp_path, body, signature(IDS))
    assert [int(sample["ids"][0]) for _, sample in calibration.samples()] == [0, *range(5), 0, 1]
    named = "return [('a', {'ids': [1, 2]}), ('b', {'ids': [3]})]"
    both = of_code(tmp_path, named, signature(IDS, name="a"), signature(IDS, name="b"))
    assert [name for name, _ in both.samples()] == ["a", "a", "b"]


def test_examples_that_are_all_the_same_are_told(tmp_path: Path) -> None:
    for body, told in (
        ("yield from ({'ids': np.zeros(2, int)} for _ in range(60))", True),
        ("yield from ({'ids': np.full(2, n)} for n in range(60))", False),
    ):
        calibration = of_code(tmp_path, body, signature(IDS))
        for _ in calibration.samples():
            pass
        assert any("are one value" in one for one in calibration.warnings) == told


def test_a_function_that_goes_elsewhere_takes_nobody_along(tmp_path: Path) -> None:
    here = os.getcwd()
    body = "import os; os.chdir('/'); yield {'ids': [1]}; os.chdir('/usr'); yield {'ids': [2]}"
    calibration = of_code(tmp_path, body, signature(IDS))
    for _ in calibration.samples():
        assert os.getcwd() == here
    assert calibration.counts == {"serving_default": 2}


@pytest.mark.parametrize(
    ("arrays", "code", "words"),
    [
        ({"other": [1]}, 10, "no ids"),
        ({"ids": [1.5]}, 2, "float64[1]"),
        ({"ids": [[1]]}, 2, "int64[1, 1]"),
        ({"ids": 1}, 2, "int64[]"),
        ({"ids": []}, 2, "float64[0]"),
        ({"ids": np.array([], np.int64)}, 2, "have no example: ids has 0 rows"),
        ({"ids": [1, 2], "image": np.ones((3, 2, 2))}, 2, "ids has 2 rows, image has 3 rows"),
        ({"ids": [1], "image": np.ones((1, 2, 3))}, 2, "float64[1, 2, 3]"),
        ({"ids": [1], "image": np.full((1, 2, 2), np.nan)}, 2, "NaN"),
    ],
)
def test_data_that_do_not_fit(
    arrays: dict[str, Any], code: int, words: str, tmp_path: Path
) -> None:
    inputs = (IDS, IMAGE) if "image" in arrays else (IDS,)
    error = error_of(lambda: of_file(tmp_path, signature(*inputs), **arrays))
    assert (error.id, error.exit_code) == ("calibration-data", code)
    assert words in error.why


@pytest.mark.parametrize(
    ("body", "id", "code"),
    [
        ("return []", "calibration-data", 2),
        ("return 5", "calibration-data", 2),
        ("return None", "calibration-data", 2),
        ("import sys; sys.exit(3)", "model-function-failed", 51),
        ("yield {'ids': [1]}; raise SystemExit", "model-function-failed", 51),
        ("yield {'ids': [[1], [1, 2]]}", "calibration-data", 2),
        ("raise RuntimeError('no data here')", "model-function-failed", 51),
        ("yield {'ids': [1]}; raise RuntimeError('later')", "model-function-failed", 51),
        ("yield [1, 2]", "calibration-data", 2),
        ("yield ('other', {'ids': [1]})", "calibration-data", 2),
    ],
)
def test_functions_that_do_not_do(body: str, id: str, code: int, tmp_path: Path) -> None:
    error = error_of(lambda: of_code(tmp_path, body, signature(IDS)))
    assert (error.id, error.exit_code) == (id, code)


def test_examples_have_one_size(tmp_path: Path) -> None:
    text = Port("text", "int64", (None, None))
    body = "yield {'text': [[1, 2]]}; yield {'text': [[1, 2, 3]]}"
    error = error_of(lambda: of_code(tmp_path, body, signature(text)))
    assert "text[1, 3]" in error.why
    assert "text[1, 2]" in error.why


def test_what_is_no_data(tmp_path: Path) -> None:
    (tmp_path / "torn.npz").write_bytes(b"PK\x03\x04 torn")
    np.savez(tmp_path / "pickled.npz", ids=np.array([{}], object))
    np.save(tmp_path / "array.npy", np.ones(3))
    for name, code in (("absent.npz", 10), ("torn.npz", 2), ("pickled.npz", 2), ("array.npy", 2)):
        spec = str(tmp_path / name)
        error = error_of(lambda spec=spec: open_calibration(spec, [signature(IDS)]))  # type: ignore[misc]
        assert (error.id, error.exit_code) == ("calibration-data", code)
    error = error_of(lambda: open_calibration("no-such.py:rows", [signature(IDS)]))
    assert error.id == "model-function"


@given(rows=st.integers(0, 20), size=st.integers(1, 7))
def test_no_row_is_lost_and_none_is_used_twice(
    rows: int, size: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    port = Port("ids", "int64", (size,))
    calibration = of_file(
        tmp_path_factory.mktemp("rows"), signature(port), ids=np.arange(rows, dtype=np.int64)
    )
    if rows < size:
        assert error_of(lambda: calibration).id == "calibration-data"
        return
    used = np.concatenate([sample["ids"] for _, sample in calibration.samples()])
    assert used.tolist() == list(range(rows - rows % size))
    assert calibration.unused == rows % size
