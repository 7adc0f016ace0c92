"""The pages tell what is: tables equal the data, files exist, sentences are short."""

from __future__ import annotations

import json
import pathlib
import re
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MOST_WORDS = 25

sys.path.insert(0, str(ROOT / "docs"))
import tables  # noqa: E402

each_page = pytest.mark.parametrize(
    "page", PAGES, ids=[str(path.relative_to(ROOT)) for path in PAGES]
)


@each_page
def test_tables_are_made_from_the_data(page: pathlib.Path) -> None:
    text = page.read_text()
    assert text == tables.render(text), "run: python docs/tables.py"


def test_every_table_is_shown_and_short() -> None:
    shown = {
        name for page in PAGES for _, name, _ in tables.MARK.findall(page.read_text())
    }
    assert shown >= set(tables.TABLES)
    for name, make in tables.TABLES.items():
        if name != "folders":
            assert len(make()) - 1 <= tables.MOST_ROWS, name


def test_every_file_of_data_tells_where_it_is_from_and_is_shown() -> None:
    shown = "".join(page.read_text() for page in PAGES)
    for path in tables.DATA.glob("*.json"):
        found = json.loads(path.read_text())
        assert found["rows"] and {"commit", "load"} <= set(found), path.name
        if path.stem != "aims":
            assert {"command", "machine"} <= set(found), path.name
            assert f"docs/results/data/{path.name}" in shown


def test_every_folder_has_its_line() -> None:
    named = {*tables.FOLDERS, *(f"launch/{name}" for name in tables.LAUNCH)}
    there = {
        path.parent.relative_to(ROOT).as_posix().removeprefix("acme_quant/")
        for top in ("acme_quant/*", "agents", "launch", "launch/*")
        for path in ROOT.glob(f"{top}/__init__.py")
    }
    assert named == there, "name it in FOLDERS or LAUNCH of docs/tables.py"


def paths_named(text: str) -> set[str]:
    """Returns what looks like a file or folder of this repository."""
    tops = "|".join(path.name for path in ROOT.iterdir() if path.is_dir())
    words = re.findall(rf"(?<![\w/.-])(?:{tops})/[\w./-]*[\w-]", text)
    return {word for word in words if not word.startswith("runs/")}


@each_page
def test_every_file_that_a_page_names_exists(page: pathlib.Path) -> None:
    text = page.read_text()
    for word in paths_named(text):
        assert (ROOT / word).exists(), f"{page.name} names {word}"
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (page.parent / link).exists(), f"{page.name} links {link}"


def sentences(text: str) -> list[str]:
    """Returns the sentences of prose and lists: no code, table, heading or comment."""
    text = re.sub(r"```.*?```", "\n", text, flags=re.S)
    lines = [
        "" if re.match(r"\s*(\||#|<!--)", line) else line for line in text.split("\n")
    ]
    blocks = re.split(r"\n\s*\n|\n(?=\s*[-*] )", "\n".join(lines))
    text = "\n".join(" ".join(block.split()) for block in blocks)
    text = re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`]*`", "code", text))
    return [s for s in re.split(r"(?<=[.:!?])[*_]*\s+|\n", text) if s.strip()]


@each_page
def test_sentences_are_short(page: pathlib.Path) -> None:
    long = [s for s in sentences(page.read_text()) if len(s.split()) > MOST_WORDS]
    assert not long, f"more than {MOST_WORDS} words: {long}"
