"""V1 files of gigabytes in a process of little memory: streamed, or refused in time."""

from __future__ import annotations

from pathlib import Path

import cramjam
import pytest

from ckpttool.formats.wire import encode_field, encode_varint
from tests.support.command import RunCli
from tests.support.v1_files import FULL, block, entry, header, meta, number, table_of_blocks

#: MiB of address space: what Python and the imports take, and little more.
MEMORY = 120
MIB = 2**20


def write(
    path: Path, metas: list[bytes], last: tuple[bytes, bytes], *, snappy: bool = False
) -> str:
    """A file with one large value in a block of its own."""
    first = block([(b"", header(metas, number(1, 1)))])
    large = block([last])
    if snappy:
        large = bytes(cramjam.snappy.compress_raw(large))
    blocks = [(first, b"", 0), (large, last[0], int(snappy))]
    path.write_bytes(table_of_blocks(blocks))
    return str(path)


def test_floats_of_any_size_are_streamed(run_cli: RunCli, tmp_path: Path) -> None:
    rows = 150 * MIB // 4096
    values = entry(b"v", [FULL, FULL], encode_field(5, bytes(150 * MIB)))
    path = write(tmp_path / "m", [meta(b"v", 1, (rows, 1024), [[FULL, FULL]])], values)
    commands: list[list[str]] = [
        ["list", path],
        ["inspect", path],
        ["load", path, "v[5:7, 0:3]"],
        ["verify", path],
        ["repartition", path, f"{tmp_path}/new", "--slice", "v=axis1:2"],
        ["load", path, "v", "-o", f"{tmp_path}/v.npy"],
    ]
    for arguments in commands:
        done = run_cli(arguments, memory_mb=MEMORY)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "v.npy").stat().st_size > 150 * MIB


@pytest.mark.parametrize(
    ("dtype", "count", "stored"),
    [
        (9, 60 * MIB, encode_field(10, bytes(60 * MIB))),  # eight bytes of one
        (7, 1, encode_field(8, bytes(150 * MIB))),
        (7, 12_000_000, encode_field(8, b"") * 12_000_000),
    ],
)
def test_what_has_to_be_held_and_does_not_fit(
    run_cli: RunCli, tmp_path: Path, dtype: int, count: int, stored: bytes
) -> None:
    shape = (count,) if count > 1 else ()
    spec = [FULL] if shape else []
    path = write(tmp_path / "m", [meta(b"v", dtype, shape, [spec])], entry(b"v", spec, stored))
    done = run_cli(["list", path, "-q"], memory_mb=MEMORY)
    assert (done.returncode, done.stdout) == (0, "v\n"), done.stderr
    done = run_cli(["load", path, "v"], memory_mb=MEMORY)
    assert (done.returncode, done.stdout) == (21, "")


@pytest.mark.parametrize("claimed", [2**32 - 1, 2**28])
def test_a_compressed_block_that_claims_more_than_it_is(
    run_cli: RunCli, tmp_path: Path, claimed: int
) -> None:
    values = entry(b"v", [FULL], encode_field(5, bytes(4 * MIB)))
    path = write(tmp_path / "m", [meta(b"v", 1, (MIB,), [[FULL]])], values, snappy=True)
    done = run_cli(["load", path, "v[0]"], memory_mb=MEMORY)
    assert (done.returncode, done.stdout) == (0, "0.0\n"), done.stderr
    bomb = encode_varint(claimed) + bytes(2 * MIB)
    first = block([(b"", header([meta(b"v", 1, (MIB,), [[FULL]])], number(1, 1)))])
    (tmp_path / "bomb").write_bytes(table_of_blocks([(first, b"", 0), (bomb, values[0], 1)]))
    done = run_cli(["load", tmp_path / "bomb", "v[0]"], memory_mb=MEMORY)
    assert (done.returncode, done.stdout) == (20, "")
    assert "[snappy-malformed]" in done.stderr
