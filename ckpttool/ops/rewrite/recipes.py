"""What a data file is made of, so that a killed run's finished ones need not be made again.

A file's bytes follow from the files that are read, as they are, and the ranges of them that
are put one behind the other. Two runs for which all of this is the same write the same
bytes, whatever the command: so a finished file of the first is good for the second.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ckpttool.ops.rewrite.tensors import Bundle, Computed, Input, Joined, Stored, Tensor
from ckpttool.storage.fileset import Recipe

__all__ = ["recipe_of_copy", "recipes"]

#: A smaller data file is written anew: that takes no longer than to find out.
_LARGE = 2**22
#: As is one of many small entries, in which every one has to be looked at.
_MEAN_ENTRY = 2**10


def recipes(bundle: Bundle, prefix: str) -> dict[int, Recipe]:
    """The recipes of a bundle's data files, by number, of those that have one.

    None has the file that values are computed for, or that is made of a file that is no input
    of the bundle: nothing tells beforehand what its bytes will be.
    """
    if not bundle.inputs or bundle.nbytes < len(bundle.tensors) * _MEAN_ENTRY:
        return {}
    sizes = [0] * bundle.shards
    counts = [0] * bundle.shards
    for tensor in bundle.tensors:
        sizes[tensor.shard] += tensor.content.nbytes
        counts[tensor.shard] += 1
    large = {
        shard: array("q")
        for shard, nbytes in enumerate(sizes)
        if nbytes >= max(_LARGE, counts[shard] * _MEAN_ENTRY)
    }
    numbers = {one.path: number for number, one in enumerate(bundle.inputs)}
    for tensor in bundle.tensors if large else ():
        ranges = large.get(tensor.shard)
        if ranges is not None and not _describe(tensor, numbers, ranges):
            del large[tensor.shard]
    return {
        shard: _recipe(
            bundle.inputs, (prefix, str(shard), str(bundle.shards)), ranges, sizes[shard]
        )
        for shard, ranges in large.items()
    }


def recipe_of_copy(source: Input, name: str) -> Recipe | None:
    """The recipe of a file that becomes a copy of another; None where it is small."""
    if source.size < _LARGE:
        return None
    return _recipe((source,), (name,), array("q", (0, 0, source.size)), source.size)


def _describe(tensor: Tensor, numbers: Mapping[str, int], ranges: array[int]) -> bool:
    """Add the ranges that a content is made of; false where they are not known."""
    content = tensor.content
    if isinstance(content, Computed):
        if content.crc32c is None or content.nbytes > _LARGE:
            return False  # values are not known before they are made, long strings not held
        data = b"".join(content.chunks())
        ranges.extend((-1, len(data)))
        ranges.frombytes(data.ljust(-(-len(data) // 8) * 8, b"\0"))
        return True
    for piece in _stored(content):
        number = numbers.get(piece.files.path(piece.shard))
        if number is None:
            return False
        ranges.extend((number, piece.offset, piece.nbytes))
    return True


def _stored(content: Stored | Joined) -> Iterator[Stored]:
    if isinstance(content, Joined):
        yield from content.pieces
    else:
        yield content


def _recipe(
    inputs: Sequence[Input], words: Iterable[str], ranges: array[int], nbytes: int
) -> Recipe:
    # Imported here because it takes a tenth of what it takes to start.
    from hashlib import blake2b

    said = blake2b(repr((tuple(inputs), tuple(words))).encode("utf-8", "backslashreplace"))
    said.update(ranges.tobytes())
    return Recipe(said.hexdigest()[:32], nbytes)
