"""Every crafted checkpoint through every command that reads: exit codes, memory, time.

One child runs them all, with an address-space limit; a few go through the real process.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.faults.confined import Outcome, run_confined
from tests.faults.crafted import CASES, Case, written
from tests.support.command import RunCli

#: Bounds of one command, beyond what Python and the imports take. One second is promised; on a
#: machine that others use too the same work takes up to twice the CPU time.
CPU_SECONDS = 2.0
GROWN_MB = 100

#: The crafted checkpoints of the shared test data: what list, load and verify end with,
#: and the error or finding. `valid` is the control.
SHARED = {
    "valid": (0, 0, 0, ""),
    "bad_dtype": (0, 12, 1, "unknown-dtype"),
    "block_handle_64G": (20, 20, 1, "block-malformed"),
    "crc_bad": (0, 20, 1, "checksum-mismatch"),
    "dup_key": (20, 20, 1, "keys-duplicate"),
    "empty_table": (20, 20, 1, "header-missing"),
    "header_missing": (20, 20, 1, "header-missing"),
    "huge_shape_2p60": (0, 20, 1, "shard-short"),
    "neg_dim": (20, 20, 1, "negative-dimension"),
    "num_shards_huge": (0, 20, 1, "shard-missing"),
    "offset_past_eof": (0, 20, 1, "shard-short"),
    "prefix_blowup": (20, 20, 1, "keys-unsorted"),
    "shared_gt_prev": (20, 20, 1, "block-malformed"),
    "snappy_bomb_4G": (20, 20, 1, "snappy-malformed"),
    "string_many_elems": (0, 20, 1, "shard-short"),
    "too_many_dims": (21, 21, 21, "limit-rank"),
    "unsorted": (20, 20, 1, "keys-unsorted"),
}

Outcomes = Mapping[tuple[str, str], Outcome]
COMMANDS = ("inspect", "list", "load", "verify", "verify --quick", "verify --json", "diff")


def commands(prefix: Path) -> dict[str, list[str]]:
    """The command lines of one checkpoint, by name."""
    more = {"load": ["v"], "diff": [str(prefix)]}
    return {name: [*name.split(), str(prefix), *more.get(name, [])] for name in COMMANDS}


def run(prefixes: Mapping[str, Path]) -> Outcomes:
    """Run every command on every checkpoint."""
    lines = {
        (case, name): argv
        for case, prefix in prefixes.items()
        for name, argv in commands(prefix).items()
    }
    return dict(zip(lines, run_confined(lines.values()), strict=True))


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    root = tmp_path_factory.mktemp("crafted")
    return run({case.name: prefix for case, prefix in written(root)})


@pytest.fixture(scope="module")
def shared_outcomes(hostile: Path) -> Outcomes:
    found = {path.name for path in hostile.iterdir() if path.is_dir()}
    assert found == SHARED.keys()
    return run({name: hostile / name / "c" for name in SHARED})


def judge(case: Case, outcomes: Outcomes) -> None:
    """Compare what the commands did with what the case says."""
    of = {name: outcomes[case.name, name] for name in COMMANDS}
    codes = {name: outcome.code for name, outcome in of.items()}
    expected = {
        "inspect": case.listed,
        "list": case.listed,
        "load": case.loaded,
        "verify": case.verified,
        "verify --json": case.verified,
    }
    assert {name: codes[name] for name in expected} == expected
    # Compared with itself nothing differs; what cannot be read was not compared.
    assert codes["diff"] == case.listed or (not case.listed and codes["diff"] == 3)
    # Quick finds all but what only the bytes tell.
    assert codes["verify --quick"] in {0, case.verified}
    assert case.id in "".join(outcome.stdout + outcome.stderr for outcome in of.values())
    for name, outcome in of.items():
        assert outcome.cpu < CPU_SECONDS, name
        assert outcome.grown_mb < GROWN_MB, name
        check_text(name, outcome)


def check_text(name: str, outcome: Outcome) -> None:
    """No traceback, nothing that draws on a terminal, three lines of error and an id."""
    said = outcome.stdout + outcome.stderr
    assert "Traceback" not in said
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", said), name
    if outcome.code < 10:
        return
    if "--json" in name:
        error = json.loads(outcome.stderr.splitlines()[-1])
        assert error["code"] == outcome.code
        assert error["message"]
        assert error["hint"]
        return
    lines = outcome.stderr.splitlines()[-3:]
    assert lines[0].startswith("error: "), outcome.stderr
    assert lines[1].startswith("  why: "), outcome.stderr
    assert re.search(r"^  next: .*  \[[a-z0-9-]+\]$", lines[2]), outcome.stderr


@pytest.mark.parametrize("name", CASES)
def test_crafted(name: str, outcomes: Outcomes) -> None:
    judge(CASES[name], outcomes)


@pytest.mark.parametrize("name", SHARED)
def test_crafted_of_the_shared_data(name: str, shared_outcomes: Outcomes) -> None:
    judge(Case(name, lambda _: None, *SHARED[name]), shared_outcomes)


def test_verify_says_what_the_case_is_about(outcomes: Outcomes) -> None:
    missing = [
        name
        for name, case in CASES.items()
        if case.verified == 1 and case.id not in outcomes[name, "verify"].stdout
    ]
    assert missing == []


def test_verify_says_in_json_whether_it_is_healthy(outcomes: Outcomes) -> None:
    for name, case in CASES.items():
        if case.verified < 10:
            document = json.loads(outcomes[name, "verify --json"].stdout)
            assert document["data"]["healthy"] == (case.verified == 0), name
            assert document["ok"] == (case.verified == 0), name


@pytest.mark.parametrize(
    "name",
    # One for each exit code, and those that a process could die of.
    [
        "names_that_draw_on_a_terminal",
        "strings_of_a_trillion_elements",
        "unknown_compression",
        "nothing_at_all",
        "index_is_an_archive",
        "snappy_within_its_ratio_and_over_the_limit",
        "index_is_a_pipe",
        "graph_of_a_million_nodes",
        "data_file_is_a_link_to_a_device",
    ],
)
def test_crafted_through_the_real_process(
    name: str, tmp_path: Path, run_cli: RunCli, outcomes: Outcomes
) -> None:
    CASES[name].write(tmp_path)
    for command, argv in commands(tmp_path / "c").items():
        done = run_cli(argv, memory_mb=400, timeout=30)
        expected = outcomes[name, command]
        assert done.returncode == expected.code
        assert done.stderr.count("\n") == expected.stderr.count("\n")
