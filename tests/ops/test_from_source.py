"""Any source as the input of the commands that write, with TensorFlow reading the result."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpttool.api import open as open_checkpoint
from ckpttool.errors import CkpttoolError
from ckpttool.formats.wire import encode_field
from ckpttool.limits import Limits
from ckpttool.ops.average import average
from ckpttool.ops.edit.run import Edit, edit
from ckpttool.ops.merge import merge
from ckpttool.ops.repartition import Repartition, repartition
from ckpttool.ops.rewrite.from_source import _ranges, bundle_from
from ckpttool.ops.rewrite.run import Options
from ckpttool.ops.verify import verify
from ckpttool.sources.registry import open_source
from tests.support.v1_files import FULL, entry, meta, packed, v1_file

OPTIONS = Options(verify=True)


@pytest.fixture(scope="module")
def tf() -> Any:
    return pytest.importorskip("tensorflow")


def values(address: Path | str) -> dict[str, tuple[str, Any]]:
    """Every variable by its name: dtype and elements."""
    with open_checkpoint(str(address)) as checkpoint:
        return {
            variable.name: (variable.dtype, checkpoint.read(variable.key).tolist())
            for variable in checkpoint.values()
        }


def same(one: dict[str, tuple[str, Any]], other: dict[str, tuple[str, Any]]) -> bool:
    return repr(sorted(one.items())) == repr(sorted(other.items()))  # NaN is NaN


def failure(act: Callable[[], object]) -> CkpttoolError:
    with pytest.raises(CkpttoolError) as caught:
        act()
    return caught.value


@pytest.mark.parametrize(
    "address",
    [
        "v1",
        "v1-sharded",
        "v1-dtypes/all",
        "arrays/model.safetensors",
        "arrays/model-7.npz",
        "keras-files/keras3.weights.h5",
        "keras-files/keras3.keras",
    ],
)
def test_a_checkpoint_of_any_source(fixtures_dir: Path, tmp_path: Path, address: str) -> None:
    source = fixtures_dir / address
    result = repartition([str(source)], str(tmp_path / "new"), Repartition(), OPTIONS)
    assert result.applied
    expected = values(source)
    assert result.variables == len(expected)
    assert same(values(tmp_path / "new"), expected)
    assert verify(str(tmp_path / "new")).healthy


@pytest.mark.parametrize("address", ["v1", "v1-sharded", "v1-dtypes/all"])
def test_v1_becomes_v2_that_tensorflow_restores(
    tf: Any, fixtures_dir: Path, tmp_path: Path, address: str
) -> None:
    source, new = fixtures_dir / address, str(tmp_path / "new")
    repartition([str(source)], new, Repartition(), OPTIONS)
    with open_source(str(source)) as opened:
        old, variables = opened.location, list(opened.variables())
    for variable in variables:
        specs = [""]
        if variable.slices and variable.dtype in {"string", "float16"}:
            shape = " ".join(map(str, variable.shape or ()))
            specs = [f"{shape} {part.start[0]},{part.extent[0]}:-" for part in variable.slices]
        for spec in specs:
            before, after = (
                tf.raw_ops.RestoreV2(
                    prefix=prefix,
                    tensor_names=[variable.key],
                    shape_and_slices=[spec],
                    dtypes=[tf.as_dtype(variable.dtype)],
                )[0].numpy()
                for prefix in (old, new)
            )
            assert np.asarray(before).tobytes() == np.asarray(after).tobytes() or (
                variable.dtype == "string" and np.array_equal(before, after)
            )


def test_the_corpus_of_v1(tf: Any, corpus: Path, tmp_path: Path) -> None:
    for number, address in enumerate(
        ("v1-acrobot-adam", "v1-deepq-dotdot-path", "mixed-v1-v2-tdgammon/@447880")
    ):
        new = str(tmp_path / f"new-{number}")
        repartition([str(corpus / address)], new, Repartition(), OPTIONS)
        with open_source(str(corpus / address)) as source:
            theirs = tf.train.load_checkpoint(source.location)
        ours = tf.train.load_checkpoint(new)
        assert ours.get_variable_to_shape_map() == theirs.get_variable_to_shape_map()
        for name in ours.get_variable_to_shape_map():
            assert ours.get_tensor(name).tobytes() == theirs.get_tensor(name).tobytes()


def test_the_graph_goes_with_a_v1_checkpoint(fixtures_dir: Path, tmp_path: Path) -> None:
    for address in ("v1", "v1-sharded"):
        repartition([str(fixtures_dir / address)], str(tmp_path), Repartition(), OPTIONS)
    names = {path.name for path in tmp_path.iterdir()}
    assert {"model.ckpt-2.meta", "model.ckpt-30.meta", "model.ckpt-30.index"} <= names
    assert "model.ckpt-30.data-00001-of-00002" in names, "a file a shard, as it was"


def test_slices_are_kept_cut_and_joined(fixtures_dir: Path, tmp_path: Path) -> None:
    source = str(fixtures_dir / "v1")
    expected = values(source)
    layouts = {
        "kept": Repartition(),
        "whole": Repartition(merge_slices=("*",)),
        "rows": Repartition(slices=("*embedding*=axis0:2", "layer/*=axis0:4"), shards=2),
        "columns": Repartition(slices=("*embedding*=axis1:3", "layer/*=axis1:2")),
        "parts": Repartition(slices=("embedding=axis0:2",), form="parts"),
    }
    for name, asked in layouts.items():
        repartition([source], str(tmp_path / name), asked, OPTIONS)
    for name in ("kept", "whole", "rows", "columns"):
        assert same(values(tmp_path / name), expected), name
    found = values(tmp_path / "parts")
    rows = found["embedding/part_0"][1] + found["embedding/part_1"][1]
    assert rows == expected["embedding"][1]
    again = str(tmp_path / "again")
    repartition([str(tmp_path / "parts")], again, Repartition(join_parts=("*",)), OPTIONS)
    assert values(again)["embedding"] == expected["embedding"]
    with open_source(str(tmp_path / "kept")) as opened:
        kept = opened.find("embedding").slices
    assert kept is not None
    assert [part.start for part in kept] == [(0, 0), (4, 0), (7, 0)]


def test_arrays_are_cut(fixtures_dir: Path, tmp_path: Path) -> None:
    source = fixtures_dir / "arrays" / "model-7.npz"
    asked = Repartition(slices=("embedding=axis1:2",), shards=2)
    repartition([str(source)], str(tmp_path / "cut"), asked, OPTIONS)
    assert same(values(tmp_path / "cut"), values(source))


def test_integers_that_are_decoded_are_cut_and_joined(tmp_path: Path) -> None:
    numbers = np.arange(-3000, 3000).reshape(60, 100)
    rows = [[(0, 25), FULL], [(25, 35), FULL]]
    v1_file(
        [meta(b"v", 9, (60, 100), rows)],
        [
            entry(b"v", rows[0], packed(10, numbers[:25].ravel().tolist())),
            entry(b"v", rows[1], packed(10, numbers[25:].ravel().tolist())),
        ],
        tmp_path / "m",
    )
    for slices in ("v=axis0:7", "v=axis1:3"):
        to = tmp_path / slices[-1]
        repartition([str(tmp_path / "m")], str(to), Repartition(slices=(slices,)), OPTIONS)
        assert values(to) == {"v": ("int64", numbers.tolist())}


@given(st.lists(st.integers(1, 4), max_size=4), st.data())
def test_ranges_are_what_they_say(shape: list[int], data: st.DataObject) -> None:
    """Elements in C order as a few boxes, one after the other."""
    everything = np.arange(int(np.prod(shape))).reshape(shape)
    first = data.draw(st.integers(0, everything.size))
    count = data.draw(st.integers(0, everything.size - first))
    found: list[int] = []
    boxes = list(_ranges(tuple(shape), first, count))
    for axes in boxes:
        box = tuple(slice(axis.start, axis.start + axis.length) for axis in axes)
        found += everything[box].ravel().tolist()
    assert found == list(range(first, first + count))
    assert len(boxes) <= 2 * len(shape) + 1


def test_average_of_different_kinds_and_layouts(fixtures_dir: Path, tmp_path: Path) -> None:
    source = str(fixtures_dir / "v1")
    whole = str(tmp_path / "whole")
    repartition([source], whole, Repartition(merge_slices=("*",)), OPTIONS)
    for order in ([source, whole], [whole, source, whole]):
        to = tmp_path / f"mean-{len(order)}"
        average(order, str(to), None, OPTIONS)
        assert same(values(to), values(source))


def test_edit_of_a_v1_checkpoint(tf: Any, fixtures_dir: Path, tmp_path: Path) -> None:
    source = str(fixtures_dir / "v1")
    asked = Edit(strip_optimizer=True, renames=("s/^layer/tower/",), cast="bfloat16")
    edit(source, str(tmp_path / "new"), asked, OPTIONS)
    reader = tf.train.load_checkpoint(str(tmp_path / "new"))
    assert sorted(reader.get_variable_to_shape_map()) == [
        "embedding",
        "global_step",
        "tower/weights",
    ]
    expected = np.array(values(source)["embedding"][1], tf.bfloat16.as_numpy_dtype)
    assert (reader.get_tensor("embedding") == expected).all()


def test_re_keyed_to_a_v1_checkpoint_s_names(fixtures_dir: Path, tmp_path: Path) -> None:
    source = str(fixtures_dir / "v1")
    edit(source, str(tmp_path / "other"), Edit(renames=("s/layer/tower/",)), OPTIONS)
    other, back = str(tmp_path / "other"), tmp_path / "back"
    edit(other, str(back), Edit(like=source), OPTIONS)
    found, expected = values(back), values(source)
    assert found["layer/weights"] == expected["layer/weights"]
    assert found["embedding/Momentum"] == expected["embedding/Momentum"]


def test_merge_of_different_kinds(fixtures_dir: Path, tmp_path: Path) -> None:
    arrays, first, second = (
        str(fixtures_dir / name) for name in ("arrays/model-7.npz", "v1-sharded", "two-shards")
    )
    to = tmp_path / "merged"
    merge([second, first, arrays], str(to), "first", (), OPTIONS)
    found = values(to)
    for source in (arrays, first, second):
        for key, value in values(source).items():
            assert key in found
            if key != "global_step":
                assert repr(found[key]) == repr(value)
    merge([second, first], str(tmp_path / "both"), "prefix", (), OPTIONS)
    assert {"model.ckpt-42/global_step", "model.ckpt-30/global_step"} <= values(
        tmp_path / "both"
    ).keys()


def test_damage_is_not_signed_anew(tmp_path: Path) -> None:
    """Also where only a part of a large block is asked for at a time."""
    data = bytearray(np.arange(2**19, dtype=np.float32).tobytes())
    path = tmp_path / "m"
    v1_file(
        [meta(b"v", 1, (2**10, 2**9), [[FULL, FULL]])],
        [entry(b"v", [FULL, FULL], encode_field(5, bytes(data)))],
        path,
    )
    contents = bytearray(path.read_bytes())
    contents[2**20] ^= 1
    path.write_bytes(contents)
    for asked in (Repartition(), Repartition(slices=("v=axis1:2",))):
        write = partial(repartition, [str(path)], str(tmp_path / "new"), asked, Options())
        error = failure(write)
        assert (error.id, error.exit_code) == ("block-checksum", 20)
        assert [path.name for path in tmp_path.iterdir() if "new" in path.name] == []


def test_what_cannot_be_in_a_checkpoint(fixtures_dir: Path, tmp_path: Path) -> None:
    def write(name: str) -> CkpttoolError:
        where = str(tmp_path / "new")
        return failure(lambda: repartition([str(tmp_path / name)], where, Repartition(), OPTIONS))

    v1_file([meta(b"v", 99, (2,), [[FULL]])], [], tmp_path / "a")
    assert (write("a").id, write("a").exit_code) == ("dtype-not-representable", 12)
    v1_file([meta(b"", 1, (2,), [[FULL]])], [], tmp_path / "b")
    assert write("b").id == "name-unusable"
    v1_file([meta(b"v", 1, (2,), [[(1, 3)]])], [], tmp_path / "c")
    assert write("c").id == "slice-shape"
    shutil.copytree(fixtures_dir / "v1-sharded", tmp_path / "run")
    (tmp_path / "run" / "model.ckpt-30-00001-of-00002").unlink()
    error = write("run")
    assert (error.id, error.exit_code) == ("shard-missing", 20)


def test_a_source_that_changes_meanwhile(fixtures_dir: Path, tmp_path: Path) -> None:
    path = tmp_path / "m"
    shutil.copy(fixtures_dir / "v1" / "model.ckpt-2", path)
    with open_source(str(path), Limits()) as source:
        bundle = bundle_from(source)
        assert [one.path for one in bundle.inputs] == [str(path)]
        assert bundle.variables == 5
        (tensor,) = [one for one in bundle.tensors if one.key == b"layer/weights"]
        path.write_bytes(path.read_bytes()[:-1])
        assert failure(lambda: list(tensor.content.chunks())).id == "changed"  # type: ignore[union-attr]
