"""Keras' archives (``.keras``) as sources: weights read where they lie, nothing unpacked.

The archive is a zip of ``metadata.json``, ``config.json`` and ``model.weights.h5``, which
Keras stores without compression, so that HDF5 can be read in the middle of the file. The
configuration is read as data. (keras/src/saving/saving_lib.py.)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ckpttool.errors import CorruptError, IncompleteError, LimitError, UnsupportedError
from ckpttool.formats.zip_directory import STORED, ZipMember, read_directory, read_member
from ckpttool.formats.zip_stream import unpacked
from ckpttool.model import Finding, Variable
from ckpttool.sources.keras_config import groups_of_layers, parse_object
from ckpttool.sources.keras_h5 import Hdf5Source
from ckpttool.storage import open_directory

if TYPE_CHECKING:
    from ckpttool.limits import Limits
    from ckpttool.sources.address import Resolved
    from ckpttool.storage.base import Directory, ReadableFile

__all__ = ["KerasZipSource", "open_resolved"]

_WEIGHTS, _CONFIG, _METADATA = "model.weights.h5", "config.json", "metadata.json"


def open_resolved(resolved: Resolved, limits: Limits) -> KerasZipSource:
    """Open a Keras archive.

    Raises:
        CorruptError, UnsafeError, LimitError: as ``read_directory`` and ``Hdf5File``.
        IncompleteError: id ``keras-weights-missing``.
        UnsupportedError: id ``zip-method``: its weights are compressed; or no h5py.
    """
    return KerasZipSource(open_directory(resolved.directory), resolved, limits)


class KerasZipSource(Hdf5Source):
    """An open Keras archive."""

    def __init__(self, directory: Directory, resolved: Resolved, limits: Limits) -> None:
        super().__init__(directory, resolved, limits, kind="keras-v3")
        try:
            file = self.open(resolved.prefix)
            members = {member.name: member for member in read_directory(file, limits)}
            self._weights = weights = _weights(file, members)
            metadata = self._json(file, members, _METADATA)
            config = self._json(file, members, _CONFIG)
            known = {} if config is None else _names_of_layers(config)
            self.read_file(file, start=weights.offset, size=weights.nbytes, known=known)
            version = None if metadata is None else parse_metadata(metadata)
            self.describe(version, config, _CONFIG)
        except BaseException:
            self.close()
            raise

    def checksummed(self, variable: Variable) -> bool:  # noqa: ARG002 - the archive has one
        return True

    def sums(self) -> Iterator[tuple[str, Iterator[bytes]]]:
        yield self._weights.name, unpacked(self._files[0], self._weights)

    def _json(self, file: ReadableFile, members: dict[str, ZipMember], name: str) -> bytes | None:
        """A member that describes the model; the weights can be read without."""
        member = members.get(name)
        if member is None:
            self.found(Finding("keras-config", "warning", name, "the archive does not have it"))
            return None
        try:
            return read_member(file, member, self._limits.keras_config_bytes)
        except (CorruptError, LimitError) as error:
            self.found(Finding(error.id, "warning", name, str(error)))
            return None


def parse_metadata(data: bytes) -> str:
    """The version of Keras that a ``metadata.json`` names; empty where it names none."""
    try:
        version = parse_object(data, _METADATA).get("keras_version")
    except CorruptError:
        return ""
    return version if isinstance(version, str) else ""


def _names_of_layers(config: bytes) -> dict[str, str]:
    """What the configuration calls the layers, by their groups; `describe` says what is wrong."""
    try:
        return groups_of_layers(parse_object(config, _CONFIG))
    except CorruptError:
        return {}


def _weights(file: ReadableFile, members: dict[str, ZipMember]) -> ZipMember:
    found = members.get(_WEIGHTS)
    if found is None:
        raise IncompleteError(
            f"{file.path} holds no {_WEIGHTS}",
            why=f"its members are: {', '.join(list(members)[:10])}",
            hint="save the model again, or copy the file again",
            id="keras-weights-missing",
        )
    if found.method != STORED:
        raise UnsupportedError(
            f"the weights in {file.path} cannot be read in place",
            why=f"{_WEIGHTS} is compressed, and Keras stores it plainly",
            hint=f"unpack it: unzip FILE {_WEIGHTS}, and give that",
            id="zip-method",
        )
    return found
