"""Plain text tables, as OpenStack's command line tools draw them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def text_table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Return the lines of a table: the first row is its heading, the first column left-aligned."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    rule = "+" + "+".join("-" * (width + 2) for width in widths) + "+"
    yield rule
    for number, row in enumerate(rows):
        cells = [
            cell.center(width) if number == 0 or column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "| " + " | ".join(cells) + " |"
        if number == 0:
            yield rule
    yield rule
