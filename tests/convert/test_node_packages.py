"""Where a package of Node.js is found."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ckpttool.conversion.node_packages import find_package
from ckpttool.conversion.targets import installed

NAME = "@tensorflow/tfjs"


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `node` of our own, which nobody starts, and no package anywhere."""
    (tmp_path / "here" / "below").mkdir(parents=True)
    (tmp_path / "usr" / "bin").mkdir(parents=True)
    node = tmp_path / "usr" / "bin" / "node"
    node.write_text("#!/bin/false\n")
    node.chmod(0o755)
    monkeypatch.setenv("PATH", str(node.parent))
    for name in ("CKPTTOOL_NODE_MODULES", "NODE_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path / "here" / "below")


def put(modules: Path, version: object = "4.22.0", name: str = NAME) -> Path:
    package = modules / NAME
    package.mkdir(parents=True)
    (package / "package.json").write_text(json.dumps({"name": name, "version": version}))
    return package


def test_the_nearest_place_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_package(NAME) is None
    put(tmp_path / "usr" / "lib" / "node_modules", "1.0.0")
    put(tmp_path / "here" / "node_modules", "2.0.0")
    put(tmp_path / "searched", "3.0.0")
    named = put(tmp_path / "named", "4.0.0")
    (tmp_path / "here" / "below" / "node_modules").mkdir()
    versions = []
    for name, value in (
        ("NODE_PATH", f"{tmp_path / 'nothing'}{os.pathsep}{tmp_path / 'searched'}"),
        ("CKPTTOOL_NODE_MODULES", str(tmp_path / "named")),
    ):
        versions.append(installed(NAME).version)
        monkeypatch.setenv(name, value)
    found = find_package(NAME)
    assert found is not None
    assert (found.path, found.node) == (str(named), str(tmp_path / "usr" / "bin" / "node"))
    assert [*versions, found.version] == ["2.0.0", "3.0.0", "4.0.0"]
    monkeypatch.chdir("/")
    monkeypatch.delenv("CKPTTOOL_NODE_MODULES")
    monkeypatch.delenv("NODE_PATH")
    assert installed(NAME).version == "1.0.0"


def test_without_node_no_package_helps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "here" / "node_modules")
    assert installed(NAME).version == "4.22.0"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert installed(NAME).version is None


@pytest.mark.parametrize("text", ["", "[]", "{}", "{", '{"name": "other", "version": "1"}'])
def test_what_is_no_package_is_passed_over(tmp_path: Path, text: str) -> None:
    put(tmp_path / "here" / "node_modules", "2.0.0")
    package = tmp_path / "here" / "below" / "node_modules" / NAME
    package.mkdir(parents=True)
    (package / "package.json").write_text(text)
    assert installed(NAME).version == "2.0.0"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_another_user_s_directory_is_not_run(tmp_path: Path) -> None:
    put(tmp_path / "here" / "node_modules")
    os.chown(tmp_path / "here" / "node_modules", 12345, 12345)
    assert find_package(NAME) is None
