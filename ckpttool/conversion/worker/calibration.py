"""Real inputs for a converter that measures ranges: single examples, checked.

They come out of an ``.npz`` (an array for each input, whose first dimension counts the
examples) or from a function of the person's own (``FILE.py:FUNCTION``), which gives any
number of dicts of such arrays, for a model of several signatures as pairs of a name and a
dict. Knows no converter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ckpttool.conversion.ports import Port, Signature
from ckpttool.conversion.worker.array_data import in_dtype, read_arrays
from ckpttool.conversion.worker.factory import load_function, require_callable, same_directory
from ckpttool.conversion.worker.own_code import FAILURES, function_failed, print_own
from ckpttool.errors import NotFoundError, UsageError
from ckpttool.policy.words import count

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Calibration", "open_calibration"]

_OPTION = "--calibration"
_ID = "calibration-data"
#: "A few hundred" is what TensorFlow asks for
#: (tensorflow/lite/python/lite.py: RepresentativeDataset); below this we say so.
_ENOUGH = 100

#: A signature, and arrays of examples by input.
Batch = tuple[str, Mapping[str, Any]]


@dataclass(slots=True)
class Calibration:
    """What a model is measured with.

    Attributes:
        spec: where it comes from, for errors.
        signatures: what is to be measured; a dimension that is fixed has its final size.
        batches: gives the data as they come.
        counts: how many examples each signature was measured with, once ``samples`` is
            exhausted.
        unused: rows that were too few for one more example.
        constant: signature, input → the value of all its elements; None: they differ.
    """

    spec: str
    signatures: Sequence[Signature]
    batches: Callable[[], Iterator[Batch]]
    counts: Counter[str] = field(default_factory=Counter)
    unused: int = 0
    constant: dict[tuple[str, str], Any] = field(default_factory=dict)

    def samples(self) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
        """One example after the other, with its signature; each signature has some.

        All of a signature have the same shapes, which the first of them decides: a
        converter measures with one size only. Where the first dimension is fixed an example
        is as many rows as that.

        Raises:
            UsageError, NotFoundError: id ``calibration-data``: they do not fit, or are none.
            ConversionError: id ``model-function-failed``: the person's function raised something.
        """
        self.counts.clear()  # one quantiser asks for them twice
        self.unused = 0
        self.constant.clear()
        known = {one.name: one for one in self.signatures}
        shapes: dict[str, dict[str, tuple[int, ...]]] = {}
        for name, arrays in self.batches():
            if name not in known:
                raise self._misfit(
                    f"it gives examples of a signature {name}",
                    f"the signatures are {', '.join(known)}",
                )
            for sample in self._examples(known[name], arrays):
                sizes = {key: array.shape for key, array in sample.items()}
                first = shapes.setdefault(name, sizes)
                if sizes != first:
                    raise self._misfit(
                        f"example {self.counts[name] + 1} of {name} has the shapes "
                        f"{_sizes_text(sizes)}, and the first {_sizes_text(first)}",
                        "pad or cut them to one size",
                    )
                self._note_constants(name, sample)
                self.counts[name] += 1
                yield name, sample
        missing = [name for name in known if not self.counts[name]]
        if missing:
            raise self._misfit(
                f"it has no examples for {', '.join(missing)}",
                "every signature that is converted is measured; --signature chooses some",
            )

    @property
    def warnings(self) -> list[str]:
        """What a person should know, once ``samples`` is exhausted."""
        found = [
            f"{name} was measured with {count(number, 'example')} of {self.spec}; some hundred "
            "say more about the range of its values"
            for name, number in self.counts.items()
            if number < _ENOUGH
        ]
        for name in self.counts:
            values = [value for (of, _), value in self.constant.items() if of == name]
            if values and all(value is not None for value in values):
                found.append(
                    f"all examples of {name} in {self.spec} are one value: ranges that were "
                    "measured so are of no use for real inputs, and the check has no others; "
                    "--check-data gives it some"
                )
        if self.unused:
            found.append(
                f"{self.unused} rows of {self.spec} were too few for a batch, and not used"
            )
        return found

    def _note_constants(self, name: str, sample: Mapping[str, np.ndarray]) -> None:
        """Remember which inputs have had one value only, in every element."""
        for key, array in sample.items():
            if array.size:
                value = self.constant.setdefault((name, key), array.flat[0])
                if value is not None and (array != value).any():
                    self.constant[name, key] = None

    def _examples(
        self, signature: Signature, arrays: Mapping[str, Any]
    ) -> Iterator[dict[str, np.ndarray]]:
        """Cut a batch into examples."""
        missing = [one.name for one in signature.inputs if one.name not in arrays]
        if missing:
            raise NotFoundError(
                f"{_OPTION} {self.spec} lacks inputs",
                why=f"there is no {', '.join(missing)} for {signature.name}",
                hint="name the arrays as the inputs of the signature are named",
                id=_ID,
            )
        values = {one.name: self._value(one, arrays[one.name]) for one in signature.inputs}
        columns = {
            port.name: _Column(values[port.name], port.shape[0] or 1 if port.shape else 1)
            for port in signature.inputs
            if values[port.name].ndim
        }
        counts = {one.examples for one in columns.values()} or {1}
        if len(counts) > 1 or not min(counts):
            rows = ", ".join(
                f"{name} has {count(len(one.array), 'row')}" for name, one in columns.items()
            )
            said = "have not the same number of examples" if len(counts) > 1 else "have no example"
            raise self._misfit(
                f"the inputs of {signature.name} {said}: {rows}",
                "the first dimension of every array counts the examples"
                + (", which --batch makes of several rows" if _fixed(signature) else ""),
            )
        self.unused += max((len(one.array) % one.rows for one in columns.values()), default=0)
        scalars = {port.name for port in signature.inputs if port.shape == ()}
        for number in range(counts.pop()):
            yield {
                name: columns[name].example(number, is_scalar=name in scalars)
                if name in columns
                else value
                for name, value in values.items()
            }

    def _value(self, port: Port, given: Any) -> np.ndarray:  # noqa: ANN401
        """What is given for an input, in its dtype; of a scalar one value, or one an example."""
        import numpy as np

        try:
            array = np.asarray(given)
        except (ValueError, TypeError) as error:  # rows of several lengths
            raise self._misfit(
                f"{port.name} is no array: {' '.join(str(error).split())[:200]}",
                "give numpy arrays, all examples of one size",
            ) from None
        shape = (None, *array.shape[1:]) if port.shape is None else port.shape
        if shape:
            fits = array.ndim == len(shape)
            fits = fits and all(
                a in {None, b} for a, b in zip(shape[1:], array.shape[1:], strict=True)
            )
        else:
            fits = array.ndim <= 1
        found = in_dtype(array, port.dtype) if fits else None
        if found is None:
            raise self._misfit(
                f"{port.name} is {array.dtype.name}{list(array.shape)}, and the input is "
                f"{port.text}",
                "an array is a batch: its first dimension counts the examples",
            )
        if found.dtype.kind not in "OSUb" and not np.isfinite(found).all():
            raise self._misfit(
                f"{port.name} has values that are NaN or infinite",
                "leave these examples out: a range that has no end cannot be divided",
            )
        return found

    def _misfit(self, why: str, hint: str) -> UsageError:
        return UsageError(
            f"{_OPTION} {self.spec} cannot be used to measure ranges", why=why, hint=hint, id=_ID
        )


class _Column(NamedTuple):
    """The values of an input in a batch, ``rows`` of them an example."""

    array: np.ndarray
    rows: int

    @property
    def examples(self) -> int:
        return len(self.array) // self.rows

    def example(self, number: int, *, is_scalar: bool) -> np.ndarray:
        import numpy as np

        if is_scalar:
            return np.asarray(self.array[number])
        return self.array[number * self.rows : (number + 1) * self.rows]


def open_calibration(spec: str, signatures: Sequence[Signature]) -> Calibration:
    """The data that ``--calibration`` names: ``data.npz`` or ``FILE.py:FUNCTION``.

    Args:
        spec: as it was given.
        signatures: what is to be measured.

    Raises:
        NotFoundError, UsageError: ids ``calibration-data``, ``model-function``.
        ConversionError: id ``model-function-failed``: a module failed when it was imported.
    """
    if ":" in spec and not spec.lower().endswith(".npz"):
        function = load_function(spec, _OPTION)
        hint = "it is called without any: give those that it needs a default"
        require_callable(function, spec, {}, _OPTION, hint)
        return Calibration(spec, signatures, lambda: _of_function(spec, function, signatures))
    names = {port.name for one in signatures for port in one.inputs}
    arrays = read_arrays(spec, names.__contains__, option=_OPTION, id=_ID)
    return Calibration(spec, signatures, lambda: ((one.name, arrays) for one in signatures))


def _of_function(
    spec: str, function: Callable[[], Any], signatures: Sequence[Signature]
) -> Iterator[Batch]:
    """What a person's function gives, whatever goes wrong in it named as its own."""
    try:
        with same_directory():
            given = function()
            is_series = hasattr(given, "__iter__") or hasattr(given, "__getitem__")
            batches = iter(given if is_series else ())
    except FAILURES as error:
        print_own(error)
        raise function_failed(spec, error, _OPTION) from error
    if not is_series:
        what = "nothing" if given is None else f"a {type(given).__name__}"
        raise _not_batches(spec, f"it returns {what}, and has to give any number of", signatures)
    while True:
        try:
            with same_directory():
                batch = next(batches)
        except StopIteration:
            return
        except FAILURES as error:
            print_own(error)
            raise function_failed(spec, error, _OPTION) from error
        yield _named(spec, batch, signatures)


def _named(spec: str, batch: Any, signatures: Sequence[Signature]) -> Batch:  # noqa: ANN401
    """A batch with its signature; where there is only one it need not be named."""
    if isinstance(batch, Mapping) and len(signatures) == 1:
        return signatures[0].name, batch
    if isinstance(batch, tuple) and len(batch) == len(("signature", "arrays")):
        name, arrays = batch
        if isinstance(name, str) and isinstance(arrays, Mapping):
            return name, arrays
    raise _not_batches(spec, f"it gives a {type(batch).__name__}, and has to give", signatures)


def _not_batches(spec: str, said: str, signatures: Sequence[Signature]) -> UsageError:
    wanted = "(signature, {input: array})" if len(signatures) > 1 else "{input: array}"
    return UsageError(
        f"{_OPTION} {spec} cannot be used to measure ranges",
        why=f"{said} {wanted}",
        hint=f"the signatures are {', '.join(one.name for one in signatures)}",
        id=_ID,
    )


def _fixed(signature: Signature) -> bool:
    return any(port.shape and port.shape[0] is not None for port in signature.inputs)


def _sizes_text(sizes: Mapping[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{name}{list(shape)}" for name, shape in sizes.items())
