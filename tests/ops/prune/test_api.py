"""``ckpttool.plan_prune`` as Python calls it."""

from __future__ import annotations

import inspect
import time
from pathlib import Path

import pytest

import ckpttool
from ckpttool.ops.prune.api import make_request
from ckpttool.ops.prune.api import plan_prune as planned
from tests.support.runs import make_run, prefixes


def test_plan_and_apply(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", {f"ckpt-{n}": 9 - n for n in (1, 2, 3)}, now=time.time())
    plan = ckpttool.plan_prune(str(run), max_to_keep=1)
    assert [decision.checkpoint.prefix for decision in plan.delete] == ["ckpt-1", "ckpt-2"]
    assert prefixes(run) == {"ckpt-1", "ckpt-2", "ckpt-3"}
    result = plan.apply(trash=True)
    assert result.carried.removed.prefixes == ["ckpt-1", "ckpt-2"]
    assert prefixes(run) == {"ckpt-3"}


def test_no_policy_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ckpttool.UsageError) as caught:
        ckpttool.plan_prune(str(tmp_path))
    assert caught.value.id == "no-policy"


def test_both_forms_have_the_same_settings() -> None:
    call = set(inspect.signature(planned).parameters) - {"directory", "limits"}
    assert call == set(inspect.signature(make_request).parameters) - {"state_name"}
