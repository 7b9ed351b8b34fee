"""Writes the last section of docs/json.md from the schemas.

``python -m tests.support.json_docs`` writes it anew; a test compares it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ckpttool.cli.app import COMMANDS
from ckpttool.schemas import names, schema
from tests.support.command import ROOT

__all__ = ["PATH", "text"]

PATH = ROOT / "docs" / "json.md"

_HEAD = "## What each command says\n"
_SAYS = "The members of `data`, from the schemas (`python -m tests.support.json_docs`).\n"

#: Commands that have subcommands.
_GROUPS = {"serve-ps"}

Schema = Mapping[str, Any]


def _resolve(node: Schema, root: Schema) -> Schema:
    """A node with what its reference says beneath what it says itself."""
    reference = node.get("$ref")
    if reference is None:
        return node
    target = root
    for part in str(reference).removeprefix("#/").split("/"):
        target = target[part]
    return {**_resolve(target, root), **{key: node[key] for key in node if key != "$ref"}}


def _type(node: Schema, root: Schema) -> str:
    """A type in words: ``integer or null``, ``array of objects``."""
    if "const" in node:
        return f"`{node['const']}`"
    if "enum" in node:
        return ", ".join("null" if value is None else f"`{value}`" for value in node["enum"])
    if "anyOf" in node and "type" not in node:
        return " or ".join(_type(_resolve(part, root), root) for part in node["anyOf"])
    kinds = node.get("type", "any")
    words = []
    for kind in [kinds] if isinstance(kinds, str) else kinds:
        if kind == "array" and "items" in node:
            inner = _resolve(node["items"], root).get("type")
            words.append(f"array of {inner}s" if isinstance(inner, str) else "array")
        else:
            words.append(kind)
    return " or ".join(words)


def _inside(node: Schema) -> Iterator[Schema]:
    """What may hold the members of a node: itself, its items, its alternatives."""
    yield node
    yield from node.get("anyOf", [])
    if "items" in node:
        yield node["items"]


def _members(
    node: Schema, root: Schema, indent: str = "", above: frozenset[str] = frozenset()
) -> Iterator[str]:
    """A line for each member of an object, and of the objects in it, each kind once."""
    for name, raw in node.get("properties", {}).items():
        member = _resolve(raw, root)
        optional = "" if name in node.get("required", []) else ", optional"
        description = member.get("description", "")
        line = f"{indent}- `{name}` ({_type(member, root)}{optional})"
        yield f"{line}: {description}\n" if description else f"{line}\n"
        for part in _inside(member):
            reference = part.get("$ref") or raw.get("$ref", "")
            if reference not in above:
                beneath = above | {reference} if reference else above
                yield from _members(_resolve(part, root), root, indent + "  ", beneath)
        values = member.get("additionalProperties")
        if isinstance(values, Mapping):
            value = _resolve(values, root)
            yield f"{indent}  - each value ({_type(value, root)})\n"
            yield from _members(value, root, indent + "    ", above)


def text() -> str:
    """The whole page, its last section made from the schemas."""
    page, _, _ = PATH.read_text("utf-8").partition(_HEAD)
    parts = [page, _HEAD, "\n", _SAYS]
    for command in COMMANDS:
        # A group of commands has none itself, but its subcommands: serve-ps-status.
        for name in names():
            if name == command or (command in _GROUPS and name.startswith(f"{command}-")):
                root = schema(name)
                heading = name.replace(f"{command}-", f"{command} ")
                parts += [f"\n### {heading}\n\n", *_members(root, root)]
    return "".join(parts)


if __name__ == "__main__":
    PATH.write_text(text(), "utf-8")
