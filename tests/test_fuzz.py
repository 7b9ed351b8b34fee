"""The fuzz targets: each runs on its seeds and on all that was ever found; and is fuzzed.

`python -m fuzz` is the long way; what it finds lies in `fuzz/finds/TARGET/` afterwards.
"""

from __future__ import annotations

import random
import subprocess
import sys

import pytest

from fuzz.targets import ROOT, TARGETS, Target, attempt


def test_what_was_found_belongs_to_a_target() -> None:
    finds = ROOT / "fuzz" / "finds"
    assert {path.name for path in finds.iterdir() if path.is_dir()} <= set(TARGETS)


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_and_finds_are_read_or_refused(name) -> None:
    target: Target = TARGETS[name]
    run = target.load()
    seeds = list(target.inputs())
    assert len(seeds) > 1, "a target without seeds finds little"
    finds = sorted((ROOT / "fuzz" / "finds" / name).glob("*"))
    for data in [*seeds, *(path.read_bytes() for path in finds)]:
        attempt(run, data)


@pytest.mark.parametrize("name", [name for name in TARGETS if name not in {"hdf5", "keras"}])
def test_changed_seeds_are_read_or_refused(name) -> None:
    """A few changes a seed, on every run of the tests; HDF5's are in `test_keras.py`."""
    generator = random.Random(name)
    target = TARGETS[name]
    run = target.load()
    for seed in list(target.inputs())[1:6]:
        for _ in range(40):
            data = bytearray(seed)
            for _ in range(generator.randint(1, 3)):
                at = generator.randrange(len(data))
                data[at] = generator.choice((0, 1, 0x7F, 0x80, 0xFF, data[at] ^ 1))
            if generator.random() < 0.2:
                del data[generator.randrange(len(data)) :]
            attempt(run, bytes(data))


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_a_few_seconds_of_fuzzing_find_nothing(name) -> None:
    pytest.importorskip("atheris", reason="atheris is not installed")
    result = subprocess.run(
        [sys.executable, "-m", "fuzz", name, "--seconds", "2"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=600,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-4000:]
    assert "number_of_executed_units" in result.stderr
