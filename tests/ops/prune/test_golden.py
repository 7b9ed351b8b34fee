"""Plans over real run directories, as a person would read them, against golden files.

`UPDATE_GOLDEN=1 pytest tests/ops/prune/test_golden.py` rewrites the files; read the diff.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from ckpttool.ops.prune.facts import Request
from ckpttool.ops.prune.plan import PrunePlan, plan_prune
from ckpttool.policy.facts import Retention

GOLDEN = Path(__file__).parent / "golden"
NOW = 1_800_000_000.0
#: A day before, and all the same, as after a copy.
COPIED = NOW - 86_400

CASES = {
    "widedeep-manager": ("v2-widedeep-5steps", Retention(max_to_keep=2)),
    "widedeep-saver": ("v2-widedeep-5steps", Retention(style="saver", max_to_keep=2)),
    "trained-weights-listed": (
        "obj-trained-weights-1to10/saved_models",
        Retention(max_to_keep=3),
    ),
    "trained-weights-all": (
        "obj-trained-weights-1to10/saved_models",
        Retention(scope="all", max_to_keep=3),
    ),
    "manager-timestamps": (
        "obj-manager-timestamps/ckpt_nstep",
        Retention(max_to_keep=2, every_n_hours=0.46),
    ),
    "manager-within": ("obj-manager-timestamps/ckpt_nstep", Retention(within=90.0)),
    "tdgammon-all": ("mixed-v1-v2-tdgammon", Retention(scope="all", max_to_keep=1)),
    "a2c-listed": ("obj-a2c-2shard-unlisted", Retention(max_to_keep=1)),
    "a2c-all": ("obj-a2c-2shard-unlisted", Retention(scope="all", max_to_keep=1)),
}


def told(plan: PrunePlan) -> str:
    lines = [f"order: {plan.outcome.order}"]
    for decision in plan.outcome.decisions:
        why = "; ".join(f"[{reason.rule}] {reason.text}" for reason in decision.reasons)
        unless = f" (stays with {decision.unless})" if decision.unless else ""
        lines.append(f"{decision.verdict:<7}{decision.checkpoint.prefix}: {why}{unless}")
    lines += [f"left   {path}: {why}" for path, why in plan.left_alone]
    lines += [f"files  {' '.join(f.name for f in removal.files)}" for removal in plan.removals]
    if plan.state is not None and plan.state.state is not None:
        lines.append(f"state  {' '.join(plan.state.state.all_model_checkpoint_paths)}")
    lines += [f"warning: {warning}" for warning in plan.warnings]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("name", CASES)
def test_the_plan_is_the_golden_one(corpus: Path, tmp_path: Path, name: str) -> None:
    source, retention = CASES[name]
    run = tmp_path / "run"
    run.mkdir()
    for path in (corpus / source).iterdir():
        shutil.copyfile(path, run / path.name)
        os.utime(run / path.name, (COPIED, COPIED))
    text = told(plan_prune(str(run), Request(retention), now=NOW))
    golden = GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.mkdir(exist_ok=True)
        golden.write_text(text)
    assert text == golden.read_text()
