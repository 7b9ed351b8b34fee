"""The report of a conversion: what was made of what, with which versions, and how it was proven.

One JSON document beside the result (``schemas/convert-report.json``): enough to say years
later from which files a served model came, and that it computed the same. Runs nothing.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING

from ckpttool.conversion.wire import plain
from ckpttool.errors import CkpttoolError, RefusedError, UsageError
from ckpttool.sources.filenames import index_name
from ckpttool.storage import open_directory, require_directory, stat_path
from ckpttool.storage.system import raise_os_error
from ckpttool.version import __version__

if TYPE_CHECKING:
    from ckpttool.conversion.check import CheckResult
    from ckpttool.conversion.job import Made, Origin
    from ckpttool.conversion.request import Request
    from ckpttool.conversion.targets import Target
    from ckpttool.limits import Limits

__all__ = [
    "REPORT_ENDING",
    "SCHEMA",
    "files_below",
    "is_report",
    "make_report",
    "report_path",
    "require_report_free",
    "write_report",
]

SCHEMA = "ckpttool.convert-report/1"
#: What is put behind the name of a result.
REPORT_ENDING = ".report.json"
#: A file that is larger is no report of ours.
_REPORT_BYTES = 2**24
#: What every report names beside the libraries that the target needs.
_ALWAYS = ("keras", "numpy")


def report_path(request: Request, target: Target) -> str | None:
    """Where the report goes; None where none is wanted.

    A result that is checked by running it has one beside it. Others have one where it is
    asked for: to sum up every byte takes longer than to copy the values.
    """
    check = request.check
    if check.report is not None:
        return check.report
    if target.graph and request.like is None and check.run and not check.only:
        return request.destination.rstrip("/") + REPORT_ENDING
    return None


def require_report_free(path: str, destination: str) -> None:
    """Check that a report may be written: over nothing, or over another report.

    ``--overwrite`` is about the result: it makes no other file give way to a report.

    Raises:
        NotFoundError: id ``destination-directory``: there is no directory to write into.
        UsageError: id ``output-not-a-file``: it would be no file, or the result itself.
        RefusedError: id ``exists``: something else has the name.
    """
    folder, name = os.path.split(path)
    beside = path == destination.rstrip("/") + REPORT_ENDING  # then nobody has named the report
    require_directory(folder, destination if beside else path)
    there = stat_path(path)
    is_result = os.path.abspath(path) == os.path.abspath(destination)
    if not name or is_result or (there is not None and there.kind != "file"):
        raise UsageError(
            f"the report cannot be written to {path!r}",
            why="that is the result itself" if is_result else "it is no regular file",
            hint="give the name of a file: --report FILE",
            id="output-not-a-file",
        )
    if there is not None and not is_report(path):
        raise RefusedError(
            f"{path} exists, and is no report of a conversion",
            why="a report takes the place of a former report only",
            hint="choose another name: --report FILE",
            id="exists",
        )


def make_report(
    request: Request,
    origin: Origin,
    made: Made,
    check: CheckResult,
    files: Sequence[tuple[str, str]],
    limits: Limits,
) -> dict[str, object]:
    """The document.

    Args:
        request: what was asked for.
        origin: where it came from.
        made: what the child said.
        check: what the check found.
        files: of the result: the path under which it is going to stand, where it is now.
        limits: bounds on what the source's files may claim.
    """
    from platform import python_version

    from ckpttool.conversion.targets import installed

    versions = {"ckpttool": __version__, "python": python_version()}
    versions |= {name: installed(name).version or "" for name in _ALWAYS}
    versions |= {**made.versions, **check.versions}
    return {
        "schema": SCHEMA,
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "source": {
            "address": request.source,
            "values": origin.values,
            "graph": origin.graph,
            "files": [_file(path, path) for path in _source_files(request, origin, limits)],
        },
        "result": {
            "target": request.target,
            "destination": request.destination,
            "files": [_file(final, path) for final, path in files],
        },
        "settings": _asked(request),
        "signatures": plain(made.signatures),
        "versions": {name: version for name, version in versions.items() if version},
        "seconds": made.seconds,
        "facts": made.facts,
        "check": {
            "state": check.state,
            "how": check.how,
            "why": check.why,
            "notes": list(check.notes),
            "metrics": dict(check.metrics),
        },
        "warnings": list(made.warnings),
    }


def write_report(path: str, report: Mapping[str, object]) -> None:
    """Write it whole, over a former one.

    Raises:
        NotFoundError, NoSpaceError, PermissionDeniedError, StorageError: as the system says.
    """
    folder, name = os.path.split(path)
    text = json.dumps(_without_nan(report), indent=1, ensure_ascii=True)
    with open_directory(folder or ".") as directory, directory.create(name, overwrite=True) as file:
        file.write(text.encode() + b"\n")
        file.commit()


def files_below(path: str) -> list[str]:
    """A file itself, or every file in a directory and below; none where there is neither."""
    if os.path.isfile(path):
        return [path]
    found = [os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names]
    return sorted(one for one in found if os.path.isfile(one))


def is_report(path: str) -> bool:
    """Whether a file is the report of a conversion."""
    folder, name = os.path.split(path)
    try:
        with open_directory(folder or ".") as directory, closing(directory.open(name)) as file:
            if file.stat.size > _REPORT_BYTES:
                return False
            data = json.loads(file.pread(0, file.stat.size))
    except (CkpttoolError, ValueError, RecursionError):
        return False
    return isinstance(data, dict) and str(data.get("schema")).startswith(SCHEMA.partition("/")[0])


def _source_files(request: Request, origin: Origin, limits: Limits) -> list[str]:
    """Every file that the result was made of: values, graph, code, what measured its ranges."""
    found: dict[str, None] = {}
    graph = origin.graph.rpartition(":")[0] if origin.kind == "model" else origin.graph
    measured = request.settings.calibration
    if measured is not None and not measured.lower().endswith(".npz"):
        measured = measured.rpartition(":")[0]
    for path in (graph, origin.values, measured):
        if path:
            found |= dict.fromkeys(_files(path, limits))
    return list(found)


def _files(address: str, limits: Limits) -> list[str]:
    return files_below(address) or list(_of_source(address, limits))


def _of_source(address: str, limits: Limits) -> Iterator[str]:
    """The files of a checkpoint; none where it is no address (the code of a module)."""
    from ckpttool.sources.registry import open_source

    try:
        with open_source(address, limits) as source:
            found = [index_name(source.location)] if source.kind == "tf-v2" else []
            shards = [one.path for one in source.shards() if one.present]
    except CkpttoolError:
        return
    folder = os.path.dirname(source.location)
    for path in (*found, *shards):
        yield path if stat_path(path) is not None else os.path.join(folder, path)


def _file(final: str, path: str) -> dict[str, object]:
    """A file's final path, its bytes and their SHA-256."""
    import hashlib  # OpenSSL takes longer to load than a small result to write

    try:
        # Links are followed, as TensorFlow followed them.
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            return {"path": final, "bytes": file.tell(), "sha256": digest}
    except OSError as error:
        raise_os_error(error, f"cannot read {path}")


def _asked(value: object) -> dict[str, object]:
    """The members of a request that are not as they are by default."""
    assert is_dataclass(value)
    found: dict[str, object] = {}
    for one in fields(value):
        member = getattr(value, one.name)
        if is_dataclass(member):
            inner = _asked(member)
            if inner:
                found[one.name] = inner
        elif member != one.default:
            found[one.name] = plain(member)
    return found


def _without_nan(value: object) -> object:
    """The same, with null for what JSON has no number for."""
    if isinstance(value, float) and value - value != 0:
        return None
    if isinstance(value, Mapping):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(item) for item in value]
    return value
