"""Partitioned variables: do their parts lie inside them, apart, and cover them.

Compares the entry of a variable with the entries of its parts; opens no data file.
"""

from __future__ import annotations

from ckpttool.errors import CkpttoolError, CorruptError
from ckpttool.formats.bundle import Entry, SliceSpec
from ckpttool.formats.dtypes import dtype_name
from ckpttool.formats.ordered_code import FULL, decode_slice_key
from ckpttool.model import numel, shape_text
from ckpttool.ops.verification.contents import Contents, Part, name_of
from ckpttool.ops.verification.report import Report
from ckpttool.sources.assemble import Box, check_boxes

__all__ = ["check_parts"]


def check_parts(contents: Contents, report: Report) -> set[bytes]:
    """Check every partitioned variable; names the owner in each of its `Part`s.

    Returns:
        The keys of those that are not completely stored.
    """
    incomplete = set()
    for owner in contents.owners:
        if not _check_owner(owner, contents, report):
            incomplete.add(owner.key)
    if contents.whole:  # else the owner may be in the block that is lost
        for key, part in contents.parts.items():
            if part.owner is None:
                _check_orphan(key, report)
    return incomplete


def _check_owner(owner: Entry, contents: Contents, report: Report) -> bool:
    name = name_of(owner.key)
    shape = owner.shape
    if shape is None:
        report.add("shape-unknown", "error", name, "it is partitioned and its shape is unknown")
        return False
    complete = True
    boxes = []
    missing: list[Box] = []
    for spec in owner.slices:
        extent = spec.extent(shape)
        if extent is None:
            report.add(
                "slice-shape",
                "error",
                name,
                f"its part {_spelled(spec)} does not fit its shape {shape_text(shape)}",
            )
            complete = False
            continue
        box = Box(spec.start, extent)
        boxes.append(box)
        if all(length == FULL for length in spec.length):
            report.add("slice-whole", "error", name, _whole(box))
        part = contents.parts.get(spec.key(owner.key))
        if part is None:
            missing.append(box)
            continue
        part.owner = owner.key
        _compare(name, owner, box, part, report)
    if missing:
        complete = False
        if contents.whole:  # else the entries are in the block that is lost
            more = f" and {len(missing) - 1} more of its parts" if len(missing) > 1 else ""
            message = f"the index has no entry for its part {missing[0]}{more}"
            report.add("slice-missing", "error", name, message)
    try:
        check_boxes(name, shape, boxes)
    except CkpttoolError as error:
        if isinstance(error, CorruptError):
            report.add(error.id, "error", name, str(error))
            return False
        report.skip(name, error.why, 1)
        return complete
    covered, wanted = sum(numel(box.extent) for box in boxes), numel(shape)
    if covered != wanted and len(boxes) == len(owner.slices):
        report.add(
            "slice-gap",
            "error",
            name,
            f"its {len(boxes)} parts hold {covered} of its {wanted} elements",
        )
        return False
    return complete


def _whole(box: Box) -> str:
    # tensorflow/core/util/tensor_bundle/tensor_bundle.cc: GetSliceValue looks up the entry
    # of a slice unless every length of it is left out; AddSlice never writes such a one.
    return (
        f"its slice {box} is spelled as all of it: TensorFlow then looks for the values in the "
        "variable's own entry, and does not restore what the slice's entry holds"
    )


def _compare(name: str, owner: Entry, box: Box, part: Part, report: Report) -> None:
    if (part.dtype, part.shape) != (owner.dtype, box.extent):
        shape = "of unknown shape" if part.shape is None else shape_text(part.shape)
        report.add(
            "slice-mismatch",
            "error",
            name,
            f"its part {box} should be {dtype_name(owner.dtype)} {shape_text(box.extent)}, "
            f"and the part's entry is {dtype_name(part.dtype)} {shape}",
        )


def _check_orphan(key: bytes, report: Report) -> None:
    try:
        decode_slice_key(key)
    except CorruptError:
        return  # a variable whose name happens to begin with NUL
    report.add(
        "slice-orphan", "warning", name_of(key), "an entry holds this part, and no variable has it"
    )


def _spelled(spec: SliceSpec) -> str:
    sides = zip(spec.start, spec.length, strict=True)
    return "[" + ", ".join(f"{start}+{'all' if n < 0 else n}" for start, n in sides) + "]"
