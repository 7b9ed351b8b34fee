"""The HDF5 library in a process of its own: the same answers, and an error where it ends."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckpttool.errors import CorruptError, LimitError
from ckpttool.formats.hdf5 import Contents
from ckpttool.formats.hdf5_library import Hdf5File
from ckpttool.formats.hdf5_process import Hdf5Process
from ckpttool.limits import Limits
from ckpttool.sources.hdf5_values import read_elements
from ckpttool.sources.selection import Selection
from ckpttool.storage import open_directory
from ckpttool.storage.base import ReadableFile
from tests.support.command import ROOT, clean_environment

h5py = pytest.importorskip("h5py")


@pytest.fixture
def file(tmp_path: Path) -> Iterator[ReadableFile]:
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as made:
        made.create_dataset("packed", data=np.arange(50), chunks=(7,), compression="gzip")
        made.create_dataset("lzf", data=np.arange(50), chunks=(7,), compression="lzf")
        made.create_dataset("filled", (9,), "i8", chunks=(4,), fillvalue=7)
        made["group/plain"] = [1.5]
        made["link"] = h5py.SoftLink("/group")
        made.attrs["text"] = "é"
        made.attrs["long"] = "a" * 1000
    (tmp_path / "x.h5").write_bytes(b"before" + buffer.getvalue())
    directory = open_directory(str(tmp_path))
    opened = directory.open("x.h5")
    yield opened
    opened.close()
    directory.close()


def in_order(contents: Contents) -> tuple[Any, ...]:
    return tuple(sorted(map(repr, part)) for part in contents)


def test_answers_are_the_librarys(file) -> None:
    ours, theirs = Hdf5Process(file, Limits(), start=6), Hdf5File(file, Limits(), start=6)
    assert (ours.base, ours.address_bytes, ours.size) == (
        theirs.base,
        theirs.address_bytes,
        theirs.size,
    )
    contents = ours.walk()
    assert in_order(contents) == in_order(theirs.walk())
    assert ours.attribute("", "text") == "é"
    assert ours.attribute("group", "none") is None
    assert ours.has_attribute("", "text")
    for dataset in contents.datasets:
        assert dataset.shape is not None
        whole = Selection.whole(dataset.shape)
        assert b"".join(read_elements(ours, dataset, whole, 8, check=True)) == b"".join(
            read_elements(theirs, dataset, whole, 8, check=True)
        )
    ours.close()
    theirs.close()


def test_errors_are_the_librarys(file) -> None:
    limited = Hdf5Process(file, Limits(keras_config_bytes=15), start=6)
    with pytest.raises(LimitError) as caught:
        limited.attribute("", "long")
    assert caught.value.id == "limit-keras-config"
    assert limited.attribute("", "none") is None, "and it goes on"
    limited.close()
    with pytest.raises(CorruptError) as unreadable:
        Hdf5Process(file, Limits(), start=7)
    assert unreadable.value.id == "hdf5-unreadable"


def test_its_end_is_an_error(file) -> None:
    opened = Hdf5Process(file, Limits(), start=6)
    os.kill(opened._process, signal.SIGSEGV)
    for _ in range(2):
        with pytest.raises(CorruptError) as caught:
            opened.walk()
        assert caught.value.id == "hdf5-unreadable"
    opened.close()


def test_its_end_is_an_error_where_nobody_waits_for_children(file) -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        opened = Hdf5Process(file, Limits(), start=6)
        os.kill(opened._process, signal.SIGSEGV)
        with pytest.raises(CorruptError, match="ended"):
            opened.walk()
        Hdf5Process(file, Limits(), start=6).close()
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_a_bound_of_the_processor_that_a_person_set_stands(fixtures_dir: Path) -> None:
    """``ulimit -t``: one below the library's own is no damage of the file."""
    address = str(fixtures_dir / "keras-files" / "keras3.weights.h5")
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_CPU, (50, 50));"
        "from ckpttool.cli.main import main; sys.exit(main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "list", address],
        capture_output=True,
        text=True,
        env=clean_environment({"PYTHONPATH": str(ROOT)}),
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_it_leaves_nothing_behind(file) -> None:
    before = len(os.listdir("/proc/self/fd"))
    opened = Hdf5Process(file, Limits(), start=6)
    process = opened._process
    opened.close()
    opened.close()
    assert len(os.listdir("/proc/self/fd")) == before
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_an_interrupt_is_not_meant_for_it(file) -> None:
    opened = Hdf5Process(file, Limits(), start=6)
    os.kill(opened._process, signal.SIGINT)
    assert len(opened.walk().datasets) == 4
    opened.close()


def test_going_round_in_circles_ends(fixtures_dir: Path) -> None:
    """A file that sends HDF5 1.14 round for ever; another version may read it, or refuse it."""
    with open_directory(str(fixtures_dir.parent / "fuzz" / "finds" / "hdf5")) as directory:
        found = directory.open("library-in-circles")
        try:
            opened = Hdf5Process(found, Limits(hdf5_seconds=1))
            opened.walk()
            opened.close()
        except CorruptError as error:
            assert error.id == "hdf5-unreadable"  # noqa: PT017 - it may also be read
        found.close()
