"""Every crafted checkpoint through every command that writes: refused, or copied as it is.

FAULTS 3, 5 and 16: whatever an index claims, the command ends with an exit code of ours, in
bounded time and memory, and its destination is absent or whole.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.faults.confined import Outcome, run_confined
from tests.faults.crafted import CASES

#: Bounds of one command, beyond what Python and the imports take.
CPU_SECONDS = 1.5
GROWN_MB = 120

#: How the source (S) is written to the destination (D): all that need no numpy, which does
#: not start in the memory that the child gets.
COMMANDS = {
    "cp": ["cp", "S", "D"],
    "salvage": ["cp", "S", "D", "--salvage"],
    "shards": ["repartition", "S", "D", "--shards", "3"],
    "slices": ["repartition", "S", "D", "--slice", "*=axis0:2", "--allow-unrestorable"],
    "join": ["repartition", "S", "D", "--merge-slices", "*"],
    "checked": ["repartition", "S", "D", "--verify-source"],
    "drop": ["edit", "S", "D", "--drop", "other", "--allow-unmatched"],
    "merge": ["merge", "S", "S", "-o", "D", "--on-conflict", "last"],
}
#: What a command that writes may end with, besides success.
REFUSALS = {2, 3, 10, 11, 12, 20, 21, 22, 31, 41}
#: Slices that do not make a whole.
BROKEN_SLICES = {"slice-overlap", "slice-gap", "slice-shape", "slice-missing", "slice-mismatch"}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Outcome]:
    folder = tmp_path_factory.mktemp("crafted")
    lines = {}
    for name, case in CASES.items():
        source = folder / name
        source.mkdir()
        case.write(source)
        for command, words in COMMANDS.items():
            out = folder / f"{name}-{command}"
            out.mkdir()
            places = {"S": str(source / "c"), "D": str(out / "d")}
            lines[name, command] = [places.get(word, word) for word in words]
    return dict(zip(lines, run_confined(lines.values()), strict=True))


def out_of(outcome: Outcome) -> Path:
    (to,) = [word for word in outcome.argv if word.endswith("/d")]
    return Path(to).parent


@pytest.mark.parametrize("name", CASES)
def test_refused_or_whole(outcomes, name):
    for command in COMMANDS:
        outcome = outcomes[name, command]
        assert outcome.code in REFUSALS | {0}, (command, outcome)
        assert outcome.cpu < CPU_SECONDS, (command, outcome)
        assert outcome.grown_mb < GROWN_MB, (command, outcome)
        assert "Traceback" not in outcome.stderr
        left = {path for path in os.listdir(out_of(outcome)) if not path.startswith(".")}
        assert ("d.index" in left) == (outcome.code in {0, 3}), (command, outcome, left)
        if outcome.code not in {0, 3}:
            assert left == set(), (command, outcome)


@pytest.mark.parametrize("name", [one.name for one in CASES.values() if one.id in BROKEN_SLICES])
def test_slices_that_make_no_whole_are_not_cut_anew(outcomes, name):
    for command in ("slices", "join"):
        assert outcomes[name, command].code in {20, 21}, outcomes[name, command]
