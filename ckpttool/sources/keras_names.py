"""What the datasets of a Keras file are called, and what each is for.

Up to Keras 2, and in the ``.h5`` of Keras 3, a dataset's path spells the variable's name:
``model_weights/dense/dense/kernel:0``. A ``.weights.h5`` numbers them:
``layers/dense_1/vars/0``, where ``dense_1`` counts the layers of a class. The layer's own
name is an attribute since Keras 3.3; before, an archive's configuration has it. What number
0 of a layer is follows from the class where that is one of Keras' own and the shapes fit.
Pure: knows paths, not files.

Where the paths come from: keras/src/legacy/saving/legacy_h5_format.py and
keras/src/saving/saving_lib.py; names of optimizers' variables from keras/src/optimizers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from ckpttool.model import Kind
from ckpttool.sources.kinds import Label, kind_of_name

__all__ = ["KerasStyle", "Stored", "labels", "style_of"]

#: A whole model or its weights by name; weights by number; any other HDF5 file.
KerasStyle = Literal["model", "weights", "numbered", "plain"]

_MODEL, _OPTIMIZER = "model_weights/", "optimizer_weights/"
#: The group of what belongs to no layer.
_TOP = "top_level_model_weights/"
_NUMBERED = re.compile(r"(?:.*/)?vars/[0-9]+")
_NUMBER = re.compile(r"[0-9]{1,9}")
#: Last components that count the steps of an optimizer.
_STEPS = frozenset({"iter", "iteration", "iterations"})

#: Class of a layer, as its counted name spells it → the names of its variables, by how many
#: there are.
_CONVOLUTION: dict[int, tuple[str, ...]] = {2: ("kernel", "bias"), 1: ("kernel",)}
_SEPARABLE: dict[int, tuple[str, ...]] = {3: ("depthwise_kernel", "pointwise_kernel", "bias")}
_RECURRENT: dict[int, tuple[str, ...]] = {
    3: ("kernel", "recurrent_kernel", "bias"),
    2: ("kernel", "recurrent_kernel"),
}
_VARIABLES: dict[str, dict[int, tuple[str, ...]]] = {
    "dense": {2: ("kernel", "bias"), 1: ("kernel",)},
    **{f"conv{rank}d": _CONVOLUTION for rank in "123"},
    **{f"conv{rank}d_transpose": _CONVOLUTION for rank in "123"},
    **{f"separable_conv{rank}d": _SEPARABLE for rank in "12"},
    "embedding": {1: ("embeddings",)},
    "batch_normalization": {4: ("gamma", "beta", "moving_mean", "moving_variance")},
    "layer_normalization": {2: ("gamma", "beta")},
    "group_normalization": {2: ("gamma", "beta")},
    "p_re_lu": {1: ("alpha",)},
    **{f"{cell}_cell": _RECURRENT for cell in ("gru", "lstm", "simple_rnn")},
}
#: The least rank of a variable with this name, and whether it is the only one.
_RANKS = {"kernel": 2, "depthwise_kernel": 3, "pointwise_kernel": 3, "recurrent_kernel": 2}
_ROWS = {"embeddings": 2}
_VECTORS = frozenset({"gamma", "beta", "moving_mean", "moving_variance"})
_COUNTED = re.compile(r"(.+?)(?:_[0-9]+)?")
_CELLS = {"gru": "gru_cell", "lstm": "lstm_cell", "simple_rnn": "simple_rnn_cell"}


class Stored(NamedTuple):
    """A dataset as far as its name depends on it."""

    path: str
    shape: tuple[int, ...] | None
    dtype: str


def style_of(paths: Sequence[str], groups: Sequence[str], *, layer_names: bool) -> KerasStyle:
    """How a file spells names.

    Args:
        paths: of its datasets.
        groups: paths of its groups.
        layer_names: whether its root has an attribute of that name.
    """
    if "model_weights" in groups:
        return "model"
    if layer_names:
        return "weights"
    if any(map(_NUMBERED.fullmatch, paths)) or "vars" in groups:
        return "numbered"
    return "plain"


def labels(
    datasets: Sequence[Stored], style: KerasStyle, layers: Mapping[str, str]
) -> dict[str, Label]:
    """The readable name and the kind of each dataset, by its path; names are all different.

    Args:
        datasets: all of the file.
        style: as `style_of` says.
        layers: of a numbered file, the name that a layer has by itself, by its group's path.
    """
    if style == "plain":
        return {path: (path, kind_of_name(path)) for path, _, _ in datasets}
    if style == "numbered":
        found = _numbered(datasets, layers)
    else:
        found = {path: _by_path(path) for path, _, _ in datasets}
    times = Counter(name for name, _ in found.values())
    taken = set(found)
    return {
        path: (name if times[name] == 1 and (name == path or name not in taken) else path, kind)
        for path, (name, kind) in found.items()
    }


def _by_path(path: str) -> Label:
    """The label of a dataset whose path ends in the variable's own name."""
    if path.startswith(_OPTIMIZER):
        name = _plain(path.removeprefix(_OPTIMIZER))
        return name, _optimizer_kind(name)
    layer, _, name = path.removeprefix(_MODEL).partition("/")
    name = _plain(name or layer)
    return name, "other" if "seed_generator" in name else kind_of_name(name)


def _plain(name: str) -> str:
    """A name without the number of an operation's output."""
    return name.removesuffix(":0")


def _optimizer_kind(name: str) -> Kind:
    """What a variable of an optimizer is for; averages of weights carry ``average``."""
    components = name.split("/")
    if components[-1] in _STEPS:
        return "step"
    averaged = "average" in components or components[-1].endswith("_average")
    return "ema" if averaged else "optimizer"


def _numbered(datasets: Sequence[Stored], layers: Mapping[str, str]) -> dict[str, Label]:
    owned: dict[str, list[Stored]] = {}
    found: dict[str, Label] = {}
    for stored in datasets:
        owner, _, number = stored.path.rpartition("/")
        if owner.rpartition("/")[2] == "vars" and _NUMBER.fullmatch(number):
            owned.setdefault(owner.removesuffix("vars").removesuffix("/"), []).append(stored)
        else:
            found[stored.path] = (stored.path, _group_kind(stored.path))
    for owner, variables in owned.items():
        variables.sort(key=lambda stored: int(stored.path.rpartition("/")[2]))
        prefix = _readable(owner, layers)
        names = _variable_names(owner, variables)
        for stored, name in zip(variables, names, strict=True):
            label = f"{prefix}/{name}" if prefix else name
            kind = _group_kind(stored.path)
            if kind == "optimizer" and name == "iteration":
                kind = "step"
            found[stored.path] = (label, kind)
    return found


def _group_kind(path: str) -> Kind:
    """What is kept under a path of a numbered file."""
    components = path.split("/")
    if components[0] == "optimizer":
        return "optimizer"
    if components[0] in {"metrics", "_metrics", "_compile_metrics", "_loss_tracker"}:
        return "other"
    return "other" if any(name.startswith("seed_generator") for name in components) else "model"


def _readable(owner: str, layers: Mapping[str, str]) -> str:
    """A layer's path with the layers' own names, and without what only groups them."""
    names: list[str] = []
    path = ""
    for component in owner.split("/") if owner else ():
        path = f"{path}/{component}" if path else component
        if component not in {"layers", "_layer_checkpoint_dependencies"}:
            names.append(component if component == "optimizer" else layers.get(path) or component)
    return "/".join(names)


def _variable_names(owner: str, variables: Sequence[Stored]) -> list[str]:
    """The names of a layer's variables, or their numbers where its class does not say them."""
    numbers = [stored.path.rpartition("/")[2] for stored in variables]
    components = owner.split("/")
    if components[0] == "optimizer":
        first = variables[0]
        counts = numbers[0] == "0" and first.shape == () and first.dtype in {"int64", "int32"}
        return ["iteration", *numbers[1:]] if counts else numbers
    matched = _COUNTED.fullmatch(components[-1])
    layer = matched[1] if matched else ""
    if layer == "cell" and len(components) > 1:
        above = _COUNTED.fullmatch(components[-2])
        layer = _CELLS.get(above[1] if above else "", "")
    names = _VARIABLES.get(layer, {}).get(len(variables))
    if names is None or numbers != [str(number) for number in range(len(variables))]:
        return numbers
    fit = all(_fits(name, stored.shape) for name, stored in zip(names, variables, strict=True))
    return list(names) if fit else numbers


def _fits(name: str, shape: tuple[int, ...] | None) -> bool:
    """Whether a variable of this name can have this shape."""
    rank = -1 if shape is None else len(shape)
    if name in _VECTORS:
        return rank >= 1
    return rank >= (_RANKS | _ROWS).get(name, 1)
