"""Suggestions for a name that nobody knows."""

from __future__ import annotations

import difflib
from typing import Iterable


def suggest(name: str, known: Iterable[str]) -> str:
    """Returns ', nearest: a, b' for the up to three known names like `name`, or ''."""
    by_folded = {candidate.lower(): candidate for candidate in known}
    close = difflib.get_close_matches(name.lower(), by_folded, n=3, cutoff=0.55)
    return ", nearest: " + ", ".join(map(by_folded.get, close)) if close else ""
