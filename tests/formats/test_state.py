from __future__ import annotations

import math
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpttool.errors import CorruptError, LimitError
from ckpttool.formats.state import CheckpointState, parse_state, read_state
from ckpttool.limits import Limits
from ckpttool.storage import open_directory
from tests.support.command import RunCli


def parse(text: str | bytes) -> CheckpointState:
    return parse_state(text if isinstance(text, bytes) else text.encode())


def test_what_tensorflow_writes() -> None:
    text = (
        'model_checkpoint_path: "ckpt-2"\n'
        'all_model_checkpoint_paths: "ckpt-1"\n'
        'all_model_checkpoint_paths: "ckpt-2"\n'
        "all_model_checkpoint_timestamps: 1610001331.9641876\n"
        "all_model_checkpoint_timestamps: 1610001355.5986416\n"
        "last_preserved_timestamp: 1609999697.1211636\n"
    )
    assert parse(text) == CheckpointState(
        "ckpt-2",
        ("ckpt-1", "ckpt-2"),
        (1610001331.9641876, 1610001355.5986416),
        1609999697.1211636,
    )


@pytest.mark.parametrize(
    ("text", "latest"),
    [
        ('model_checkpoint_path: "a"', "a"),
        ("model_checkpoint_path:'a'", "a"),
        ("model_checkpoint_path : 'it\"s'", 'it"s'),
        ('model_checkpoint_path: "a" "b"\n  \'c\'', "abc"),
        ('model_checkpoint_path: "a" # why\n "b"', "ab"),
        ('# first\n\n# second\r\nmodel_checkpoint_path: "a"\r\n', "a"),
        ('model_checkpoint_path: "a";', "a"),
        ('model_checkpoint_path: "a", last_preserved_timestamp: 1', "a"),
        ('model_checkpoint_path: "a" model_checkpoint_path: "b"', "b"),
        (r'model_checkpoint_path: "\344\275\240\345\245\275"', "你好"),
        ('model_checkpoint_path: "你好"', "你好"),
        (r'model_checkpoint_path: "\xe4\xbd\xa0\u597d\U0001F600"', "你好\U0001f600"),
        (r'model_checkpoint_path: "\x4\x41\101\1012"', "\x04AAA2"),
        (r'model_checkpoint_path: "C:\\run\\model"', "C:\\run\\model"),
        (r'model_checkpoint_path: "\a\b\f\n\r\t\v\\\'\"\?"', "\a\b\f\n\r\t\v\\'\"?"),
        (r'model_checkpoint_path: "D:\models"', "D:\\models"),
        ('model_checkpoint_path: ""', ""),
        ("", None),
        ("\ufeffmodel_checkpoint_path: 'a'", "a"),
    ],
)
def test_forms_of_text(text: str, latest: str | None) -> None:
    assert parse(text).model_checkpoint_path == latest


def test_bytes_that_are_not_utf8_are_kept() -> None:
    state = parse(b'model_checkpoint_path: "caf\xe9\\351"')
    assert state.model_checkpoint_path is not None
    assert state.model_checkpoint_path.encode("utf-8", "surrogateescape") == b"caf\xe9\xe9"


def test_short_lists() -> None:
    state = parse('all_model_checkpoint_paths: ["a", "b" "c"], all_model_checkpoint_paths: []')
    assert state.all_model_checkpoint_paths == ("a", "bc")
    assert parse("all_model_checkpoint_timestamps: [1, 2.5]").all_model_checkpoint_timestamps == (
        1.0,
        2.5,
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1.0),
        ("-2.5e3", -2500.0),
        ("1.5f", 1.5),
        (".5", 0.5),
        ("3.F", 3.0),
        ("inf", math.inf),
        ("-inf", -math.inf),
        ("Infinity", math.inf),
        ("inff", math.inf),
    ],
)
def test_numbers(text: str, value: float) -> None:
    assert parse(f"last_preserved_timestamp: {text}").last_preserved_timestamp == value


def test_a_nan() -> None:
    value = parse("last_preserved_timestamp: nan").last_preserved_timestamp
    assert value is not None
    assert math.isnan(value)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("model_checkpoint_paths: 'a'", 1, "no field 'model_checkpoint_paths'"),
        ("\n\nmodel_checkpoint_path 'a'", 3, "colon"),
        ("model_checkpoint_path: a", 1, "quotes was expected, not 'a'"),
        ("model_checkpoint_path: 'a", 1, "does not end on this line"),
        ("model_checkpoint_path: 'a\nb'", 1, "does not end on this line"),
        ("model_checkpoint_path:", 1, "the end of the file"),
        ("model_checkpoint_path: ['a']", 1, "quotes"),
        ("all_model_checkpoint_paths: ['a'\n;'b']", 2, "comma or ]"),
        ("all_model_checkpoint_paths: ['a'", 1, "the end of the file"),
        ("last_preserved_timestamp: soon", 1, "'soon' is not a number"),
        ("last_preserved_timestamp: 1.2.3", 1, "'1.2.3' is not a number"),
        ("last_preserved_timestamp: 'x'", 1, "number was expected"),
        (r"model_checkpoint_path: '\xg'", 1, "hexadecimal"),
        (r"model_checkpoint_path: '\777'", 1, "more than one byte"),
        (r"model_checkpoint_path: '\ud800'", 1, "not a character"),
        (r"model_checkpoint_path: '\U00110000'", 1, "not a character"),
        ("{}", 1, "field name was expected, not '{}'"),
        ("a { b { c { " * 1000, 1, "colon"),
        (b"\0" * 100, 1, "\\x00"),
        ("<html>", 1, "<html>"),
        ("\x1b[31mred", 1, "\\x1b"),
    ],
)
def test_garbage_names_its_line(text: str | bytes, line: int, words: str) -> None:
    with pytest.raises(CorruptError) as caught:
        parse(text)
    assert caught.value.id == "state-corrupt"
    assert caught.value.why.startswith(f"line {line}: ")
    assert words in caught.value.why


@given(st.binary(max_size=200))
def test_any_bytes_give_a_state_or_an_error(data: bytes) -> None:
    with suppress(CorruptError):
        parse(data)


@given(st.text(alphabet="amodel_checkpoint_path:'\"\\x1n[],;# \n", max_size=60))
def test_near_misses_give_a_state_or_an_error(text: str) -> None:
    with suppress(CorruptError):
        parse(f'model_checkpoint_path: "{text}"')


# Bounds -------------------------------------------------------------------------------


def test_a_gigabyte_is_refused_unread(tmp_path: Path) -> None:
    with (tmp_path / "checkpoint").open("wb") as written:
        written.truncate(2**30)
    with open_directory(str(tmp_path)) as directory:
        file = directory.open("checkpoint")
        with pytest.raises(LimitError, match="too large") as caught:
            read_state(file, Limits())
        file.close()
    assert caught.value.id == "limit-state"
    assert "state_bytes" in caught.value.hint


@pytest.mark.parametrize(
    "data",
    [
        b"model_checkpoint_path: " + b'""' * 300_000,
        b"all_model_checkpoint_paths: [" + b"''," * 300_000,
        b"all_model_checkpoint_timestamps: [" + b"1," * 300_000,
        b'model_checkpoint_path: "' + b"\\1" * 3_000_000 + b'"',
    ],
)
def test_small_text_cannot_make_many_objects(data: bytes) -> None:
    with pytest.raises(LimitError) as caught:
        parse(data)
    assert caught.value.id == "limit-state"


def test_sixteen_megabytes_in_bounded_memory(tmp_path: Path, run_cli: RunCli) -> None:
    (tmp_path / "checkpoint").write_bytes(b"all_model_checkpoint_paths: [" + b"''," * 5_000_000)
    result = run_cli(["state", tmp_path], memory_mb=400)
    assert result.returncode == 21, result.stderr
    assert "[limit-state]" in result.stderr


# Against protobuf and TensorFlow ------------------------------------------------------


@pytest.fixture(scope="module")
def proto():
    """The message class, from protobuf alone: importing TensorFlow takes seconds."""
    descriptor_pb2 = pytest.importorskip("google.protobuf.descriptor_pb2")
    from google.protobuf import descriptor_pool, message_factory

    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="ckpttool_test_state.proto", package="ckpttool_test", syntax="proto3"
    )
    message = file.message_type.add(name="CheckpointState")
    for number, (name, kind, label) in enumerate(
        [
            ("model_checkpoint_path", field.TYPE_STRING, field.LABEL_OPTIONAL),
            ("all_model_checkpoint_paths", field.TYPE_STRING, field.LABEL_REPEATED),
            ("all_model_checkpoint_timestamps", field.TYPE_DOUBLE, field.LABEL_REPEATED),
            ("last_preserved_timestamp", field.TYPE_DOUBLE, field.LABEL_OPTIONAL),
        ],
        start=1,
    ):
        message.field.add(name=name, number=number, type=kind, label=label)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(
        pool.FindMessageTypeByName("ckpttool_test.CheckpointState")
    )


def same(state: CheckpointState, message) -> bool:
    return (
        (state.model_checkpoint_path or "") == message.model_checkpoint_path
        and list(state.all_model_checkpoint_paths) == list(message.all_model_checkpoint_paths)
        and list(state.all_model_checkpoint_timestamps)
        == list(message.all_model_checkpoint_timestamps)
        and (state.last_preserved_timestamp or 0.0) == message.last_preserved_timestamp
    )


@given(
    latest=st.text(),
    paths=st.lists(st.text(), max_size=5),
    times=st.lists(st.floats(allow_nan=False), max_size=5),
    preserved=st.floats(allow_nan=False),
    as_utf8=st.booleans(),
    as_one_line=st.booleans(),
    short=st.booleans(),
)
def test_reads_what_protobuf_prints(
    proto, latest, paths, times, preserved, as_utf8, as_one_line, short
) -> None:
    from google.protobuf import text_format

    message = proto(
        model_checkpoint_path=latest,
        all_model_checkpoint_paths=paths,
        all_model_checkpoint_timestamps=times,
        last_preserved_timestamp=preserved,
    )
    text = text_format.MessageToString(
        message, as_utf8=as_utf8, as_one_line=as_one_line, use_short_repeated_primitives=short
    )
    assert same(parse(text), message)


ODD_TEXTS = [
    'model_checkpoint_path: "a" \'b\' # c\n "d"',
    'model_checkpoint_path: "a"; all_model_checkpoint_paths: ["b", "c"],',
    "all_model_checkpoint_timestamps: [1, -inf, 2.5f, .5, 1e3]",
    "last_preserved_timestamp: Infinity",
    r'model_checkpoint_path: "\x4\x41\101\1012\t\\\'"',
    r'model_checkpoint_path: "\344\275\240 你 \u597d"',
    'model_checkpoint_path:"a"model_checkpoint_path:"b"',
    'model_checkpoint_path: "a\tb"\r\n',
    "model_checkpoint_path 'a'",
    "model_checkpoint_path: 'a\nb'",
    "model_checkpoint_path: a",
    "model_checkpoint_path: ['a']",
    "all_model_checkpoint_paths: ['a' 'b'; 'c']",
    "last_preserved_timestamp: 1.2.3",
    "last_preserved_timestamp: 017",
    "unknown: 1",
    "1: 'a'",
    "[ext.x]: 1",
    r'model_checkpoint_path: "\x"',
    "model_checkpoint_path: 'a' }",
    "# nothing",
]


@pytest.mark.parametrize("text", ODD_TEXTS)
def test_accepts_and_refuses_as_protobuf_does(proto, text: str) -> None:
    from google.protobuf import text_format

    message = proto()
    try:
        text_format.Merge(text, message)
    except text_format.ParseError:
        with pytest.raises(CorruptError):
            parse(text)
    else:
        assert same(parse(text), message)


def test_agrees_with_tensorflow(tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    for number, text in enumerate(ODD_TEXTS):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "checkpoint").write_text(text)
        try:
            theirs = tf.train.get_checkpoint_state(str(folder))
        except ValueError:  # no latest path
            assert not parse(text).model_checkpoint_path
            continue
        if theirs is None:
            with pytest.raises(CorruptError):
                parse(text)
        else:
            stored = parse(text).model_checkpoint_path
            assert stored is not None
            assert theirs.model_checkpoint_path == str(folder / stored)
