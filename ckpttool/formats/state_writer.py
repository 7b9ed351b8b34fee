"""``CheckpointState`` → the bytes of a `checkpoint` state file, as TensorFlow writes it.

TensorFlow prints the message with protobuf's ``text_format.MessageToString``
(tensorflow/python/checkpoint/checkpoint_management.py), so a file written here is byte
for byte what TensorFlow would have written, and TensorFlow reads it.
"""

from __future__ import annotations

from ckpttool.formats.state import CheckpointState

__all__ = ["format_state"]

_ESCAPES = {code: f"\\{code:03o}" for code in (*range(32), 127)}
_ESCAPES |= {ord("\t"): r"\t", ord("\n"): r"\n", ord("\r"): r"\r"}
_ESCAPES |= {ord(char): "\\" + char for char in "\"'\\"}
# A byte that is not UTF-8 is held as a surrogate; protobuf has no such string, but it reads
# the octal escape.
_ESCAPES |= {0xDC00 + byte: f"\\{byte:03o}" for byte in range(128, 256)}


def format_state(state: CheckpointState) -> bytes:
    """The text of a state file; what is not set, empty or zero is left out, as in proto3."""
    lines = []
    if state.model_checkpoint_path:
        lines.append(f"model_checkpoint_path: {_quoted(state.model_checkpoint_path)}\n")
    lines += [
        f"all_model_checkpoint_paths: {_quoted(path)}\n"
        for path in state.all_model_checkpoint_paths
    ]
    lines += [
        f"all_model_checkpoint_timestamps: {time!r}\n"
        for time in state.all_model_checkpoint_timestamps
    ]
    if state.last_preserved_timestamp:
        lines.append(f"last_preserved_timestamp: {state.last_preserved_timestamp!r}\n")
    return "".join(lines).encode("utf-8", "surrogateescape")


def _quoted(text: str) -> str:
    return f'"{text.translate(_ESCAPES)}"'
