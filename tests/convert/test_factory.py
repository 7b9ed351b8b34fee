"""The function of `--model`: found, called with its arguments, or refused in plain words."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ckpttool.conversion.specs import NamedValue
from ckpttool.conversion.worker.factory import build_model, load_function
from ckpttool.conversion.worker.own_code import line_of, said_of
from ckpttool.errors import CkpttoolError, ConversionError, UsageError

CODE = """
import helper_of_a_test

class Nets:
    @staticmethod
    def build(units, deep=False):
        return ("model", units, deep, helper_of_a_test.NAME)

def nothing():
    return None

def broken():
    return 1 / 0

def wanders():
    import os
    os.chdir("/")
    return "model"

NUMBER = 3

def exits():
    import sys
    sys.exit("no data here")

def in_a_library():
    import json
    return json.loads("{")
"""


@pytest.fixture(autouse=True)
def _code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "code_of_a_test.py").write_text(CODE)
    (tmp_path / "helper_of_a_test.py").write_text("NAME = 'beside it'\n")
    (tmp_path / "raises_of_a_test.py").write_text("import no_such_library_of_a_test\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in list(sys.modules):
        if name.endswith("_of_a_test"):
            monkeypatch.delitem(sys.modules, name)


def refused(spec: str, *arguments: NamedValue) -> CkpttoolError:
    with pytest.raises(CkpttoolError) as caught:
        build_model(spec, arguments)
    return caught.value


@pytest.mark.parametrize("where", ["code_of_a_test.py", "code_of_a_test", "./code_of_a_test.py"])
def test_a_file_or_a_module_with_what_lies_beside_it(where: str) -> None:
    arguments = [NamedValue("units", 64), NamedValue("deep", True)]
    built = build_model(f"{where}:Nets.build", arguments)
    assert built == ("model", 64, True, "beside it")


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("code_of_a_test.py", "MODULE:FUNCTION"),
        (":build", "MODULE:FUNCTION"),
        ("missing.py:build", "no file missing.py"),
        ("missing_of_a_test:build", "no module missing_of_a_test"),
        ("code_of_a_test.py:nothin", "did you mean: --model code_of_a_test.py:nothing"),
        (
            "code_of_a_test.py:NUMBER",
            "NUMBER in code_of_a_test.py is no function, but of the type int",
        ),
        ("code_of_a_test.py:nothing", "returns nothing"),
        ("code_of_a_test.py:Nets.build", "units"),
    ],
)
def test_what_cannot_be_used(spec: str, said: str) -> None:
    error = refused(spec)
    assert isinstance(error, UsageError)
    assert error.id == "model-function"
    assert said in f"{error.what} {error.why} {error.hint}"


def test_arguments_that_it_does_not_take() -> None:
    given = [NamedValue("units", 1), NamedValue("width", 1)]
    assert "width" in refused("code_of_a_test.py:Nets.build", *given).why


def test_what_it_raises_is_said_with_its_line() -> None:
    error = refused("code_of_a_test.py:broken")
    assert isinstance(error, ConversionError)
    assert error.id == "model-function-failed"
    assert "ZeroDivisionError" in error.why
    assert "code_of_a_test.py:13" in error.why
    missing = refused("raises_of_a_test.py:build")
    assert "no_such_library_of_a_test" in missing.why
    assert missing.id == "model-function-failed"


def test_the_line_is_the_person_s_own() -> None:
    """Not that of a library which raised it; and what exits is told as what raises."""
    exits = refused("code_of_a_test.py:exits")
    assert (exits.id, exits.exit_code) == ("model-function-failed", 51)
    assert exits.why == "SystemExit: no data here (code_of_a_test.py:24)"
    assert "(code_of_a_test.py:28)" in refused("code_of_a_test.py:in_a_library").why
    Path("exits_of_a_test.py").write_text("raise SystemExit('not here')\n")
    imported = refused("exits_of_a_test.py:build")
    assert imported.why == "SystemExit: not here (exits_of_a_test.py:1)"
    Path("torn_of_a_test.py").write_text("def build(:\n")
    assert "(torn_of_a_test.py, line 1)" in refused("torn_of_a_test.py:build").why


def test_what_tensorflow_and_keras_put_around_an_error_is_left_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    graph = NameError(
        'in user code:\n\n    File "/a/net.py", line 7, in call  *\n\n    NameError: x\n'
    )
    assert (said_of(graph), line_of(graph)) == ("NameError: x", "net.py:7")
    layer = ValueError("In D.call().\n\n\x1b[1mwrong\x1b[0m\n\nArguments received by D: x=1")
    assert said_of(layer) == "ValueError: In D.call(). wrong"
    assert said_of(ValueError()) == "ValueError: it says nothing more"
    refused("code_of_a_test.py:broken")
    printed = capsys.readouterr().err
    assert "ZeroDivisionError" in printed
    assert "factory.py" not in printed


def test_a_function_that_is_no_model_s() -> None:
    """As ``--calibration`` uses it."""
    assert load_function("code_of_a_test.py:nothing")() is None


def test_where_it_goes_paths_stay_what_they_were(tmp_path: Path) -> None:
    """Those that a person gave are relative to the working directory."""
    (tmp_path / "goes_of_a_test.py").write_text("import os\nos.chdir('/')\ndef f(): return 1\n")
    assert build_model("code_of_a_test.py:wanders", ()) == "model"
    assert Path.cwd() == tmp_path
    assert build_model("goes_of_a_test.py:f", ()) == 1
    assert Path.cwd() == tmp_path
