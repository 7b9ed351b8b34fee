"""``--names full|key|path``: one meaning in every command that names variables."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.support.command import RunCli

#: One variable of a Keras 3 checkpoint under its three names.
KERNEL = {
    "full": "regressor/hidden/kernel",
    "key": "optimizer/_trainable_variables/0/.ATTRIBUTES/VARIABLE_VALUE",
    "path": "model/_functional/_operations/1/_kernel",
}
STYLES = list(KERNEL)


@pytest.fixture
def damaged(fixtures_dir: Path, tmp_path: Path) -> Path:
    """The same checkpoint with a bit of that variable flipped."""
    for path in (fixtures_dir / "keras3").glob("ckpt-4.*"):
        shutil.copy(path, tmp_path)
    import ckpttool

    with ckpttool.open(tmp_path / "ckpt-4") as opened:
        offset = opened[KERNEL["full"]].offset
    assert offset is not None
    data = tmp_path / "ckpt-4.data-00000-of-00001"
    content = bytearray(data.read_bytes())
    content[offset] ^= 1
    data.write_bytes(content)
    return tmp_path / "ckpt-4"


@pytest.mark.parametrize("names", STYLES)
def test_every_command_says_the_same_name(
    fixtures_dir: Path, damaged: Path, run_cli: RunCli, names: str
) -> None:
    """D26: the three names of a variable, whichever a person or a script works with."""
    source, name = fixtures_dir / "keras3" / "ckpt-4", KERNEL[names]
    option = ["--names", names]
    listed = run_cli(["list", source, "-q", *option]).stdout.splitlines()
    assert name in listed
    assert not {KERNEL[other] for other in STYLES if other != names} & set(listed)
    # Patterns and filters look at what is shown.
    pattern = f"*{name[3:]}"
    assert run_cli(["list", source, "-q", "--include", pattern, *option]).stdout == f"{name}\n"
    loaded = json.loads(run_cli(["load", source, pattern, "--json", *option]).stdout)
    assert [one["name"] for one in loaded["data"]["variables"]] == [name]
    stats = json.loads(run_cli(["stats", source, pattern, "--json", *option]).stdout)
    assert [one["name"] for one in stats["data"]["variables"]] == [name]
    done = run_cli(
        ["diff", source, fixtures_dir / "keras3" / "ckpt-3", "--include", pattern, *option]
    )
    assert done.stdout.split("\t")[:3] == ["values", "model", name]
    done = run_cli(["verify", damaged, *option])
    assert done.stdout.splitlines()[1].split("\t")[3] == name
    (finding,) = json.loads(run_cli(["verify", damaged, "--json", *option]).stdout)["data"][
        "findings"
    ]
    assert (finding["object"], finding["name"]) == (KERNEL["key"], name)


@pytest.mark.parametrize("names", STYLES)
def test_a_name_is_given_in_any_of_the_three_ways(
    fixtures_dir: Path, run_cli: RunCli, names: str
) -> None:
    source = fixtures_dir / "keras3" / "ckpt-4"
    done = run_cli(["load", source, *KERNEL.values(), "--json", "--names", names])
    loaded = json.loads(done.stdout)["data"]["variables"]
    assert [one["name"] for one in loaded] == [KERNEL[names]] * 3


@pytest.mark.parametrize("address", ["mlp-v1", "v1", "partitioned", "arrays/model-7.npz"])
def test_one_name_where_there_are_no_objects(
    fixtures_dir: Path, run_cli: RunCli, address: str
) -> None:
    """A name-based checkpoint, and an array in a file, have but one name."""
    outputs = {
        run_cli(["list", address, "--names", names], cwd=fixtures_dir).stdout for names in STYLES
    }
    assert len(outputs) == 1
    assert outputs != {""}
