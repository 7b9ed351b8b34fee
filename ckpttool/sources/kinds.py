"""The kind of a variable from its name alone, for name-based checkpoints.

A name says what a variable is for by its last component (``w/Adam_1``: the slot of a
TF 1.x optimizer) or by its first (``training/Adagrad/w/accumulator``: a Keras optimizer
under an Estimator). It is asked once a variable, a million times a listing, so the usual
answer is one dictionary look-up; patterns are only tried on names that can match.

Where the names come from: the slot creators of ``tensorflow/python/training/*.py``
(``<variable>/<optimizer's name>``), ``moving_averages.py``, Keras' ``optimizer_v2``
(``<optimizer>/<variable>/<slot>``), and BERT's, ALBERT's and Mesh TensorFlow's own
optimizers (``adam_m``, ``lamb_v``, ``_slot_vr``).
"""

from __future__ import annotations

from typing import Literal

from ckpttool.model import Kind

__all__ = ["SCOPE_OPENINGS", "Label", "kind_of_ending", "kind_of_name", "label_of_name"]

#: A variable's readable name and its kind.
Label = tuple[str, Kind]

#: Names of TF 1.x optimizers, as their slots carry them.
_SLOT_NAMES = (
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "AdagradDA",
    "Adam",
    "AdaMax",
    "AdamW",
    "AddSign",
    "CenteredRMSProp",
    "Ftrl",
    "LAMBOptimizer",
    "LARSOptimizer",
    "LazyAdam",
    "Momentum",
    "MomentumW",
    "Nadam",
    "PowerSign",
    "ProximalAdagrad",
    "RMSProp",
    "SM3",
    "Yogi",
)

#: Last components that are an optimizer's wherever they stand.
_OPTIMIZER_NAMES = (
    "accum_grad",
    "accum_var",
    "adam_m",
    "adam_v",
    "beta1_power",
    "beta2_power",
    "current_loss_scale",
    "good_steps",
    "lamb_m",
    "lamb_v",
)

#: Names of Keras optimizers, as the scope of their variables carries them.
_SCOPES = (
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "AdamWeightDecay",
    "Adamax",
    "Ftrl",
    "LAMB",
    "Lion",
    "Nadam",
    "RMSprop",
    "SGD",
)

#: TensorFlow makes a name that is taken unique with _1, _2… (two slots of one optimizer,
#: several optimizers of one program).
_COPIES = ("", *(f"_{number}" for number in range(1, 33)))

#: Names that say something only where they are the whole name.
_BY_WHOLE: dict[str, Kind] = {
    "_CHECKPOINTABLE_OBJECT_GRAPH": "object_graph",
    "epoch": "step",
    "iteration": "step",
    "learning_rate": "optimizer",
    "loss_scale": "optimizer",
    "lr": "optimizer",
    "step": "step",
    "train_step": "step",
}

_BY_LAST: dict[str, Kind | Literal["ask"]] = {
    **{name + copy: "optimizer" for name in _SLOT_NAMES for copy in _COPIES},
    **{name + copy: "optimizer" for name in _OPTIMIZER_NAMES for copy in _COPIES},
    **{"ExponentialMovingAverage" + copy: "ema" for copy in _COPIES},
    "ema": "ema",
    "global_step": "step",
    "iterations": "step",
    "save_counter": "step",
    "seed_generator_state": "other",
    **dict.fromkeys(_BY_WHOLE, "ask"),
}

_SCOPE_NAMES = frozenset(scope + copy for scope in _SCOPES for copy in _COPIES)
_TRAINING = frozenset("training" + copy for copy in _COPIES)
#: The first letters of ``SCOPE/``: enough to rule out nearly every other name.
SCOPE_OPENINGS = frozenset((name + "/")[:4] for name in _SCOPE_NAMES | _TRAINING)

#: Mesh TensorFlow joins a slot's name to its variable's with an underscore.
_MESH_SLOTS = ("_slot_k", "_slot_m", "_slot_r", "_slot_v", "_slot_vc", "_slot_vr")


def kind_of_name(name: str) -> Kind:
    """What a variable of a name-based checkpoint is for, by its name; ``model`` in doubt.

    A batch normalisation's moving mean and variance belong to the model.
    """
    last = name[name.rfind("/") + 1 :]
    kind = _BY_LAST.get(last)
    if kind is not None and kind != "ask":
        return kind
    if name[:4] in SCOPE_OPENINGS and _in_optimizer_scope(name):
        return "step" if last == "iter" else "optimizer"
    if kind is not None:
        return _BY_WHOLE.get(name, "model")
    if "_slot_" in last and last.endswith(_MESH_SLOTS):
        return "optimizer"
    return "model"


def label_of_name(key: str) -> Label:
    """The label of a key of a name-based checkpoint: the key itself, and its kind."""
    return key, kind_of_name(key)


def kind_of_ending(ending: str) -> Kind:
    """The kind of every name that ends so and begins with none of ``SCOPE_OPENINGS``.

    The ending is what stands behind the last slash, with it; or a name that has no slash.
    """
    return kind_of_name(f"_{ending}" if ending.startswith("/") else ending)


def _in_optimizer_scope(name: str) -> bool:
    """Whether a name begins with ``Adam/`` or ``training/Adam/``."""
    first, *rest = name.split("/", 2)
    if first in _SCOPE_NAMES:
        return bool(rest)
    return first in _TRAINING and len(rest) == 2 and rest[0] in _SCOPE_NAMES
