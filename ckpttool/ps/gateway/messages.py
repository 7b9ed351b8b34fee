"""The messages of ``gateway.proto``, and live.sock's answers as such messages.

They are made of ``gateway.binpb`` (fixtures/make_gateway_proto.py) in a pool of their own, so
nothing that another package registers can clash with them. Knows no call.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import ParseDict
from google.protobuf.message_factory import GetMessageClass

from ckpttool.model import Variable as StoredVariable

__all__ = [
    "DESCRIPTORS",
    "PROTO",
    "SERVICE",
    "Export",
    "GetStatusRequest",
    "ListPiece",
    "ListVariablesRequest",
    "MakeExportRequest",
    "Message",
    "MessageType",
    "ReadHead",
    "ReadPiece",
    "ReadVariableRequest",
    "Snapshot",
    "Status",
    "TakeSnapshotRequest",
    "Variable",
    "filled",
    "utf8",
    "variable_message",
]

PROTO = Path(__file__).with_name("gateway.proto")
DESCRIPTORS = PROTO.with_suffix(".binpb")
_PACKAGE = "ckpttool.gateway.v1"
#: The service's full name.
SERVICE = f"{_PACKAGE}.Gateway"

_POOL = DescriptorPool()
for _file in FileDescriptorSet.FromString(DESCRIPTORS.read_bytes()).file:
    _POOL.Add(_file)


#: A class of messages, and one of them: they are made at run time.
MessageType = Any
Message = Any


def _message(name: str) -> MessageType:
    return GetMessageClass(_POOL.FindMessageTypeByName(f"{_PACKAGE}.{name}"))


GetStatusRequest = _message("GetStatusRequest")
Status = _message("Status")
ListVariablesRequest = _message("ListVariablesRequest")
ListPiece = _message("ListPiece")
Variable = _message("Variable")
ReadVariableRequest = _message("ReadVariableRequest")
ReadPiece = _message("ReadPiece")
ReadHead = _message("ReadHead")
TakeSnapshotRequest = _message("TakeSnapshotRequest")
Snapshot = _message("Snapshot")
MakeExportRequest = _message("MakeExportRequest")
Export = _message("Export")


def filled(kind: MessageType, value: Mapping[str, Any]) -> Message:
    """A message of what live.sock says (docs/architecture.md).

    Members that are null stay unset, and those that it has no field for are left out.
    """
    return ParseDict(_plain(value), kind(), ignore_unknown_fields=True)


def variable_message(variable: StoredVariable) -> Message:
    """What is said of a variable."""
    return Variable(
        name=utf8(variable.name),
        key=variable.key.encode("utf-8", "surrogateescape"),
        dtype=variable.dtype,
        shape=variable.shape or (),
        unknown_rank=variable.shape is None,
        bytes=variable.nbytes,
        kind=variable.kind,
    )


def utf8(text: str) -> str:
    """Text as a message can hold it: bytes that were no UTF-8 become U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _plain(value: object) -> object:
    """As ``ParseDict`` takes it: numbers that JSON cannot say as words, text that is UTF-8."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, str):
        return utf8(value)
    if isinstance(value, Mapping):
        return {utf8(str(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
