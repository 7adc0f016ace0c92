"""Picks C functions out of texts: what an exported policy needs, and nothing else.

The engine's own text is the first source, read as one lane: `float` for eight floats.
So a formula stands once, in acme_quant/kernels, for the engine and for every export.
"""

from __future__ import annotations

import functools
import pathlib
import re

_HERE = pathlib.Path(__file__).parent
_KERNELS = _HERE.parent / "kernels"

# A name is looked up in this order. `runtime.c` goes first: it has of its own what the
# engine does with vectors.
_SOURCES = (
    _HERE / "runtime.c",
    _KERNELS / "half.h",
    _KERNELS / "lanes.h",
    _KERNELS / "kernels.h",
    _KERNELS / "portable.c",
    _KERNELS / "rows.h",
    _KERNELS / "operations.c",
)

# What makes one lane of a text of eight, in this order.
_ONE_LANE = (
    (r"#define LANES_INLINE .*\n", ""),
    (r"\(f8\)(?=[\w(])", "float_of "),
    (r"\(u8\)(?=[\w(])", "bits_of "),
    (r"\(i8\)(?=[\w(])", "(int32_t)bits_of "),
    (r"\bf8\b", "float"),
    (r"\bu8\b", "uint32_t"),
    (r"\bi8\b", "int32_t"),
    (r"\bint64_t\b", "int32_t"),
    (r"\bLANES_INLINE\b", "static inline"),
    (r"\b(float_of|bits_of) (\w+\([^()]*\)|\w+)", r"\1(\2)"),
    (r"\b(float_of|bits_of) \(", r"\1("),
    (r"_lanes\b", "_one"),
)


def picked(text: str) -> str:
    """Returns the definitions that `text` uses, each after those that it uses."""
    found: dict[str, str] = {}
    _pick(text, found, set())
    return "\n\n".join(dict.fromkeys(found.values())) + "\n"


def _pick(text: str, found: dict[str, str], seen: set[str]) -> None:
    definitions = _definitions()
    code = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    # A function is used where it is called: a variable may have its name.
    called = {f"{name}(" for name in re.findall(r"(\w+)\(", code)}
    for name in sorted(called | set(re.findall(r"\w+", code))):
        if name in definitions and name not in seen:
            seen.add(name)
            _pick(definitions[name], found, seen)
            found[name] = definitions[name]


@functools.cache
def _definitions() -> dict[str, str]:
    """Returns name, `name(` of a function -> definition, with the comment above it."""
    found: dict[str, str] = {}
    for path in _SOURCES:
        text = path.read_text()
        if path.parent == _KERNELS:
            for pattern, replacement in _ONE_LANE:
                text = re.sub(pattern, replacement, text)
        for item in _items(text):
            name = _name(item)
            if name:
                found.setdefault(name, item)
    return found


def _items(text: str) -> list[str]:
    """Returns the definitions of a text: each ends where a line of its own does."""
    items, lines = [], []
    for line in text.splitlines():
        lines.append(line)
        inside = line.startswith((" ", "/*")) and not line.endswith("*/")
        if not line or (line.startswith("#") and not line.startswith("#define")):
            lines = []
        elif not inside and re.search(r"(^}.*|[;}])$|^#define.*[^\\]$", line):
            items.append("\n".join(lines))
            lines = []
    return items


def _name(item: str) -> str:
    """Returns what a definition defines, '' if it is none that can be picked."""
    code = re.sub(r"/\*.*?\*/", "", item, flags=re.S).strip()
    for pattern in (
        r"#define (\w+) ",
        r"typedef struct \{.*\} (\w+);$",
        r"enum \{ (\w+) = ",
        r"static (?:inline )?[\w *]*?(\w+\()",
    ):
        match = re.match(pattern, code, flags=re.S)
        if match:
            return match[1]
    return ""
