"""What a SavedModel is to compute, and whether it is all there.

TensorFlow loads one whose variables are absent, and computes with what it finds: so what
the graph needs is compared with what is there before TensorFlow sees it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from ckpttool.convert.job import Origin
from ckpttool.convert.stored import (
    INIT_SIGNATURE,
    of_stored,
    require_known_ops,
    wanted_signatures,
)
from ckpttool.errors import IncompleteError, NoGraphError, UnsupportedError
from ckpttool.formats.graph_file import read_graph_file
from ckpttool.formats.graphdef import Graph
from ckpttool.limits import Limits
from ckpttool.sources.graph_topology import split_tensor
from ckpttool.sources.graph_variables import meta_variables
from ckpttool.storage import open_directory, stat_path

if TYPE_CHECKING:
    from ckpttool.convert.request import Request
    from ckpttool.formats.metagraph import MetaGraph
    from ckpttool.formats.metagraph import Signature as StoredSignature

__all__ = ["of_saved_model"]

_FILES = ("saved_model.pb", "saved_model.pbtxt")
#: Flaws that are spelled out in an error.
_NAMED = 4


def of_saved_model(request: Request, folder: str, limits: Limits) -> Origin:
    """What a SavedModel is to compute, by its own signatures.

    Raises:
        NotFoundError: id ``signature-not-found``.
        NoGraphError: id ``no-outputs``: it has no signatures.
        IncompleteError: ids ``variables-missing``, ``graph-variables-missing``.
    """
    name = next(name for name in _FILES if stat_path(os.path.join(folder, name)) is not None)
    with open_directory(folder) as directory, closing(directory.open(name)) as file:
        metas = read_graph_file(file, limits, "SavedModel").metas
        meta = next((one for one in metas if "serve" in one.tags), metas[0] if metas else None)
        if meta is None:
            raise NoGraphError(f"{folder} is a SavedModel without a graph", why="it has none")
        stored = [one for one in meta.signatures if one.name != INIT_SIGNATURE and one.outputs]
        chosen = wanted_signatures(request.signatures, stored, folder)
        _require_dense(folder, chosen)
        graph = meta.graph()
        require_known_ops(folder, {node.op for node in graph.all_nodes()}, graph)
        _require_variables(folder, meta, graph, limits)
        return Origin("savedmodel", folder, folder, tuple(map(of_stored, chosen)), meta.tags)


def _require_dense(folder: str, signatures: Iterable[StoredSignature]) -> None:
    for one in signatures:
        sparse = [port.name for port in (*one.inputs, *one.outputs) if not port.tensor]
        if sparse:
            raise UnsupportedError(
                f"the signature {one.name} of {folder} has sparse tensors",
                why=f"{', '.join(sparse)} is made of several tensors, which no target takes",
                hint="choose another one with --signature",
                id="sparse-port",
            )


def _require_variables(folder: str, meta: MetaGraph, graph: Graph, limits: Limits) -> None:
    """Check that what the graph calls variables is there: TensorFlow loads it all the same."""
    needed = meta_variables(meta, graph)
    if not needed:
        return
    from ckpttool.sources.whole import flaws

    inside = os.path.join(folder, "variables")
    there = stat_path(inside)
    if there is None:
        said = ["there is no directory variables"]
    else:
        with open_directory(inside) as directory:
            said = [str(flaw) for flaw in flaws(directory, "variables", limits)]
    if said:
        names = [one.name for one in needed]
        raise IncompleteError(
            f"{folder} has no values for its variables",
            why=f"{'; '.join(said[:_NAMED])}, and its graph has {len(names)} variables, among "
            f"them {', '.join(names[:3])}",
            hint="copy the SavedModel again, with its directory variables",
            id="variables-missing",
        )
    if meta.objects is None:
        # What is in no collection is filled when the model is loaded (the name of an asset).
        listed = {split_tensor(one.name)[0] for one in meta.variables()}
        names = [
            one.slice.full_name if one.slice else one.name
            for one in needed
            if not listed or one.node in listed
        ]
        _require_names(folder, names)


def _require_names(folder: str, names: Sequence[str]) -> None:
    """TensorFlow 1: the variables go by the names of the graph."""
    from ckpttool.sources.registry import open_source

    with open_source(folder) as source:
        missing = sorted({name for name in names if source.lookup(name) is None})
    if missing:
        raise IncompleteError(
            f"{folder} lacks values",
            why=f"{len(missing)} variables of its graph are not in its checkpoint: "
            f"{', '.join(missing[:20])}",
            hint="take the graph and the variables of one export",
            id="graph-variables-missing",
        )
