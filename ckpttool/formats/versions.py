"""``VersionDef``: who wrote a checkpoint, and which readers it asks for.

Both formats carry one (tensorflow/core/framework/versions.proto; versions.cc compares it),
and of both there has been one version only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ckpttool.errors import UnsupportedError
from ckpttool.formats.wire import fields, read_varint, signed32

__all__ = ["NO_VERSIONS", "Versions", "read_versions"]

#: The version that is read here (kTensorBundleVersion, TF_CHECKPOINT_VERSION).
_VERSION = 1


class Versions(NamedTuple):
    """The producer's version, and which consumers may read what it wrote."""

    producer: int
    min_consumer: int
    bad_consumers: tuple[int, ...]

    def require(self, path: str) -> None:
        """Check that this reader may read it.

        Raises:
            UnsupportedError: id ``bundle-version``.
        """
        if self.min_consumer <= _VERSION and _VERSION not in self.bad_consumers:
            return
        late = self.min_consumer > _VERSION
        wanted = f"{self.min_consumer} or later" if late else f"not {_VERSION}"
        raise UnsupportedError(
            f"{path} has a format version that is not supported",
            why=f"it asks for a reader of version {wanted}, and this one is {_VERSION}",
            hint="a newer ckpttool, or the TensorFlow that wrote it, can read it",
            id="bundle-version",
        )


NO_VERSIONS = Versions(0, 0, ())


def read_versions(data: bytes, start: int, end: int, before: Versions = NO_VERSIONS) -> Versions:
    """The message in ``data[start:end]``; what it leaves out is as ``before``.

    Raises:
        CorruptError: it is malformed.
    """
    producer, min_consumer, bad = before
    for number, _, value in fields(data, start, end):
        if not isinstance(value, int):
            if number == 3:
                bad = (*bad, *_packed(data, *value))
        elif number == 1:
            producer = signed32(value)
        elif number == 2:
            min_consumer = signed32(value)
        elif number == 3:
            bad = (*bad, signed32(value))
    return Versions(producer, min_consumer, bad)


def _packed(data: bytes, pos: int, end: int) -> Iterator[int]:
    """A packed repeated int32."""
    while pos < end:
        value, pos = read_varint(data, pos, end)
        yield signed32(value)
