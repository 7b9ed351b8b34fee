"""Closed pipes, full devices, closed streams (F3, F19, F24)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command import clean_environment
from tests.support.stand_in import stand_in

FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")

MANY_LINES = """
    for number in range(200_000):
        out.write(f"line {number}\\n")
    return 0
"""


def command(*args: str) -> list[str]:
    return [sys.executable, "-m", "ckpttool", *args]


def test_head_ends_the_listing_quietly() -> None:
    """`ckpttool list | head -1`."""
    process = subprocess.Popen(
        stand_in(MANY_LINES),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=clean_environment(),
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == b"line 0\n"
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(timeout=120) == 141


@pytest.mark.parametrize("args", [["explain"], ["--help"], ["--version"], ["explain", "--json"]])
def test_a_pipe_that_closes_before_the_last_flush_is_quiet_too(args) -> None:
    read, write = os.pipe()
    os.close(read)
    result = subprocess.run(
        command(*args), stdout=write, stderr=subprocess.PIPE, env=clean_environment(), check=False
    )
    os.close(write)
    assert (result.returncode, result.stderr) == (141, b"")


def test_an_error_before_a_closed_pipe_is_still_the_answer() -> None:
    read, write = os.pipe()
    os.close(read)
    body = 'out.write("text"); raise CorruptError("damaged")'
    result = subprocess.run(
        stand_in(body), stdout=write, stderr=subprocess.PIPE, env=clean_environment(), check=False
    )
    os.close(write)
    assert result.returncode == 20
    assert result.stderr.startswith(b"error: damaged\n")


@needs_full
@pytest.mark.parametrize(
    "args",
    [["explain"], ["--help"], ["explain", "--help"], ["--version"], ["completion", "bash"]],
    ids=" ".join,
)
def test_a_full_device_is_no_space(args) -> None:
    with FULL.open("wb") as full:
        result = subprocess.run(
            command(*args),
            stdout=full,
            stderr=subprocess.PIPE,
            env=clean_environment(),
            check=False,
        )
    assert result.returncode == 41
    lines = result.stderr.decode().splitlines()
    assert lines[0] == "error: cannot write to standard output"
    assert lines[1] == "  why: No space left on device"
    assert lines[-1].endswith("[stdout]")


@needs_full
def test_a_full_device_with_json_is_an_error_object() -> None:
    with FULL.open("wb") as full:
        result = subprocess.run(
            command("explain", "--json"),
            stdout=full,
            stderr=subprocess.PIPE,
            env=clean_environment(),
            check=False,
        )
    assert result.returncode == 41
    assert json.loads(result.stderr)["id"] == "stdout"


@needs_full
def test_bytes_to_a_full_device() -> None:
    with FULL.open("wb") as full:
        result = subprocess.run(
            stand_in("out.write_bytes(b'x' * 2**20); return 0"),
            stdout=full,
            stderr=subprocess.PIPE,
            env=clean_environment(),
            check=False,
        )
    assert result.returncode == 41


@needs_full
def test_an_error_that_cannot_be_said_keeps_its_code() -> None:
    with FULL.open("wb") as full:
        result = subprocess.run(
            command("explain", "nonsense"), stderr=full, env=clean_environment(), check=False
        )
    assert result.returncode == 10


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize(("args", "code"), [(["explain", "20"], 0), (["explain", "nonsense"], 10)])
def test_output_is_never_lost_silently_in_a_closed_stream(closed, args, code) -> None:
    if code == 0 and ">&-" in closed.split():
        code = 40
    script = f'exec "$@" {closed}'
    result = subprocess.run(
        ["sh", "-c", script, "sh", *command(*args)],
        capture_output=True,
        env=clean_environment(),
        check=False,
    )
    assert result.returncode == code
    assert b"Traceback" not in result.stderr


def test_a_file_opened_while_stdout_is_closed_does_not_become_stdout(tmp_path) -> None:
    body = f"""
        descriptor = os.open({str(tmp_path / "checkpoint")!r}, os.O_RDWR | os.O_CREAT)
        return 0 if descriptor > 2 else 1
    """
    result = subprocess.run(
        ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *stand_in(body)],
        env=clean_environment(),
        check=False,
    )
    assert result.returncode == 0


@pytest.mark.parametrize(
    ("raised", "code", "id"),
    [
        ("OSError(28, 'No space left on device', 'x')", 41, "no-space"),
        ("OSError(13, 'Permission denied', 'x')", 42, "permission"),
        ("OSError(2, 'No such file or directory', 'x')", 10, "not-found"),
        ("OSError(5, 'Input/output error', 'x')", 40, "storage"),
        ("MemoryError()", 21, "out-of-memory"),
        ("RecursionError('deep')", 70, "internal"),
        ("AssertionError()", 70, "internal"),
        ("EOFError()", 70, "internal"),
        ("UnicodeEncodeError('ascii', 'x', 0, 1, 'no')", 70, "internal"),
    ],
)
def test_what_slips_through_finds_its_code(raised, code, id) -> None:
    result = subprocess.run(
        stand_in(f"raise {raised}"), capture_output=True, text=True, env=clean_environment()
    )
    assert result.returncode == code
    lines = result.stderr.splitlines()
    assert len(lines) == 3
    assert lines[-1].endswith(f"[{id}]")


def test_a_bug_shows_its_traceback_only_when_asked() -> None:
    body = "out.settings.verbose = arguments.count('-v'); raise KeyError('x')"
    quiet, loud = (
        subprocess.run(
            stand_in(body, *args), capture_output=True, text=True, env=clean_environment()
        )
        for args in ([], ["-v"])
    )
    assert "Traceback" not in quiet.stderr
    assert "a bug in ckpttool: KeyError" in quiet.stderr
    assert "-v" in quiet.stderr
    assert "Traceback (most recent call last):" in loud.stderr
    assert loud.returncode == quiet.returncode == 70


def test_running_out_of_memory_is_said(run_cli) -> None:
    from tests.support.command import limited

    result = subprocess.run(
        limited(stand_in("held = bytearray(2**33); return 0"), 512),
        capture_output=True,
        text=True,
        env=clean_environment(),
    )
    assert result.returncode == 21
    assert "512 MiB" in result.stderr
