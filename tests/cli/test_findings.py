"""What verify and inspect found, for people: folded, aligned, named as list names it."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from ckpttool.cli.screen import Screen
from ckpttool.cli.views.findings import ALIKE, caller, finding_lines
from ckpttool.cli.views.verify import VerifyView
from ckpttool.model import Finding
from ckpttool.ops.verification.report import KEPT_PER_ID
from ckpttool.ops.verify import Checked, NotChecked, VerifyResult
from tests.support.handmade import EntryFields, write_bundle

HUMAN = {"COLUMNS": "100", "PYTHONIOENCODING": "utf-8"}
EXPLAIN = "ckpttool explain ID says more about what is in brackets"


def human(run_cli, *args: str) -> list[str]:
    """The lines for people, without styles."""
    shown = run_cli([*args, "--color", "always"], env=HUMAN).stdout
    return re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines()


def with_empty_shard(folder: Path, variables: int) -> str:
    """A checkpoint of which the only data file is empty."""
    entries: dict[bytes, EntryFields] = {
        f"layer/{number:05}".encode(): {"shape": (2,), "size": 8, "offset": 8 * number}
        for number in range(variables)
    }
    write_bundle(folder, "m", entries, [b""])
    return str(folder / "m")


@pytest.mark.parametrize(
    ("variables", "shown", "more"),
    [
        (ALIKE, ALIKE, ""),
        (ALIKE + 1, ALIKE + 1, ""),
        (17, ALIKE, f"and {17 - ALIKE} more (--json has all)"),
        (
            KEPT_PER_ID + 7,
            ALIKE,
            f"and {KEPT_PER_ID - ALIKE} more and 7 more like these were not listed",
        ),
    ],
)
@pytest.mark.parametrize("command", ["verify", "inspect"])
def test_findings_of_one_kind_are_folded(
    command, variables, shown, more, run_cli, tmp_path
) -> None:
    prefix = with_empty_shard(tmp_path, variables)
    text = "\n".join(human(run_cli, command, prefix))
    assert text.count("end past the 0") == shown
    assert "layer/00000: its 8 bytes" in " ".join(text.split())
    assert ("(--json has all)" in text) == bool(more)
    assert more in text


def test_json_has_every_finding(run_cli, tmp_path) -> None:
    prefix = with_empty_shard(tmp_path, 17)
    data = json.loads(run_cli(["verify", prefix, "--json"]).stdout)["data"]
    assert sum(finding["id"] == "past-end" for finding in data["findings"]) == 17
    assert run_cli(["verify", prefix]).stdout.count("past-end") == 17


def test_things_not_checked_are_folded_by_their_reason() -> None:
    skipped = [NotChecked(f"run/layer/{number}", "unreadable", 1, 8) for number in range(9)]
    skipped.append(NotChecked("run/m.index", "damaged", 0, 0))
    result = VerifyResult(
        "run", "run/m", "deep", False, False, Checked(0, 0), (), tuple(skipped), (), {}
    )
    view = VerifyView([result])
    assert list(view.human(Screen(80, color=False, unicode=True))) == [
        "run/m: not all checked  0 variables, 0 B read\n",
        "  not checked  layer/0: unreadable (1 variable, 8 B)\n",
        "  not checked  layer/1: unreadable (1 variable, 8 B)\n",
        "  not checked  layer/2: unreadable (1 variable, 8 B)\n",
        "               and 6 more (--json has all)\n",
        "  not checked  m.index: damaged\n",
    ]
    assert len("".join(view.plain()).splitlines()) == 11


def test_everything_is_aligned_below_the_verdict(run_cli, fixtures_dir) -> None:
    lines = human(run_cli, "verify", str(fixtures_dir / "damaged" / "missing-shard"))
    error = next(line for line in lines if "it is not there" in line)
    skipped = next(line for line in lines if "missing (2" in line)
    assert error.index("model.ckpt-42.data") == skipped.index("model.ckpt-42.data")
    assert lines[-1] == EXPLAIN


def test_a_healthy_checkpoint_needs_no_explanation(run_cli, fixtures_dir) -> None:
    assert EXPLAIN not in human(run_cli, "verify", str(fixtures_dir / "keras3"))


@pytest.mark.parametrize("graph_is_whole", [True, False])
def test_variables_are_called_what_list_calls_them(
    graph_is_whole, run_cli, fixtures_dir, tmp_path
) -> None:
    for path in (fixtures_dir / "keras3").glob("ckpt-4.*"):
        shutil.copy(path, tmp_path)
    data = tmp_path / "ckpt-4.data-00000-of-00001"
    listed = json.loads(run_cli(["list", str(tmp_path / "ckpt-4"), "--json"]).stdout)
    kernel = next(
        variable
        for variable in listed["data"]["variables"]
        if variable["name"] == "regressor/hidden/kernel"
    )
    raw = bytearray(data.read_bytes())
    raw[kernel["offset"]] ^= 1
    if not graph_is_whole:
        raw[listed["data"]["variables"][0]["offset"] + 100] ^= 1
    data.write_bytes(raw)
    name = next(
        row.split("\t")[0]
        for row in run_cli(["list", str(tmp_path / "ckpt-4")]).stdout.splitlines()
        if f"\t{kernel['bytes']}\t" in row and "moment" not in row and "veloc" not in row
    )
    lines = human(run_cli, "verify", str(tmp_path / "ckpt-4"))
    assert any(
        line.startswith(f"  {name}: float32 [12,16]") or f" {name}: " in line for line in lines
    )
    found = json.loads(run_cli(["verify", str(tmp_path / "ckpt-4"), "--json"]).stdout)
    assert kernel["key"] in {finding["object"] for finding in found["data"]["findings"]}


def test_files_stand_without_the_directory_of_the_checkpoint() -> None:
    called = caller({"a/.ATTRIBUTES/VARIABLE_VALUE": "dense/kernel"}, "run/model")
    assert called("run/model.index") == "model.index"
    assert called("elsewhere/model.index") == "elsewhere/model.index"
    assert called("a/.ATTRIBUTES/VARIABLE_VALUE") == "dense/kernel"
    assert caller({}, "model")("w") == "w"


def test_hostile_objects_and_messages_are_escaped() -> None:
    screen = Screen(80, color=False, unicode=True)
    found = [Finding("odd", "error", "a\x1b[31m", "b\nc")]
    assert list(finding_lines(found, screen, called=str)) == ["error  a\\x1b[31m: b\\nc  [odd]\n"]
