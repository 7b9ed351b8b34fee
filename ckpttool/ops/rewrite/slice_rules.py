"""``--slice GLOB=axis0:8`` and its like: how a person says which variables are cut, and how.

emb*=axis0:8                8 even slices along axis 0
emb*=axis0:100,200,50       slices of exactly these many rows
emb*=axis1:max=8,min=256K   as min_max_variable_partitioner: at most 8, none under 256 KiB
emb*=axis0:size=64M,max=4   as variable_axis_size_partitioner: none over 64 MiB, at most 4
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fnmatch import translate

from ckpttool.errors import UsageError
from ckpttool.limits import parse_size
from ckpttool.ops.rewrite.slicing import Cut, one_part
from ckpttool.policy.partition import Partitioner, fixed, max_size, min_max, ranges

__all__ = ["any_of", "glob", "merge_rule", "parse_placement", "parse_slice"]

_SLICE = re.compile(r"(.+)=(?:axis)?([0-9]{1,3}):(.+)", re.DOTALL)
_NUMBER = re.compile(r"[0-9]{1,18}")
#: What TensorFlow's min_max_variable_partitioner takes where nothing is said.
_MIN_SLICE = "256K"


def glob(pattern: str) -> Callable[[str], bool]:
    """Whether a name matches; ``*`` also crosses '/', and a literal name matches itself."""
    expression = re.compile(translate(pattern))
    return lambda name: name == pattern or expression.match(name) is not None


def any_of(patterns: Sequence[str]) -> Callable[[str], bool]:
    """Whether a name matches one of several patterns."""
    matchers = [glob(pattern) for pattern in patterns]
    return lambda name: any(matches(name) for matches in matchers)


def merge_rule(pattern: str) -> Cut:
    """One ``--merge-slices``."""
    matches = glob(pattern)
    return Cut(lambda variable: matches(variable.name), one_part, f"--merge-slices {pattern}")


def parse_slice(text: str) -> Cut:
    """One ``--slice``.

    Raises:
        UsageError: it cannot be understood.
    """
    match = _SLICE.fullmatch(text)
    if match is None:
        raise _broken(text, "it is not GLOB=axisN:HOW")
    axis, matches = int(match[2]), glob(match[1])
    try:
        partitioner = _partitioner(match[3], axis)
    except ValueError as error:
        raise _broken(text, str(error)) from None
    return Cut(
        lambda variable: axis < len(variable.shape) and matches(variable.name),
        partitioner,
        f"--slice {text}",
    )


def parse_placement(text: str) -> tuple[str, int]:
    """One ``GLOB=K`` of ``--rule``: the pattern and the shard.

    Raises:
        UsageError: it is not of that form.
    """
    pattern, found, shard = text.rpartition("=")
    if not found or not pattern or not _NUMBER.fullmatch(shard.strip()):
        raise UsageError(
            f"the placement rule {text!r} cannot be understood",
            why="it is not GLOB=K, with K the number of a shard",
            hint="for example --rule 'emb*=1' --rule '*=0'",
        )
    return pattern.strip(), int(shard)


def _partitioner(how: str, axis: int) -> Partitioner:
    parts = [part.strip() for part in how.split(",")]
    if all(_NUMBER.fullmatch(part) for part in parts):
        numbers = list(map(int, parts))
        return fixed(numbers[0], axis) if len(numbers) == 1 else ranges(numbers, axis)
    settings = dict(part.partition("=")[::2] for part in parts)
    if len(settings) == len(parts):
        if settings.keys() <= {"max", "min"} and "max" in settings:
            least = parse_size(settings.get("min", _MIN_SLICE))
            return min_max(_whole(settings["max"]), axis, least)
        if settings.keys() <= {"size", "max"} and "size" in settings:
            most = _whole(settings["max"]) if "max" in settings else None
            return max_size(parse_size(settings["size"]), axis, most)
    raise ValueError(f"{how!r} is no number of slices, no list of lengths, no max= and no size=")


def _whole(text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{text!r} is no number")
    return int(text)


def _broken(text: str, why: str) -> UsageError:
    return UsageError(
        f"--slice {text} cannot be understood",
        why=why,
        hint="for example --slice 'emb*=axis0:8' or 'emb*=axis0:max=8,min=256K'",
    )
