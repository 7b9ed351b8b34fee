"""The graph of what is inspected: the file beside a checkpoint, in a SavedModel, or itself.

What is said of a graph (writer, signatures, assets) is read always, for it is little; its
nodes, which may be a hundred megabytes, only when asked for.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ckpttool.errors import CkpttoolError, NotFoundError
from ckpttool.model import Finding
from ckpttool.sources.filenames import SAVED_MODEL_FILES, graph_name, join
from ckpttool.storage import open_directory

if TYPE_CHECKING:
    from ckpttool.formats.graph_file import GraphFile
    from ckpttool.formats.metagraph import Asset, MetaGraph, SaverInfo, Signature
    from ckpttool.formats.saved_model import Fingerprint
    from ckpttool.limits import Limits
    from ckpttool.sources.address import Resolved
    from ckpttool.sources.graph_analysis import GraphAnalysis
    from ckpttool.storage import Directory
    from ckpttool.storage.base import FileStat

__all__ = ["GraphReport", "MetaReport", "Writer", "report_graph"]

_FINGERPRINT = "fingerprint.pb"
#: What tf.io.write_graph and Estimators write once a run; it has no values either.
_BESIDE = "graph.pbtxt"
# tensorflow/python/saved_model/{signature_constants,constants}.py.
_SERVING, _INIT = "serving_default", "__saved_model_init_op"
#: Graphs up to which the versions are looked up where the writer's release is not given.
_SMALL = 8 * 2**20
_FINGERPRINT_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Writer:
    """What wrote a graph.

    Attributes:
        tensorflow_version, git_version: empty before TensorFlow 0.12.
        producer, min_consumer: versions of the graph's format; None where not looked up.
    """

    tensorflow_version: str
    git_version: str
    producer: int | None
    min_consumer: int | None


@dataclass(frozen=True, slots=True)
class MetaReport:
    """A MetaGraph: of a SavedModel there is one a set of tags."""

    tags: tuple[str, ...]
    signatures: tuple[Signature, ...]
    assets: tuple[Asset, ...]
    saver: SaverInfo | None


@dataclass(frozen=True, slots=True)
class GraphReport:
    """A file with a graph.

    Attributes:
        path: of the file.
        nbytes: its size.
        beside: whether it goes with a checkpoint, and is not what was named.
        message: GraphDef, MetaGraphDef or SavedModel; None where it was not read.
        writer: None where it was not read.
        metas: its MetaGraphs; none in a plain GraphDef.
        analyses: what is in each graph, that of each MetaGraph; only if asked for.
        fingerprint: of a SavedModel that has one.
        problems: what is wrong with it, or odd.
    """

    path: str
    nbytes: int
    beside: bool
    message: str | None = None
    writer: Writer | None = None
    metas: tuple[MetaReport, ...] = ()
    analyses: tuple[GraphAnalysis, ...] = ()
    fingerprint: Fingerprint | None = None
    problems: tuple[Finding, ...] = ()

    @property
    def main(self) -> GraphAnalysis | None:
        """What is in the graph that is served, or in the only one."""
        for meta, analysis in zip(self.metas, self.analyses, strict=False):
            if "serve" in meta.tags:
                return analysis
        return self.analyses[0] if self.analyses else None


def report_graph(
    directory: Directory,
    resolved: Resolved,
    limits: Limits,
    *,
    analyse: bool,
    content: GraphFile | None = None,
) -> GraphReport | None:
    """The graph of what an address came to; None where there is none.

    Args:
        directory: the one that it came to.
        resolved: what it came to.
        limits: bounds on what the file may claim.
        analyse: whether to look at its nodes; then there has to be one that can be read.
        content: what is in the file, where a source has read it already.

    Raises:
        NotFoundError: id ``graph-missing``, with ``analyse``.
        CorruptError, LimitError: with ``analyse``: else that is a problem of the report.
    """
    with closing(_home(directory, resolved)) as home:
        stat = next(_candidates(home, resolved, text=analyse), None)
        if stat is None:
            if analyse:
                raise _missing(resolved)
            return None
        path = join(home.path, stat.name)
        report = GraphReport(path, stat.size, resolved.kind not in {"graph", "savedmodel"})
        try:
            if content is not None:
                report = _read(report, content, analyse)
            else:
                from ckpttool.formats.graph_file import read_graph_file

                with closing(home.open(stat.name)) as file:
                    report = _read(report, read_graph_file(file, limits), analyse)
            if report.message == "SavedModel":
                report = replace(report, fingerprint=_fingerprint(home))
        except CkpttoolError as error:
            if analyse:
                raise
            problem = Finding(error.id, "warning", error.what, error.why)
            report = replace(report, problems=(*report.problems, problem))
    return report


def _home(directory: Directory, resolved: Resolved) -> Directory:
    """Where the graph lies: of a SavedModel, above its variables."""
    if resolved.kind != "savedmodel":
        return open_directory(directory.path)
    return open_directory(os.path.dirname(directory.path) or ".")


def _candidates(home: Directory, resolved: Resolved, *, text: bool) -> Iterator[FileStat]:
    names: tuple[str, ...]
    if resolved.kind == "savedmodel":
        names = SAVED_MODEL_FILES
    elif resolved.kind == "graph":
        names = (resolved.prefix,)
    else:
        names = (graph_name(resolved.prefix), *((_BESIDE,) if text else ()))
    for name in names:
        stat = home.stat(name)
        if stat is not None and stat.kind == "file":
            yield stat


def _read(report: GraphReport, found: GraphFile, analyse: bool) -> GraphReport:
    metas = found.metas
    analyses = tuple(_analyses(found)) if analyse else ()
    return replace(
        report,
        message=found.message,
        writer=_writer(found, analyses),
        metas=tuple(
            MetaReport(meta.tags, _ordered(meta.signatures), meta.assets, meta.saver)
            for meta in metas
        ),
        analyses=analyses,
        problems=tuple(_oddities(metas, report.path)),
    )


def _ordered(signatures: tuple[Signature, ...]) -> tuple[Signature, ...]:
    """The one that is asked for by default first; without the one that only initialises."""
    shown = [signature for signature in signatures if signature.name != _INIT]
    return tuple(sorted(shown, key=lambda signature: (signature.name != _SERVING, signature.name)))


def _analyses(found: GraphFile) -> Iterator[GraphAnalysis]:
    from ckpttool.sources.graph_analysis import analyse_graph
    from ckpttool.sources.graph_variables import meta_variables

    if found.graph is not None:
        yield analyse_graph(found.graph)
    for meta in found.metas:
        yield analyse_graph(meta.graph(), meta_variables(meta, meta.graph()))


def _writer(found: GraphFile, analyses: tuple[GraphAnalysis, ...]) -> Writer:
    meta = next(iter(found.metas), None)
    release = (meta.tensorflow_version, meta.git_version) if meta is not None else ("", "")
    if analyses:
        return Writer(*release, analyses[0].producer, analyses[0].min_consumer)
    graph = found.graph
    if graph is None and meta is not None and not release[0]:
        start, end = meta.graph_place
        graph = meta.graph() if end - start <= _SMALL else None
    if graph is None:
        return Writer(*release, None, None)
    return Writer(*release, graph.producer, graph.min_consumer)


def _oddities(metas: tuple[MetaGraph, ...], path: str) -> Iterator[Finding]:
    """What keeps programs of today from using a graph."""
    from ckpttool.formats.saved_objects import parse_saved_objects

    for meta in metas:
        if meta.objects is None:
            continue
        objects = parse_saved_objects(meta.source, *meta.objects, meta.limits)
        if "optimizer" in objects.slot_owners:
            yield Finding(
                "saved-model-slots",
                "note",
                path,
                "it was saved with an optimizer of Keras 2, which tf.saved_model.load of today "
                "cannot revive (add_slot); the loader of TensorFlow 1 reads it",
            )


def _fingerprint(home: Directory) -> Fingerprint | None:
    from ckpttool.formats.saved_model import parse_fingerprint

    stat = home.stat(_FINGERPRINT)
    if stat is None or stat.kind != "file" or stat.size > _FINGERPRINT_BYTES:
        return None
    with closing(home.open(_FINGERPRINT)) as file:
        return parse_fingerprint(file.pread(0, stat.size), file.path)


def _missing(resolved: Resolved) -> NotFoundError:
    if resolved.kind in {"keras-v3", "hdf5"}:
        why = "a whole Keras model has its layers as text, and TensorFlow makes the graph of them"
        export = shlex.quote(f"{resolved.prefix.partition('.')[0]}-saved")
        model = shlex.quote(resolved.location)
        hint = f"for a whole model: ckpttool convert {model} {export} --to savedmodel"
    elif resolved.kind in {"checkpoint", "run"}:
        name = graph_name(resolved.prefix)
        why = f"there is neither {name} nor {_BESIDE} beside it; a checkpoint holds values alone"
        hint = "what holds one: a .meta, a graph .pb or .pbtxt, a SavedModel: give that instead"
    else:
        why = "such a file holds values, and what it has of a graph inspect shows without --graph"
        hint = f"ckpttool inspect {shlex.quote(resolved.location)}"
    return NotFoundError(
        f"{resolved.location} has no TensorFlow graph",
        why=why,
        hint=hint,
        id="graph-missing",
    )
