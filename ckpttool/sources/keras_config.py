"""What the JSON of a Keras model says: its class, its layers, and code that it carries.

Read as data and never made into objects: Keras' own loader runs what a Lambda layer
carries. Pure; the files that hold the JSON are the affair of the adapters.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any, NamedTuple, NoReturn

from ckpttool.errors import CorruptError
from ckpttool.formats.json_text import holds_half_characters
from ckpttool.model import Finding

__all__ = ["ModelSummary", "groups_of_layers", "lambda_findings", "parse_object", "summary_of"]

#: Keras' names for a layer, and for a function, that is Python byte code.
_LAMBDA = frozenset({"Lambda", "__lambda__"})
#: Where the name of a class is parted: before a word, and before a capital.
_WORD, _CAPITAL = re.compile(r"(.)([A-Z][a-z]+)"), re.compile(r"([a-z])([A-Z])")
#: Kinds of layers named in a summary.
_NAMED = 6


class ModelSummary(NamedTuple):
    """A model by its configuration.

    Attributes:
        class_name: of the model: ``Sequential``, ``Functional``, a class of one's own.
        layers: the class and the name of each layer, those of inner models too.
        code: names of the layers that carry Python code.
    """

    class_name: str
    layers: tuple[tuple[str, str], ...]
    code: tuple[str, ...]

    def __str__(self) -> str:
        counts = Counter(class_name for class_name, _ in self.layers)
        named = [f"{number} {name}" for name, number in counts.most_common(_NAMED)]
        if len(counts) > _NAMED:
            named.append("…")
        layers = "1 layer" if len(self.layers) == 1 else f"{len(self.layers)} layers"
        return f"{self.class_name} model of {layers}" + (f" ({', '.join(named)})" if named else "")


def parse_object(data: str | bytes, what: str) -> dict[str, Any]:
    """A JSON object.

    Raises:
        CorruptError: id ``keras-config``: it is none, nests too deeply, or has half a
            character in it (a lone surrogate).
    """
    try:
        text = data if isinstance(data, str) else data.decode(json.detect_encoding(data))
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        _unreadable(what, str(error) or type(error).__name__)
    if holds_half_characters(text, found):
        _unreadable(what, "a text of it has half a character, which is no UTF-8")
    if not isinstance(found, dict):
        _unreadable(what, "it is no JSON object")
    return found


def summary_of(config: dict[str, Any]) -> ModelSummary:
    """The summary of a model's configuration: ``{"class_name": …, "config": {…}}``."""
    layers: list[tuple[str, str]] = []
    code: list[str] = []
    # Each value with the name of the layer that it is part of; a stack, for depth costs
    # nothing then, in the order of the file.
    waiting: list[tuple[Any, str, bool]] = [(config, _name(config), False)]
    while waiting:
        value, owner, is_layer = waiting.pop()
        if isinstance(value, list):
            waiting.extend((item, owner, is_layer) for item in reversed(value))
        elif isinstance(value, dict):
            class_name = value.get("class_name")
            if is_layer and isinstance(class_name, str):
                owner = _name(value) or owner
                layers.append((class_name, owner))
            if isinstance(class_name, str) and class_name in _LAMBDA:
                code.append(owner)
            # The configuration of Keras 1's Sequential is the list of its layers.
            waiting.extend(
                (inner, owner, key == "layers" or (key == "config" and isinstance(inner, list)))
                for key, inner in reversed(value.items())
            )
    class_name = config.get("class_name")
    return ModelSummary(
        class_name if isinstance(class_name, str) else "unknown",
        tuple(layers),
        tuple(dict.fromkeys(code)),
    )


def groups_of_layers(config: dict[str, Any]) -> dict[str, str]:
    """The group that a ``.weights.h5`` has for each layer → the name of the layer.

    Groups count the layers of a class in the order of the model: ``layers/dense_1``; those of
    a model inside it lie below its own (keras/src/saving/saving_lib.py:
    _save_container_state). Files say the names themselves since Keras 3.3.
    """
    found: dict[str, str] = {}
    waiting: list[tuple[str, Any]] = [("", config)]
    while waiting:
        above, model = waiting.pop()
        inner = model.get("config")
        layers = inner.get("layers") if isinstance(inner, dict) else None
        counts: Counter[str] = Counter()
        for layer in layers if isinstance(layers, list) else ():
            if not isinstance(layer, dict) or not isinstance(layer.get("class_name"), str):
                continue
            stem = _snake_case(layer["class_name"].rpartition(">")[2])
            group = f"{above}layers/{stem}" + (f"_{counts[stem]}" if counts[stem] else "")
            counts[stem] += 1
            found[group] = _name(layer)
            waiting.append((f"{group}/", layer))
    return found


def _snake_case(class_name: str) -> str:
    """``BatchNormalization`` → ``batch_normalization``, and ``PReLU`` → ``p_re_lu``."""
    return _CAPITAL.sub(r"\1_\2", _WORD.sub(r"\1_\2", class_name)).lower()


def lambda_findings(summary: ModelSummary, where: str) -> list[Finding]:
    """What to say of a model that carries code; nothing where it carries none."""
    if not summary.code:
        return []
    names = ", ".join(summary.code[:5]) + (", …" if len(summary.code) > 5 else "")
    return [
        Finding(
            "keras-lambda",
            "warning",
            where,
            f"{names}: carries Python code, which loading the model with Keras would run; "
            "its weights are read without",
        )
    ]


def _name(value: dict[str, Any]) -> str:
    """The name that the configuration of a layer or model gives it."""
    config = value.get("config")
    for holder in (config, value):
        if isinstance(holder, dict) and isinstance(holder.get("name"), str):
            return str(holder["name"])
    return ""


def _unreadable(what: str, why: str) -> NoReturn:
    raise CorruptError(
        f"{what} cannot be read",
        why=why,
        hint="its weights can be read all the same",
        id="keras-config",
    )
