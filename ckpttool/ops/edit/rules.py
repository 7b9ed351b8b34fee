"""How a person says which names become which: ``s/old/new/gi``, ``OLD=NEW``, or a map.

Pure: text → functions from a name to a name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ckpttool.errors import UsageError

__all__ = ["Exact", "Pattern", "Rule", "parse_rename", "reason_of"]

_SED = re.compile(r"s([^\w\s\\])(.*)", re.DOTALL | re.ASCII)
_FLAGS = frozenset("gi")
#: In a replacement: an escape, or the sign for all that was found.
_SIGNS = re.compile(r"\\(.)|&", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Pattern:
    """``s/a/b/``: applies to every name in which the expression is found."""

    text: str
    replace: Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Exact:
    """Old names and their new ones, all at once, so that two can be exchanged."""

    text: str
    names: Mapping[str, str]

    def replace(self, name: str) -> str:
        """The new name of a name; the same where there is none."""
        return self.names.get(name, name)


Rule = Pattern | Exact


def parse_rename(text: str) -> Rule:
    r"""One ``--rename``.

    ``s/a/b/`` with any character in the place of ``/`` (``\/`` stands for it inside), the
    flags ``g`` (everywhere, not only the first) and ``i`` (capitals or not); the expression
    is Python's, and in the replacement ``&`` is all that was found and ``\1`` a group.
    Anything else is ``OLD=NEW``.

    Raises:
        UsageError: it is neither, or the expression makes no sense.
    """
    parts = _sed_parts(text)
    if parts is None:
        old, sign, new = text.partition("=")
        if not sign or not old or not new:
            raise _broken(text, "it is neither s/OLD/NEW/ nor OLD=NEW")
        return Exact(f"--rename {text}", {old: new})
    found, replacement, flags = parts
    if not _FLAGS.issuperset(flags) or len(set(flags)) != len(flags):
        raise _broken(text, f"the flags are g and i, and {flags!r} is given")
    if not found:
        raise _broken(text, "the expression is empty")
    count = 0 if "g" in flags else 1
    try:
        expression = re.compile(found, re.IGNORECASE if "i" in flags else 0)
        template = _template(replacement)
        expression.sub(template, "", count=count)
        _check_template(expression, template)
    except (re.error, IndexError, OverflowError) as error:
        raise _broken(text, str(error)) from None
    return Pattern(f"--rename {text}", lambda name: expression.sub(template, name, count=count))


def reason_of(rules: Sequence[Rule]) -> str:
    """The rules, for people, as far as they can be said in a line."""
    return "; ".join(rule.text for rule in rules) if len(rules) <= 3 else f"{len(rules)} rules"


def _sed_parts(text: str) -> tuple[str, str, str] | None:
    """Expression, replacement and flags of ``s/…/…/…``; None where it is no such thing."""
    match = _SED.fullmatch(text)
    if match is None:
        return None
    delimiter, rest = match[1], match[2]
    parts = [""]
    at = 0
    while at < len(rest):
        character = rest[at]
        if character == "\\" and at + 1 < len(rest):
            escaped = rest[at + 1]
            # In the expression the escaped delimiter is that character and no sign.
            literal = escaped == delimiter and len(parts) > 1 and escaped != "&"
            parts[-1] += escaped if literal else character + escaped
            at += 2
            continue
        if character == delimiter:
            parts.append("")
        else:
            parts[-1] += character
        at += 1
    return (parts[0], parts[1], parts[2]) if len(parts) == 3 else None


def _template(replacement: str) -> str:
    """A replacement of sed's in Python's words."""

    def sign(found: re.Match[str]) -> str:
        if found[1] is None:
            return r"\g<0>"
        return "&" if found[1] == "&" else found[0]

    return _SIGNS.sub(sign, replacement)


def _check_template(expression: re.Pattern[str], template: str) -> None:
    """Raise what a template raises when it is used, whether anything matches or not."""
    re.compile(f"(?:{expression.pattern})|", expression.flags).sub(template, "", count=1)


def _broken(text: str, why: str) -> UsageError:
    return UsageError(
        f"--rename {text} cannot be understood",
        why=why,
        hint="for example --rename 's/weights$/kernel/', 's#^old/#new/#' or old/name=new/name",
    )
