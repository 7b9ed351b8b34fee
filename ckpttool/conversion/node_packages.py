"""Where a package of Node.js is installed, for whoever has it run a result.

Looks at what stands on the disk; starts nothing, so ``convert --list`` may ask. The places
are those that ``node`` itself looks at (nodejs.org/api/modules.html), and one of our own.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["MODULES_VARIABLE", "NodePackage", "find_package"]

#: An environment variable: a ``node_modules`` directory that comes before all others.
MODULES_VARIABLE = "CKPTTOOL_NODE_MODULES"
#: A ``package.json`` is a page; one that is larger is none.
_MOST_BYTES = 2**20


class NodePackage(NamedTuple):
    """An installed package: its directory, its version, and the ``node`` that can run it."""

    path: str
    version: str
    node: str


def find_package(name: str) -> NodePackage | None:
    """The first place that has a package; None where none has, or there is no ``node``.

    In this order: ``CKPTTOOL_NODE_MODULES``; the paths of ``NODE_PATH``; ``node_modules`` in
    the working directory and above it; what ``npm install --global`` writes. One that
    is found by where we stand counts only if it belongs to this user or to root: its code
    is going to be run.
    """
    node = shutil.which("node")
    if node is None:
        return None
    for modules in _places(node):
        path = os.path.join(modules, *name.split("/"))
        version = _version(path, name)
        if version is not None:
            return NodePackage(os.path.abspath(path), version, node)
    return None


def _places(node: str) -> Iterator[str]:
    named = os.environ.get(MODULES_VARIABLE, "")
    searched = os.environ.get("NODE_PATH", "").split(os.pathsep)
    yield from (place for place in (named, *searched) if place)
    folder = os.getcwd()
    while True:
        place = os.path.join(folder, "node_modules")
        if _is_ours(place):
            yield place
        above = os.path.dirname(folder)
        if above == folder:
            break
        folder = above
    prefix = os.path.dirname(os.path.dirname(os.path.realpath(node)))
    yield os.path.join(prefix, "lib", "node_modules")


def _is_ours(path: str) -> bool:
    try:
        return os.stat(path).st_uid in {os.geteuid(), 0}
    except OSError:
        return False


def _version(path: str, name: str) -> str | None:
    try:
        with open(os.path.join(path, "package.json"), "rb") as file:
            found = json.loads(file.read(_MOST_BYTES))
    except (OSError, ValueError):
        return None
    if not isinstance(found, dict) or found.get("name") != name:
        return None
    version = found.get("version")
    return version if isinstance(version, str) else None
