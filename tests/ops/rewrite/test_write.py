"""Writing a whole checkpoint: byte for byte what it was where nothing was changed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from ckpttool.errors import CkpttoolError, CorruptError, NoSpaceError, RefusedError
from ckpttool.formats.bundle import SliceSpec
from ckpttool.limits import Limits
from ckpttool.ops.rewrite.tensors import Bundle, Computed, Joined, Owner, Stored, read_bundle
from ckpttool.ops.rewrite.write import write_bundle
from ckpttool.sources.v2 import BundleSource
from ckpttool.storage import open_directory
from ckpttool.storage.local import LocalDirectory


def open_bundle(prefix: Path) -> BundleSource:
    return BundleSource(
        open_directory(str(prefix.parent)),
        prefix.name,
        address=str(prefix),
        location=str(prefix),
        kind="tf-v2",
        notes=[],
        limits=Limits(),
    )


def prefixes(*folders: Path) -> list[Path]:
    return sorted(
        path.with_name(path.name.removesuffix(".index"))
        for folder in folders
        for path in folder.rglob("*.index")
    )


def copy(prefix: Path, folder: Path, **options) -> Bundle:
    with open_bundle(prefix) as source, open_directory(str(folder)) as directory:
        bundle = read_bundle(source)
        write_bundle(bundle, directory, prefix.name, **options)
    return bundle


@pytest.mark.parametrize("check", [False, True])
def test_a_copy_of_every_readable_checkpoint_is_the_same(fixtures_dir, corpus, tmp_path, check):
    copied = differ = 0
    for prefix in prefixes(fixtures_dir, corpus):
        target = tmp_path / str(copied)
        target.mkdir(exist_ok=True)
        try:
            copy(prefix, target, check=check)
        except CkpttoolError:
            assert list(target.iterdir()) == []
            assert any(word in str(prefix) for word in ("damaged", "bad-")), prefix
            continue
        copied += 1
        for name in os.listdir(target):
            same = (target / name).read_bytes() == prefix.with_name(name).read_bytes()
            if name.endswith(".index"):
                differ += not same
            else:
                assert same, prefix
    assert copied > 50
    assert differ == 2, "the two SavedModels whose index is compressed"


def test_damage_is_carried_along_unless_it_is_looked_for(fixtures_dir, tmp_path):
    prefix = fixtures_dir / "damaged" / "flipped-bit" / "model.ckpt-42"
    copy(prefix, tmp_path)
    assert (tmp_path / "model.ckpt-42.index").exists()
    shutil.rmtree(tmp_path)
    tmp_path.mkdir()
    with pytest.raises(CorruptError) as caught:
        copy(prefix, tmp_path, check=True)
    assert caught.value.id == "checksum-mismatch"
    assert "tower/kernel" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_in_place_over_itself(fixtures_dir, tmp_path):
    for path in (fixtures_dir / "two-shards").iterdir():
        shutil.copy(path, tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    (prefix,) = prefixes(tmp_path)
    with pytest.raises(RefusedError) as caught:
        copy(prefix, tmp_path)
    assert caught.value.id == "exists"
    copy(prefix, tmp_path, overwrite=True)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_full_disk_is_noticed_before_a_byte_is_written(fixtures_dir, tmp_path, monkeypatch):
    monkeypatch.setattr(LocalDirectory, "free_bytes", lambda _: 1000)
    with pytest.raises(NoSpaceError, match="does not fit"):
        copy(prefixes(fixtures_dir / "mlp-v1")[0], tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def matrix(tmp_path):
    """A checkpoint of one [6, 4] variable ``m`` and one string, written by TensorFlow."""
    tf = pytest.importorskip("tensorflow")
    from tests.support.tf_write import write_name_based

    values = tf.reshape(tf.range(24.0), [6, 4])
    prefix = tmp_path / "source" / "ckpt"
    write_name_based(prefix, {"m": values, "words": tf.constant(["a", "bc"])})
    with open_bundle(prefix) as source:
        yield source, values.numpy()


def rewritten(source: BundleSource, change, tmp_path: Path, **options):
    """TensorFlow's reading of ``m`` after ``change`` has been done to the bundle."""
    import tensorflow as tf

    bundle = read_bundle(source)
    change(bundle)
    (tmp_path / "out").mkdir(exist_ok=True, parents=True)
    with open_directory(str(tmp_path / "out")) as directory:
        write_bundle(bundle, directory, "new", **options)
    reader = tf.train.load_checkpoint(str(tmp_path / "out" / "new"))
    assert [one.decode() for one in reader.get_tensor("words")] == ["a", "bc"]
    return reader.get_tensor("m")


def slice_rows(bundle: Bundle) -> None:
    """Cut ``m`` into rows 0:2 (shard 1) and 2:6 (shard 0)."""
    at = next(n for n, tensor in enumerate(bundle.tensors) if tensor.key == b"m")
    whole = bundle.tensors.pop(at)
    assert isinstance(whole.content, Stored)
    specs = (SliceSpec((0, 0), (2, -1)), SliceSpec((2, 0), (4, -1)))
    bundle.owners[b"m"] = Owner(b"m", whole.dtype, whole.shape, specs, b"")
    for spec, shard, skip, nbytes in ((specs[0], 1, 0, 32), (specs[1], 0, 32, 64)):
        bundle.tensors.append(
            whole._replace(
                key=spec.key(b"m"),
                shape=(spec.length[0], 4),
                shard=shard,
                content=whole.content.part(skip, nbytes),
                raw=b"",
            )
        )
    bundle.shards = 2


@pytest.mark.parametrize("check", [False, True])
def test_cut_into_parts(matrix, tmp_path, check):
    source, values = matrix
    assert (rewritten(source, slice_rows, tmp_path, check=check) == values).all()


def test_parts_that_are_joined_again_get_the_combined_checksum(matrix, tmp_path):
    source, values = matrix
    rewritten(source, slice_rows, tmp_path)

    def join(bundle: Bundle) -> None:
        owner = bundle.owners.pop(b"m")
        parts = {tensor.key: tensor for tensor in bundle.tensors if tensor.variable == b"m"}
        bundle.tensors = [tensor for tensor in bundle.tensors if tensor.variable != b"m"]
        contents = [parts[spec.key(b"m")].content for spec in owner.slices]
        pieces = tuple(content for content in contents if isinstance(content, Stored))
        first = next(iter(parts.values()))
        bundle.tensors.append(
            first._replace(key=b"m", shape=(6, 4), shard=0, content=Joined(pieces, 96), raw=b"")
        )
        bundle.shards = 1

    with open_bundle(tmp_path / "out" / "new") as cut:
        assert (rewritten(cut, join, tmp_path / "again") == values).all()


def test_a_part_of_damaged_bytes_is_refused(matrix, tmp_path):
    source, _ = matrix
    data = next((tmp_path / "source").glob("*.data-*"))
    damaged = bytearray(data.read_bytes())
    damaged[source.find("m").offset + 40] ^= 4
    data.write_bytes(damaged)
    with pytest.raises(CorruptError) as caught:
        rewritten(source, slice_rows, tmp_path)
    assert caught.value.id == "checksum-mismatch"

    def second_part_only(bundle: Bundle) -> None:
        slice_rows(bundle)
        bundle.tensors = [one for one in bundle.tensors if one.shard == 0 or one.key == b"words"]

    with pytest.raises(CorruptError) as caught:  # the rest is read only to check it
        rewritten(source, second_part_only, tmp_path)
    assert caught.value.id == "checksum-mismatch"
    assert list((tmp_path / "out").iterdir()) == []


def test_computed_values(matrix, tmp_path):
    source, values = matrix

    def double(bundle: Bundle) -> None:
        doubled = (values * 2).tobytes()
        for at, tensor in enumerate(bundle.tensors):
            if tensor.key == b"m":
                content = Computed(lambda: iter([doubled[:10], doubled[10:]]), len(doubled))
                bundle.tensors[at] = tensor._replace(content=content)

    assert (rewritten(source, double, tmp_path) == values * 2).all()


def test_two_variables_of_one_key_are_refused(matrix, tmp_path):
    source, _ = matrix
    with pytest.raises(RefusedError) as caught:
        rewritten(source, lambda bundle: bundle.tensors.append(bundle.tensors[0]), tmp_path)
    assert caught.value.id == "duplicate-key"
    assert list((tmp_path / "out").iterdir()) == []


def test_empty_shards_exist(matrix, tmp_path):
    source, values = matrix

    def spread(bundle: Bundle) -> None:
        bundle.shards = 4

    assert (rewritten(source, spread, tmp_path) == values).all()
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        *(f"new.data-0000{shard}-of-00004" for shard in range(4)),
        "new.index",
    ]
