"""The process of the command line: the console script, and ``python -m ckpttool``."""

from __future__ import annotations

from ckpttool.cli.early import hold_signals


def run() -> None:
    """Run the command line and end the process; an interrupt is quiet from here on."""
    hold_signals()
    from ckpttool.cli.main import run as run_and_end

    run_and_end()


if __name__ == "__main__":
    run()
