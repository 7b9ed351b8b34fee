"""The live page: one document that needs nothing from elsewhere, and its policy."""

from __future__ import annotations

import re
from base64 import b64encode
from functools import cache
from hashlib import sha256
from pathlib import Path

__all__ = ["page"]

_PART = re.compile(r"<(style|script)>(.*?)</\1>", re.DOTALL)


@cache
def page() -> tuple[bytes, str]:
    """The document, and a Content-Security-Policy that allows its own parts alone."""
    text = Path(__file__).with_name("page.html").read_text("utf-8")
    hashes = {kind: _hash(content) for kind, content in _PART.findall(text)}
    policy = (
        f"default-src 'none'; style-src '{hashes['style']}'; script-src '{hashes['script']}'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return text.encode(), policy


def _hash(content: str) -> str:
    return f"sha256-{b64encode(sha256(content.encode()).digest()).decode()}"
