"""What the tests of `edit` have in common: running it, and reading back with TensorFlow."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ckpttool.ops.edit.run import Edit, edit
from ckpttool.ops.rewrite.run import Options, RewriteResult

__all__ = ["changes_of", "run", "values"]


def run(
    source: str | os.PathLike[str],
    to: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    dry_run: bool = False,
    check: bool = True,
    **asked: Any,
) -> RewriteResult:
    """`edit`, with the result read back and verified."""
    options = Options(overwrite=overwrite, dry_run=dry_run, check=check, verify=not dry_run)
    return edit(os.fspath(source), os.fspath(to), Edit(**asked), options)


def values(prefix: str | Path) -> dict[str, Any]:
    """Every variable but the object graph, read by TensorFlow."""
    import tensorflow as tf

    reader = tf.train.load_checkpoint(str(prefix))
    return {
        name: reader.get_tensor(name)
        for name in reader.get_variable_to_shape_map()
        if name != "_CHECKPOINTABLE_OBJECT_GRAPH"
    }


def changes_of(result: RewriteResult) -> dict[str, str]:
    """The changes by variable; several of one joined."""
    found: dict[str, str] = {}
    for change in result.changes:
        said = found.get(change.variable)
        found[change.variable] = change.what if said is None else f"{said}; {change.what}"
    return found
