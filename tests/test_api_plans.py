"""The commands as Python calls them: one plan, one `apply`, and the same files as the command."""

from __future__ import annotations

import doctest
import inspect
import shutil
import typing
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

import ckpttool
from ckpttool.cli.app import root
from ckpttool.errors import ChangedError, UsageError
from tests.support.command import ROOT

#: What a command has and a function has not: how to show, ask, plan and watch.
OF_THE_TERMINAL = {
    *("apply", "color", "dry_run", "help", "json", "list", "ndjson", "no_input", "plan"),
    *("progress", "quiet", "salvage", "verbose", "yes"),
}
#: What a function has beside: what a program gives where a person has a terminal.
OF_PYTHON = {"dry_run", "limits", "replacing", "said"}


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def keywords(function: Callable[..., Any]) -> set[str]:
    """What it takes by keyword, that of its ``**how`` too."""
    found: set[str] = set()
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            module = vars(import_module(function.__module__))
            (how,) = typing.get_args(eval(parameter.annotation, module))
            found |= set(typing.get_type_hints(how, module))
        elif parameter.kind is parameter.KEYWORD_ONLY:
            found.add(name)
    return found


@pytest.mark.parametrize(
    ("command", "function"),
    [
        ("repartition", ckpttool.plan_repartition),
        ("edit", ckpttool.plan_edit),
        ("average", ckpttool.plan_average),
        ("merge", ckpttool.plan_merge),
        ("cp", ckpttool.plan_copy),
        ("convert", ckpttool.convert),
    ],
)
def test_keywords_are_the_options_of_the_command(
    command: str, function: Callable[..., Any]
) -> None:
    found = root.get_command(click.Context(root), command)
    assert found is not None
    options = {
        max(param.opts, key=len).removeprefix("--").replace("-", "_")
        for param in found.params
        if isinstance(param, click.Option)
    }
    positional = {"output"} if command in {"average", "merge"} else set()
    assert keywords(function) - OF_PYTHON == options - OF_THE_TERMINAL - positional


def test_a_plan_shows_what_apply_does(
    fixtures_dir: Path, tmp_path: Path, run_cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = fixtures_dir / "mlp-v1"
    plan = ckpttool.plan_repartition(source, "three", shards=3, slice="hidden/weights=axis0:4")
    assert list(tmp_path.iterdir()) == []
    assert (plan.destination, plan.variables, plan.planned.applied) == ("three", 17, False)
    assert sum(shard.nbytes for shard in plan.shards) == plan.nbytes
    assert "hidden/weights" in {change.variable for change in plan.changes}
    assert repr(plan) == f"<ckpttool.RewritePlan 'three': 17 variables, {plan.nbytes} bytes>"
    seen: list[tuple[int, int]] = []
    result = plan.apply(progress=lambda done, total: seen.append((done, total)))
    assert (result.applied, result.shards) == (True, plan.shards)
    assert seen[-1] == (plan.nbytes, plan.nbytes)
    ours = files_of(tmp_path)
    options = ["--shards", "3", "--slice", "hidden/weights=axis0:4", "--overwrite", "-y"]
    again = run_cli(["repartition", source, "three", *options], cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert files_of(tmp_path) == ours
    with pytest.raises(ckpttool.RefusedError) as caught:
        plan.apply()
    assert caught.value.id == "exists"


def test_every_verb_writes_a_healthy_checkpoint(fixtures_dir: Path, tmp_path: Path) -> None:
    keras = fixtures_dir / "keras3"
    plans = [
        ckpttool.plan_edit(keras, tmp_path / "edit", strip_optimizer=True, cast="bfloat16"),
        ckpttool.plan_average([f"{keras}/@3", keras / "ckpt-4"], tmp_path / "mean", weights=[1, 3]),
        ckpttool.plan_merge(
            [fixtures_dir / "two-shards", fixtures_dir / "mlp-v1"],
            tmp_path / "both",
            take=["B:hidden/*", "B:logits/*"],
        ),
        ckpttool.plan_copy(fixtures_dir / "v1", tmp_path / "v1", verify_source=True),
    ]
    for plan in plans:
        result = plan.apply()
        assert ckpttool.verify(result.destination).healthy
        assert result.variables == plan.variables
    with ckpttool.open(tmp_path / "edit") as checkpoint:
        assert {one.dtype for one in checkpoint.values() if one.kind == "model"} == {"bfloat16"}


def test_a_plan_holds_only_while_all_is_as_it_was(
    fixtures_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    shutil.copytree(fixtures_dir / "mlp-v1", run)
    plan = ckpttool.plan_copy(run, tmp_path / "copy")
    monkeypatch.chdir(run)
    with pytest.raises(ChangedError, match="another directory"):
        plan.apply()
    monkeypatch.undo()
    ckpttool.plan_edit(run, run / "model.ckpt-1000", drop="hidden/*", overwrite=True).apply()
    with pytest.raises(ChangedError) as caught:
        plan.apply()
    assert caught.value.id == "plan-stale"
    assert not (tmp_path / "copy.index").exists()


@pytest.mark.parametrize(
    ("function", "destination", "wrong"),
    [
        (ckpttool.plan_repartition, "x", {"by": "sise"}),
        (ckpttool.plan_repartition, "x", {"shards": 0}),
        (ckpttool.plan_repartition, "x", {"shards": 10**9}),
        (ckpttool.plan_merge, "x", {"on_conflict": "any"}),
        (ckpttool.plan_edit, "x", {}),
        (ckpttool.plan_edit, "x", {"cast": "int8"}),
        (ckpttool.plan_average, "x", {}),
        (ckpttool.convert, "x.npz", {"kind": "modle"}),
        (ckpttool.convert, "x.npz", {"kind": ["model", "x"]}),
        (ckpttool.convert, "x.npz", {"check": "yes"}),
        (ckpttool.convert, "x.npz", {"dtypes": "drop"}),
        (ckpttool.convert, "x.npz", {"names": "short"}),
        (ckpttool.convert, "x.tflite", {"quantize": "int4"}),
        (ckpttool.convert, "x.tflite", {"io_dtype": "float32"}),
        (ckpttool.convert, "x.nothing", {}),
    ],
)
def test_words_that_are_none_are_refused(
    function: Callable[..., object],
    destination: str,
    wrong: dict[str, Any],
    fixtures_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError):
        function(fixtures_dir / "mlp-v1", destination, **wrong)
    assert list(tmp_path.iterdir()) == []


def test_a_keyword_that_is_none_is_a_type_error(fixtures_dir: Path) -> None:
    call: Callable[..., object] = ckpttool.plan_copy
    with pytest.raises(TypeError, match="overwite"):
        call(fixtures_dir / "mlp-v1", "x", overwite=True)


def test_constants_are_given_as_a_mapping_or_as_words(fixtures_dir: Path, tmp_path: Path) -> None:
    source, to = fixtures_dir / "mlp-v1", tmp_path / "out"
    plans = [
        ckpttool.convert(source, to, to="savedmodel", freeze_input=given, dry_run=True)
        for given in ({"is_training": False}, "is_training=False", ["is_training=False"])
    ]
    assert plans[0] == plans[1] == plans[2]
    assert (plans[0].applied, plans[0].target) == (False, "savedmodel")
    assert not to.exists()


def test_convert_gives_a_proven_result(fixtures_dir: Path, tmp_path: Path) -> None:
    result = ckpttool.convert(
        fixtures_dir / "keras3", tmp_path / "w.safetensors", kind="model", exclude="*/bias"
    )
    assert (result.applied, result.check.state, result.check.how) == (True, "passed", "bytes")
    with ckpttool.open(tmp_path / "w.safetensors") as file:
        assert len(file) == 6
        assert not [name for name in file if name.endswith("bias")]


@pytest.mark.parametrize("module", ["convert_api", "write", "writing"])
def test_the_examples_of_the_docstrings(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fixtures").symlink_to(ROOT / "fixtures")
    monkeypatch.chdir(tmp_path)
    results = doctest.testmod(import_module(f"ckpttool.ops.{module}"))
    assert results.attempted >= 3
    assert results.failed == 0


def test_a_plan_keeps_what_it_was_made_with(tmp_path: Path) -> None:
    """The caller's list may change before it is carried out."""
    for number in (1, 2):
        ckpttool.write_checkpoint(tmp_path / f"m-{number}", {"w": np.array([number], np.float32)})
    weights = [0.5, 0.5]
    sources = [tmp_path / "m-1", tmp_path / "m-2"]
    plan = ckpttool.plan_average(sources, tmp_path / "mean", weights=weights)
    weights[:] = [0.0, 1.0]
    plan.apply()
    with ckpttool.open(tmp_path / "mean") as checkpoint:
        assert checkpoint.read("w").tolist() == [1.5]
