"""``load -o`` to safetensors and HDF5: whole variables, parts, casts, refusals."""

from __future__ import annotations

import resource
from pathlib import Path

import numpy as np
import pytest

from ckpttool.cli.main import main
from ckpttool.errors import CkpttoolError
from ckpttool.ops.load import load
from ckpttool.ops.save_values import SaveFormat, save
from ckpttool.sources.registry import open_source
from ckpttool.sources.selection import Selection


def saved(address: str, names: list[str], path: Path, cast: str | None = None) -> Path:
    with load(address, names, cast=cast) as loaded:
        result = save(loaded, str(path), path.suffix[1:])  # type: ignore[arg-type]
    assert result.nbytes == path.stat().st_size
    return path


def test_safetensors_keeps_what_numpy_lacks(fixtures_dir: Path, tmp_path: Path) -> None:
    """bfloat16 and float8 of a checkpoint are bfloat16 and float8 in the file, bit for bit."""
    address = str(fixtures_dir / "dtypes" / "all")
    names = [f"array/{dtype}" for dtype in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float32")]
    path = saved(address, names, tmp_path / "x.safetensors")
    library = pytest.importorskip("safetensors")
    with library.safe_open(path, "numpy") as opened:
        words = {name: opened.get_slice(name).get_dtype() for name in opened.keys()}  # noqa: SIM118
    assert sorted(words.values()) == ["BF16", "F32", "F8_E4M3", "F8_E5M2"]
    with open_source(address) as before, open_source(str(path)) as after:
        for name in names:
            one, other = before.find(name), after.find(name)
            assert (one.dtype, one.shape) == (other.dtype, other.shape)
            assert one.shape is not None
            whole = Selection.whole(one.shape)
            assert b"".join(before.chunks(one, whole)) == b"".join(after.chunks(other, whole))


def test_partitioned_variables_and_parts_of_them(fixtures_dir: Path, tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    address = str(fixtures_dir / "partitioned")
    with open_source(address) as source:
        variable = source.find("embedding/table")
        assert variable.shape is not None
        table = source.read(variable, Selection.whole(variable.shape))
    names = ["embedding/table", "embedding/table[2:5,0]"]
    with h5py.File(saved(address, names, tmp_path / "x.h5"), "r") as found:
        assert found["embedding/table"][()].tolist() == table.tolist()
        part = found["embedding/table[2:5, 0]"]
        assert part[()].tolist() == table[2:5, 0].tolist()
    library = pytest.importorskip("safetensors.numpy")
    arrays = library.load_file(saved(address, names, tmp_path / "x.safetensors"))
    assert arrays["embedding/table[2:5, 0]"].tolist() == table[2:5, 0].tolist()


def test_slots_beside_their_variables(fixtures_dir: Path, tmp_path: Path) -> None:
    """USERS D02's names, where Adam's slot goes on from the name of the weights."""
    h5py = pytest.importorskip("h5py")
    address = str(fixtures_dir / "mlp-v1")
    path = saved(address, ["hidden/weights", "hidden/weights/Adam"], tmp_path / "x.h5")
    with h5py.File(path, "r") as found:
        assert found["hidden/weights"].shape == found["hidden/weights:Adam"].shape
        assert found["hidden/weights:Adam"].attrs["name"] == "hidden/weights/Adam"


def test_strings_go_into_hdf5(fixtures_dir: Path, tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    address = str(fixtures_dir / "arrays" / "odd.npz")
    with h5py.File(saved(address, ["texts", "bytes"], tmp_path / "x.h5"), "r") as found:
        assert found["texts"][()].tolist() == [[b"a", "größe".encode()], [b"", b"xyz"]]
        assert found["bytes"][()].tolist() == [b"one", b"", b"three"]


@pytest.mark.parametrize("suffix", ["safetensors", "h5"])
def test_what_has_no_type_is_refused_and_a_cast_helps(
    fixtures_dir: Path, tmp_path: Path, suffix: str
) -> None:
    pytest.importorskip("h5py")
    address = str(fixtures_dir / "dtypes" / "all")
    path = tmp_path / f"x.{suffix}"
    with pytest.raises(CkpttoolError) as caught:
        saved(address, ["array/int4"], path)
    assert caught.value.id == "dtype-not-representable"
    assert "--cast auto" in caught.value.hint
    assert not list(tmp_path.iterdir())
    saved(address, ["array/int4"], path, "auto")
    with open_source(address) as before, open_source(str(path)) as after:
        one, other = before.find("array/int4"), after.find("array/int4")
        assert other.dtype == "int8"
        assert one.shape is not None
        whole = Selection.whole(one.shape)
        assert after.read(other, whole).tolist() == before.read(one, whole).astype(int).tolist()


@pytest.mark.parametrize("format", ["safetensors", "h5"])
def test_damage_leaves_no_file(fixtures_dir: Path, tmp_path: Path, format: SaveFormat) -> None:
    pytest.importorskip("h5py")
    address = str(fixtures_dir / "damaged" / "flipped-bit")
    with load(address, ["tower/*"]) as loaded, pytest.raises(CkpttoolError) as caught:
        save(loaded, str(tmp_path / "x"), format)
    assert caught.value.id == "checksum-mismatch"
    assert not list(tmp_path.iterdir())


def test_to_standard_output_and_over_a_file(
    fixtures_dir: Path, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    address = str(fixtures_dir / "two-shards")
    for kind in ("safetensors", "h5"):
        pytest.importorskip("h5py")
        path = tmp_path / f"x.{kind}"
        assert main(["load", address, "tower/*", "-o", str(path)]) == 0
        before = path.read_bytes()
        assert main(["load", address, "tower/*", "-o", str(path)]) == 31
        assert main(["load", address, "tower/*", "-o", str(path), "--overwrite"]) == 0
        assert path.read_bytes() == before
        capfdbinary.readouterr()
        assert main(["load", address, "tower/*", "-o", "-", "--format", kind]) == 0
        assert capfdbinary.readouterr().out == before


def test_an_array_of_a_file_goes_into_another_format(fixtures_dir: Path, tmp_path: Path) -> None:
    for address in ("arrays/model.safetensors", "models/dense.onnx", "models/dense.tflite"):
        pattern = "*a*"
        path = saved(
            str(fixtures_dir / address), [pattern], tmp_path / f"{len(address)}.npz", "auto"
        )
        with np.load(path) as found, open_source(str(fixtures_dir / address)) as source:
            assert found.files
            for name in found.files:
                variable = source.find(name)
                expected = source.read(variable, Selection.whole(variable.shape or ()))
                assert found[name].tolist() == expected.astype(found[name].dtype).tolist()


@pytest.mark.parametrize("size", [0, 10**5])
@pytest.mark.parametrize("suffix", ["safetensors", "h5", "npz"])
def test_a_full_disk_leaves_no_file(
    tmp_path: Path, suffix: str, size: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """The system refuses what goes past a limit on the size of files, as a full disk does."""
    pytest.importorskip("h5py")
    np.savez(tmp_path / "source.npz", x=np.zeros(10**6, np.float32))
    (tmp_path / "out").mkdir()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        out = tmp_path / "out" / f"x.{suffix}"
        code = main(["load", str(tmp_path / "source.npz"), "x", "-o", str(out)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert code == 41
    assert "no-space" in capsys.readouterr().err
    assert not list((tmp_path / "out").iterdir())
