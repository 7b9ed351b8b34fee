"""The version: a literal, because asking the installed metadata costs 35 ms.

``pyproject.toml`` takes it from here.
"""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0"
