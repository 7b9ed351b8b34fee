"""The state file that we write, against protobuf's own printer and against our reader."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpttool.formats.state import CheckpointState, parse_state
from ckpttool.formats.state_writer import format_state

utf8 = st.text(st.characters(exclude_categories=["Cs"]))
states = st.builds(
    CheckpointState,
    st.none() | utf8.filter(bool),
    st.lists(utf8, max_size=4).map(tuple),
    st.lists(st.floats(allow_nan=False), max_size=4).map(tuple),
    st.none() | st.floats(allow_nan=False).filter(bool),
)


def test_bytes_equal_tensorflows() -> None:
    pytest.importorskip("tensorflow")
    from google.protobuf import text_format
    from tensorflow.python.checkpoint import checkpoint_management

    proto = checkpoint_management.CheckpointState

    @given(states)
    def equal(state: CheckpointState) -> None:
        message = proto(
            model_checkpoint_path=state.model_checkpoint_path,
            all_model_checkpoint_paths=state.all_model_checkpoint_paths,
            all_model_checkpoint_timestamps=state.all_model_checkpoint_timestamps,
            last_preserved_timestamp=state.last_preserved_timestamp,
        )
        assert format_state(state) == text_format.MessageToString(message).encode()

    equal()


@given(states)
def test_what_is_written_is_read_back(state: CheckpointState) -> None:
    assert parse_state(format_state(state)) == state


def test_what_is_empty_is_left_out() -> None:
    assert format_state(CheckpointState("", (), (), 0.0)) == b""


def test_bytes_that_are_not_utf8_survive() -> None:
    state = CheckpointState("ckpt-\udcff\udc80", ("a\udcfe",))
    written = format_state(state)
    assert written.isascii()
    assert parse_state(written) == state
