"""Fails where a page states another figure than docs/figures.toml, or no longer states it."""

import decimal
import pathlib
import re
import sys
import tomllib
from collections.abc import Iterator
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCE = "docs/figures.toml"
NUMBER = r"\d+(?: \d{3})*(?:\.\d+)?"
TEXT = rf"{NUMBER}(?: [a-z]+ {NUMBER} [a-z]+)?"  # "2 min 14 s"


def figures(table: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """All figures below a table, with their names."""
    if "value" in table:
        yield path, table
        return
    for name, below in table.items():
        yield from figures(below, f"{path}.{name}" if path else name)


def words_of(page: pathlib.Path) -> str:
    """Lines may break anywhere."""
    return " ".join(page.read_text(encoding="utf-8").split())


def states(stated: str, value: decimal.Decimal | int | str) -> bool:
    """Whether this is the value, or the value rounded to as many decimals."""
    if isinstance(value, str):
        return stated == value
    number = decimal.Decimal(stated.replace(" ", ""))
    return number == decimal.Decimal(value).quantize(number, rounding=decimal.ROUND_HALF_UP)


def faults_of(name: str, figure: dict[str, Any]) -> Iterator[str]:
    for key in ("value", "date", "origin", "stated"):
        if key not in figure:
            yield f"{SOURCE}: {name} has no {key}"
            return
    value = figure["value"]
    for pages, words in figure["stated"]:
        before, after = (re.escape(part) for part in words.split("{}"))
        pattern = re.compile(f"{before}({TEXT if isinstance(value, str) else NUMBER}){after}")
        places = [(page, found[1]) for page in sorted(ROOT.glob(pages)) for found in pattern.finditer(words_of(page))]
        if not places:
            yield f"{pages}: found no '{words}'; expected {name}, {value}: mend the page, or its words in {SOURCE}"
        for page, stated in places:
            if not states(stated, value):
                yield (
                    f"{page.relative_to(ROOT)}: '{words}' states {stated}; expected {value}, which may be rounded: it is "
                    f"{name} of {SOURCE}, from: {figure['origin']}"
                )


def main() -> int:
    with (ROOT / SOURCE).open("rb") as file:
        table = tomllib.load(file, parse_float=decimal.Decimal)
    faults = [fault for name, figure in figures(table) for fault in faults_of(name, figure)]
    statements = sum(len(figure.get("stated", [])) for _, figure in figures(table))
    print("\n".join(faults) or f"{statements} statements agree with {SOURCE}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
