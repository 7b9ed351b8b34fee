"""The files that go with a SavedModel: there, in its directory, and no links out of it.

TensorFlow reads, and copies into every result, whatever file an export names.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from ckpttool.errors import IncompleteError, UnsafeError
from ckpttool.storage import stat_path

__all__ = ["asset_missing", "require_assets"]

_FOLDER = "assets"


def require_assets(folder: str, names: Iterable[str]) -> None:
    """Check the files of these names in the directory of assets of a SavedModel.

    Raises:
        UnsafeError: ids ``unsafe-path``, ``unsafe-link``: it leads to another place.
        IncompleteError: id ``asset-missing``.
    """
    for name in names:
        path = os.path.join(folder, _FOLDER, name)
        if os.path.isabs(name) or ".." in name.split("/"):
            raise UnsafeError(
                f"{folder} leads to other files",
                why=f"an asset of it is called {name}",
                hint="take it only from whom you trust, with its files in its directory",
                id="unsafe-path",
            )
        here = os.path.realpath(os.path.join(folder, _FOLDER))
        if os.path.lexists(path) and not os.path.realpath(path).startswith(os.path.join(here, "")):
            raise UnsafeError(
                f"{folder} leads to other files",
                why=f"its asset {name} is a link out of it",
                hint="replace the link by the file",
                id="unsafe-link",
            )
        there = stat_path(path)
        if there is None or there.kind != "file":
            raise asset_missing(folder, path)


def asset_missing(what: str, path: str) -> IncompleteError:
    """The error of a graph that reads a file which is not there."""
    return IncompleteError(
        f"{what} needs a file that is not there",
        why=f"a table of it is filled from {path}",
        hint="put it there, or choose an --input behind the table",
        id="asset-missing",
    )
