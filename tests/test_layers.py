"""The layer rule of docs/architecture.md: an import may skip a layer and never points up."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.command import ROOT

PACKAGE = ROOT / "ckpttool"

#: Lowest first. Two names on one level may not import each other, unless they are the
#: shared vocabulary at the bottom.
LEVELS = [
    {"errors", "limits", "model", "schemas", "version"},
    {"storage"},
    {"formats", "policy"},
    {"sources"},
    {"conversion"},
    {"ps"},
    {"ops", "worker"},
    {"api", "cli", "gateway", "runtime"},
    {"__init__", "__main__"},
]
RANK = {name: rank for rank, names in enumerate(LEVELS) for name in names}

#: Which third-party packages a layer may import at all.
THIRD_PARTY = {
    "errors": set[str](),
    "limits": set[str](),
    "model": set[str](),
    "schemas": set[str](),
    "version": set[str](),
    "storage": set[str](),
    "formats": {"cramjam", "fastcrc", "h5py", "ml_dtypes", "numpy"},
    "policy": set[str](),
    "sources": {"ml_dtypes", "numpy"},
    "conversion": {"h5py", "ml_dtypes", "numpy"},
    "worker": {
        "ai_edge_litert",
        "google",
        "h5py",
        "keras",
        "ml_dtypes",
        "numpy",
        "onnx",
        "onnxruntime",
        "tensorflow",
        "tf2onnx",
        "tf_keras",
    },
    "ps": set[str](),
    "runtime": {"ml_dtypes", "numpy", "tensorflow", "tf_keras"},
    "gateway": {
        "google",
        "grpc",
        "grpc_health",
        "h11",
        "prometheus_client",
        "starlette",
        "uvicorn",
    },
    "ops": {"ml_dtypes", "numpy"},
    "api": {"numpy"},
    "__init__": set[str](),
    "cli": {"click", "numpy", "rich"},
    "__main__": set[str](),
}
#: Which may stand at module level anywhere. Any other makes its module a heavy one, and a
#: heavy module is imported inside the function that needs it.
LIGHT = {"click", "fastcrc"}

OURS = "ckpttool"


def layer_of(module: str) -> str:
    """`ckpttool.formats.wire` → `formats`; `ckpttool` → `__init__`.

    What runs in processes of its own is a layer of its own (`ckpttool.conversion.worker`,
    `ckpttool.ps.runtime`, `ckpttool.ps.gateway`); `ckpttool.ps` itself is for Python callers.
    """
    parts = module.split(".")
    if parts[1:3] in (["conversion", "worker"], ["ps", "runtime"], ["ps", "gateway"]):
        return parts[2]
    if parts[1:] == ["ps"]:
        return "__init__"
    return parts[1] if len(parts) > 1 else "__init__"


class Imported(NamedTuple):
    """An import: the module's full name, the line, whether it runs at import time."""

    name: str
    line: int
    at_import: bool


def imports_of(path: Path, module: str) -> Iterator[Imported]:
    """Every import statement of a file, wherever it stands."""
    tree = ast.parse(path.read_text("utf-8"), str(path))
    lazy: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            lazy.update(id(child) for child in ast.walk(node) if child is not node)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            lazy.update(id(child) for statement in node.body for child in ast.walk(statement))
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(tree):
        at_import = id(node) not in lazy
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Imported(alias.name, node.lineno, at_import)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                stem = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*stem, *([base] if base else [])])
            for alias in node.names:  # `from ckpttool import errors` names a module, or the API
                full = f"{base}.{alias.name}"
                named = base == OURS or full in heavy_modules()
                yield Imported(full if named else base, node.lineno, at_import)


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def is_third_party(root: str) -> bool:
    return root != OURS and root not in sys.stdlib_module_names


@cache
def heavy_modules() -> frozenset[str]:
    """Our modules that import something heavy at module level."""
    found = set()
    for path in modules():
        for statement in ast.parse(path.read_text("utf-8")).body:
            if isinstance(statement, ast.Import):
                roots = {alias.name.partition(".")[0] for alias in statement.names}
            elif isinstance(statement, ast.ImportFrom) and not statement.level:
                roots = {(statement.module or "").partition(".")[0]}
            else:
                continue
            if any(is_third_party(root) and root not in LIGHT for root in roots):
                found.add(name_of(path))
    return frozenset(found)


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def violations(path: Path, module: str) -> list[str]:
    """What in a file breaks the rule, one line each."""
    layer = layer_of(module)
    out = []
    for imported, line, at_import in imports_of(path, module):
        where = f"{module}:{line} imports {imported}"
        root = imported.split(".")[0]
        if root == OURS:
            # The worker runs in a process that has TensorFlow in it anyway.
            is_light = module not in heavy_modules() and layer not in {
                "worker",
                "runtime",
                "gateway",
            }
            if imported in heavy_modules() and at_import and is_light:
                out.append(f"{where}, a heavy one: inside the function that needs it")
            target = layer_of(imported)
            if target not in RANK:
                target = "__init__"  # a name of the public API
            if target == layer or RANK[target] == RANK[layer] == 0:
                continue
            if RANK[target] >= RANK[layer]:
                out.append(f"{where}: {layer} may not look at {target}")
        elif is_third_party(root) and root not in THIRD_PARTY[layer]:
            out.append(f"{where}: {layer} may not use {root}")
    return out


def test_every_module_belongs_to_a_layer() -> None:
    assert {layer_of(name_of(path)) for path in modules()} <= set(RANK)


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_imports_point_down(path: Path) -> None:
    assert violations(path, name_of(path)) == []


@pytest.mark.parametrize(
    ("source", "module", "expected"),
    [
        ("from ckpttool.ops import verify", "ckpttool.formats.wire", "may not look at ops"),
        ("def f():\n import ckpttool.cli.main", "ckpttool.ops.list", "may not look at cli"),
        ("from ckpttool import policy", "ckpttool.formats.wire", "may not look at policy"),
        ("from ..ops import verify", "ckpttool.formats.wire", "may not look at ops"),
        ("import ckpttool", "ckpttool.ops.list", "may not look at __init__"),
        ("from ckpttool import open", "ckpttool.ops.list", "may not look at __init__"),
        ("import click", "ckpttool.ops.list", "may not use click"),
        ("import tensorflow", "ckpttool.cli.main", "may not use tensorflow"),
        ("import ckpttool.cli.rich_text", "ckpttool.cli.main", "inside the function"),
        ("from ckpttool.cli import rich_text", "ckpttool.cli.main", "inside the function"),
        (
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n from ckpttool.cli import main",
            "ckpttool.ops.list",
            "may not look at cli",
        ),
    ],
)
def test_the_rule_finds(source: str, module: str, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(source)
    (found,) = violations(path, module)
    assert expected in found


def test_the_rule_allows_heavy_modules_inside_functions_and_for_types(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    import numpy\n"
        "def read():\n    import numpy\n    from ckpttool.cli.rich_text import RichText\n"
        "from ckpttool.errors import CorruptError\n"
    )
    assert violations(path, "ckpttool.cli.views.load") == []
