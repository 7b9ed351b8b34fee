"""The job of the child that converts, and its answer: what crosses the process border.

``Origin`` is where the graph and the values come from, as the parent found it without
TensorFlow (``origin.py``); the child follows it and decides nothing of that again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ckpttool.conversion.ports import Signature
from ckpttool.conversion.request import Request

__all__ = ["Case", "Execution", "GraphKind", "Job", "Made", "Origin", "Ran"]

GraphKind = Literal["graph", "savedmodel", "model", "keras", "values", "export"]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the graph and the values come from.

    Attributes:
        kind: a graph file, a SavedModel, a function that builds the model, a Keras file; of
            what needs no child: values alone, an export that is refreshed.
        graph: the path of the graph file, the SavedModel or the Keras file; for a model
            the function (``file.py:function``).
        values: the address of the source that has the values; None where the graph has
            them as constants (a frozen graph), or the file holds both.
        signatures: what a graph file is to compute, with the tensors of its graph; empty
            where only the child can tell, or the SavedModel has its own.
        tags: of the SavedModel's graph.
        notes: how the source was understood, for a person.
        warnings: what is odd about it.
    """

    kind: GraphKind
    graph: str
    values: str | None
    signatures: tuple[Signature, ...] = ()
    tags: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Job:
    """What the task ``convert`` is to do.

    Attributes:
        request: what was asked for.
        origin: where it comes from.
        artefact: the path at which the result is to be written.
        cases: a directory for the reference of the check; None: none is wanted.
    """

    request: Request
    origin: Origin
    artefact: str
    cases: str | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """One run of the restored original: the reference of the check.

    ``path`` is an ``.npz`` with ``in:NAME`` and ``out:NAME`` members. bfloat16 and float8
    are float32 there, which holds them exactly; strings are NumPy's ``S`` arrays.
    ``label:NAME`` is the right answer for an output, where data with labels were given.
    ``precision`` is the narrow dtype with which the graph computes, empty elsewhere.
    """

    signature: str
    batch: int | None
    path: str
    precision: str = ""


@dataclass(frozen=True, slots=True)
class Made:
    """The answer: what was made.

    Attributes:
        signatures: the result's.
        warnings: what a person should know.
        cases: the reference, empty where none was wanted, or none could be made.
        reference: the signatures of what it is of.
        unchecked: which signatures have no reference and why; empty where all have one.
        seconds: what was done → how long it took.
        facts: what else the target tells for the report.
        versions: library → version, of those that took part.
    """

    signatures: tuple[Signature, ...]
    warnings: tuple[str, ...] = ()
    cases: tuple[Case, ...] = ()
    reference: tuple[Signature, ...] = ()
    unchecked: str = ""
    seconds: dict[str, float] = field(default_factory=dict)
    facts: dict[str, object] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Execution:
    """What the task ``execute`` is to do: run a result on the inputs of the reference.

    Attributes:
        target: its kind.
        path: where it lies.
        signatures: what it should take and give.
        cases: the reference.
        folder: a directory for its outputs.
        batch: the size of batches that it was made for; None: any.
    """

    target: str
    path: str
    signatures: tuple[Signature, ...]
    cases: tuple[Case, ...]
    folder: str
    batch: int | None = None


@dataclass(frozen=True, slots=True)
class Ran:
    """The answer: what the result computed.

    Attributes:
        cases: for each case of the reference that it could run, a file of ``out:NAME``
            members, under the reference's names; ``path`` of the reference's case is the key.
        problems: why it is no equal of the reference, whatever it computes: signatures,
            inputs or outputs that are missing, and what raised an error.
        notes: how names that differ were matched.
        versions: the runtime and its version.
    """

    cases: dict[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)
