"""Fuzzing of every parser, with atheris (libFuzzer).

    python -m fuzz TARGET --seconds 60     # or `all`, or --list
    python -m fuzz TARGET --replay FILE…   # what one input does

Any exception that is not a ``CkpttoolError`` is a find, and so is a hang or a crash. An
input that was one is kept in ``fuzz/finds/TARGET/``, where a test runs it for ever.
"""
