"""``python -m fuzz TARGET --seconds N``: fuzz one target, or all of them in turn."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from fuzz.targets import ROOT, TARGETS, attempt

#: Bytes of an input, and what a process that parses it may hold, in MiB.
_INPUT_BYTES = 2**17
_MEMORY_MB = 2048
#: Seconds that one input may take.
_HANG_SECONDS = 30


def main() -> int:
    """Parse the command line, and run what it asks for."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("target", nargs="?", choices=[*TARGETS, "all"])
    parser.add_argument("--seconds", type=int, default=60, help="for each target (60)")
    parser.add_argument("--list", action="store_true", help="name the targets")
    parser.add_argument("--replay", nargs="+", type=Path, metavar="FILE", help="inputs to run")
    parser.add_argument("--in-process", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.list or options.target is None:
        print("\n".join(TARGETS))
        return 0
    if options.replay:
        run = TARGETS[options.target].load()
        for path in options.replay:
            attempt(run, path.read_bytes())
        return 0
    if find_spec("atheris") is None:
        print("atheris is not installed: pip install atheris", file=sys.stderr)
        return 2
    if options.in_process:
        _fuzz(options.target, options.seconds, options.in_process)
    names = list(TARGETS) if options.target == "all" else [options.target]
    return max(_in_child(name, options.seconds) for name in names)


def _in_child(name: str, seconds: int) -> int:
    """Fuzz in a process of its own, for a find ends it; 1 where there was one."""
    with tempfile.TemporaryDirectory(prefix=f"fuzz-{name}-") as corpus:
        for data in TARGETS[name].inputs():
            Path(corpus, sha256(data).hexdigest()[:16]).write_bytes(data)
        child = [sys.executable, "-m", "fuzz", name, f"--seconds={seconds}", "--in-process", corpus]
        print(f"{name}: {seconds} s", flush=True)
        return int(subprocess.run(child, cwd=ROOT, check=False).returncode != 0)


def _fuzz(name: str, seconds: int, corpus: Path) -> None:
    """Hand over to libFuzzer, which does not come back."""
    import atheris

    with atheris.instrument_imports(include=["ckpttool"]):
        run = TARGETS[name].load()
        for data in TARGETS[name].inputs():  # imports what is imported late
            attempt(run, data)
    finds = ROOT / "fuzz" / "finds" / name
    finds.mkdir(parents=True, exist_ok=True)
    arguments = [
        sys.argv[0],
        str(corpus),
        f"-max_total_time={seconds}",
        f"-max_len={_INPUT_BYTES}",
        f"-rss_limit_mb={_MEMORY_MB}",
        f"-timeout={_HANG_SECONDS}",
        f"-artifact_prefix={finds}/",
        "-verbosity=0",
        "-print_final_stats=1",
    ]
    atheris.Setup(arguments, lambda data: attempt(run, data))
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
