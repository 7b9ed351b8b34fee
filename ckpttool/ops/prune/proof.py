"""What may be taken for part of this run's saves: by its bytes, and by belonging to the run.

A name alone proves nothing: ``faiss.index``, ``batches.meta`` and ``features_temp/`` are other
programs'. What is not proven here is never removed as broken.
"""

from __future__ import annotations

import re
from collections import defaultdict

from ckpttool.errors import CkpttoolError
from ckpttool.ops.prune.file_kinds import kind_of
from ckpttool.ops.prune.survey import PART_OF_SAVE, Stored, Survey
from ckpttool.sources.filenames import STATE_FILE, index_name, split_number, split_part
from ckpttool.sources.run import Leftover
from ckpttool.storage.local import LocalDirectory

__all__ = ["Proof"]

#: How TensorFlow names what it has not finished (tensor_bundle.cc, file_io.py, saver.py).
_TEMPSTATE = re.compile(r"\.tempstate[0-9]+\Z")
_TEXT = re.compile(r"(.+)\.tmp[0-9a-f]{32}\Z", re.DOTALL)
_OURS = re.compile(r"\.[0-9a-f]{16}\.ckpttool-tmp\Z")
_TEMP = re.compile(r"_temp(?:_[0-9a-f]+)?\Z")
_TEMP_OF_SAVER = re.compile(r"_temp_[0-9a-f]{32}\Z")


class Proof:
    """Answers for one directory; what it has found out about a series is kept."""

    def __init__(self, directory: LocalDirectory, found: Survey) -> None:
        self._directory = directory
        self._found = found
        self._series: defaultdict[str, list[Stored]] = defaultdict(list)
        for stored in found.stored.values():
            self._series[stored.series].append(stored)
        self._proven: dict[str, bool] = {}
        run = found.run
        paths = [*run.listed, *([run.latest] if run.latest else [])]
        self._listed = {item.stored for item in paths if "/" not in item.stored}

    def checkpoint(self, stored: Stored) -> str:
        """Why it is not proven to be a checkpoint of this run; empty when it is."""
        if stored.v2 is None:
            return ""  # recognised by its bytes when the directory was looked at
        name = index_name(stored.prefix)
        try:
            kind = kind_of(self._directory, name)
        except CkpttoolError as error:
            return f"{name} cannot be read: {error}"
        if kind.kind == "tf-v2-index":
            return ""
        if kind.named and kind.kind != "table":
            return f"{name} is {kind.description}"
        return "" if self._belongs(stored.prefix) else f"{name} is not proven to be an index"

    def leftover(self, leftover: Leftover) -> str:
        """Why something is not proven to be left by a save of this run; empty when it is."""
        name = leftover.name
        if _TEMPSTATE.search(name) or _OURS.match(name):
            return ""
        if text := _TEXT.match(name):
            states = {STATE_FILE, self._found.state_name}
            states |= {other.name for other in self._found.others}
            known = text[1] in states or bool(split_part(text[1]))
            return "" if known else f"no state file here is called {text[1]}"
        if _TEMP.search(name):
            return self._folder(leftover)
        try:
            kind = kind_of(self._directory, name)
        except CkpttoolError as error:
            return f"it cannot be read: {error}"
        if name.startswith("._"):
            return "" if kind.kind == "appledouble" else "it is no macOS resource file"
        if kind.named and not kind.ours:
            return f"it is {kind.description}"
        if self._belongs(leftover.prefix):
            return ""
        return "no checkpoint of such a name is known here, so it may be another program's file"

    def _folder(self, leftover: Leftover) -> str:
        try:
            with self._directory.directory(leftover.name) as inside:
                names = [entry.name for entry in inside.scan()]
        except CkpttoolError as error:
            return f"it cannot be read: {error}"
        for name in sorted(names):
            if not PART_OF_SAVE.fullmatch(name):
                return f"{name} in it is no part of a save"
        if names or _TEMP_OF_SAVER.search(leftover.name) or self._belongs(leftover.prefix):
            return ""
        return "it is empty, and no checkpoint of such a name is known here"

    def _belongs(self, prefix: str) -> bool:
        """Whether the state file lists it, or it has a number in a series of the run."""
        series, number = split_number(prefix)
        return prefix in self._listed or (number is not None and self._is_series(series))

    def _is_series(self, series: str) -> bool:
        if series not in self._proven:
            self._proven[series] = any(map(self._is_ours, self._series.get(series, ())))
        return self._proven[series]

    def _is_ours(self, stored: Stored) -> bool:
        if stored.v2 is None:
            return True
        try:
            return kind_of(self._directory, index_name(stored.prefix)).kind == "tf-v2-index"
        except CkpttoolError:
            return False
