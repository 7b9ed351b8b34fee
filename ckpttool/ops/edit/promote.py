"""``--promote-ema``: the moving average becomes the variable, and the averages go."""

from __future__ import annotations

from ckpttool.errors import RefusedError
from ckpttool.formats.dtypes import dtype_name
from ckpttool.model import shape_text
from ckpttool.ops.edit.contents import Contents, Item
from ckpttool.ops.rewrite.run import Change

__all__ = ["promote_averages"]

#: Last components of the names of averages in name-based checkpoints.
_AVERAGE = ("ExponentialMovingAverage", "ema")


def promote_averages(contents: Contents) -> list[Change]:
    """Give every variable that has an average the values of it.

    An average whose variable is not there becomes it, in a name-based checkpoint.

    Raises:
        RefusedError: id ``no-averages``; id ``average-misfit``: a variable has two, or
            one of another shape or dtype, or it is not known whose an average is.
    """
    averages = [item for item in contents.items.values() if item.kind == "ema"]
    if not averages:
        raise RefusedError(
            f"{contents.location} holds no moving averages",
            why=f"none of its {len(contents.items)} variables is one",
            hint="leave out --promote-ema; ckpttool list --kind ema shows what counts as one",
            id="no-averages",
        )
    changes = []
    promoted: dict[str, Item] = {}
    for average in averages:
        if average.follows is None:
            changes.append(_alone(contents, average))
            continue
        other = promoted.setdefault(average.follows, average)
        variable = contents.items[average.follows]
        if other is not average:
            raise _misfit(average, f"{variable.name} has two: {other.name} is another")
        if (variable.dtype, variable.shape) != (average.dtype, average.shape):
            raise _misfit(
                average,
                f"it is {_what(average)}, and {variable.name} is {_what(variable)}",
            )
        variable.tensors, variable.owner = average.tensors, average.owner
        contents.remove(average.origin)
        changes.append(Change(variable.name, "takes its average", "--promote-ema"))
        changes.append(Change(average.name, "dropped", f"is {variable.name} now"))
    return changes


def _alone(contents: Contents, average: Item) -> Change:
    """An average without its variable, as in a checkpoint of averages only."""
    name, _, last = average.key.rpartition("/")
    if contents.graph is not None or not name or not last.startswith(_AVERAGE):
        raise _misfit(average, "nothing says which variable it is the average of")
    average.key = name
    average.kind = "model"
    return Change(average.name, f"is {name} now", "--promote-ema; there is no other of this name")


def _what(item: Item) -> str:
    shape = "of unknown shape" if item.shape is None else shape_text(item.shape)
    return f"{dtype_name(item.dtype)} {shape}"


def _misfit(average: Item, why: str) -> RefusedError:
    return RefusedError(
        f"the average {average.name} cannot take a variable's place",
        why=why,
        hint="take it out first with --drop",
        id="average-misfit",
    )
