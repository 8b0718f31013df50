"""Output of the commands: tables and the pager for people, JSON and plain values for scripts."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from compute_agent import errors
from compute_agent.programs.printable import ORDER, printable, terminal

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

_WIDE: Final = 4000

_LESS: Final = "FRX"
"""Options of less as git gives them: end where one screen is enough, keep colours and the text."""


def new_console() -> Console:
    """Return a console of the standard output; a pipe has no width, so nothing is broken for it."""
    from rich.console import Console
    from rich.segment import Segment

    class NamesShown(Console):
        """A console whose only orders to the terminal are its own."""

        def render(self, *arguments: Any, **keywords: Any) -> Iterator[Segment]:
            for segment in super().render(*arguments, **keywords):
                if segment.control is None and ORDER.search(segment.text):
                    yield Segment(printable(segment.text), segment.style)
                else:
                    yield segment

    width = None if sys.stdout.isatty() else _WIDE
    return NamesShown(highlight=False, width=width, file=terminal(sys.stdout))


def columns(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Yield lines in which the cells of each column begin below each other."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip()


def new_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """Return a table without lines, numbers to the right; cells that are too long are broken."""
    from rich.segment import Segment
    from rich.table import Table
    from rich.text import Text

    class TableWithoutPadding(Table):
        """A table whose lines end with their last text, as it is pasted and compared."""

        def __rich_console__(self, *arguments: Any) -> Iterator[Segment]:
            parts = super().__rich_console__(*arguments)
            segments = (part for part in parts if isinstance(part, Segment))
            for line in Segment.split_lines(segments):
                while line and not line[-1].text.strip():
                    line.pop()
                if line:
                    yield from line[:-1]
                    yield Segment(line[-1].text.rstrip(), line[-1].style)
                yield Segment.line()

    made = TableWithoutPadding(box=None, header_style="bold", pad_edge=False)
    lines = [list(map(text_of, row)) for row in rows]
    for position, heading in enumerate(headings):
        is_number = bool(lines) and all(_is_number(line[position]) for line in lines)
        made.add_column(heading, justify="right" if is_number else "left", overflow="fold")
    for line in lines:
        made.add_row(*map(Text, line))
    return made


def print_paged(part: RenderableType) -> None:
    """Print; in the program of `PAGER` (less by default) what a terminal cannot show at once."""
    console = new_console()
    if not sys.stdout.isatty():
        console.print(part)
        return
    with console.capture() as capture:
        console.print(part)
    text = capture.get()
    pager = shlex.split(os.environ.get("PAGER", "less"))
    if text.count("\n") < console.height or not pager or shutil.which(pager[0]) is None:
        terminal(sys.stdout).write(text)
        return
    import subprocess  # no agent does

    sys.stdout.flush()
    subprocess.run(
        pager,
        input=text,
        text=True,
        check=False,
        stdout=sys.stdout,
        env={"LESS": _LESS, **os.environ},
    )


class UnknownColumn(errors.ComputeAgentError):
    """A column that the output does not have."""


def print_json(document: object) -> None:
    """Print a document for scripts."""
    print(json.dumps(document, indent=2))


def show(namespace: argparse.Namespace, document: object, *lines: str) -> None:
    """Print a document for scripts, or the same as lines for people."""
    if namespace.json:
        print_json(document)
    elif lines:
        print("\n".join(lines))


def show_rows(
    namespace: argparse.Namespace,
    headings: Sequence[str],
    rows: Iterable[Sequence[object]],
    document: object,
) -> None:
    """Print something that there are several of.

    :param document: the same as it is printed for `--json`.
    """
    if namespace.format == "json":
        print_json(document)
        return
    if namespace.format == "value":
        for row in chosen_cells(namespace, headings, rows):
            print(" ".join(row))
        return
    print_paged(chosen_table(namespace, headings, rows))


def chosen_cells(
    namespace: argparse.Namespace, headings: Sequence[str], rows: Iterable[Sequence[object]]
) -> list[list[str]]:
    """Return the texts of the chosen columns.

    :raises UnknownColumn: there is none of a name.
    """
    columns = chosen_columns(namespace, headings)
    return [[text_of(row[number]) for number in columns] for row in rows]


def chosen_table(
    namespace: argparse.Namespace, headings: Sequence[str], rows: Iterable[Sequence[object]]
) -> Table:
    """Return the chosen columns as a table.

    :raises UnknownColumn: there is none of a name.
    """
    chosen_headings = [headings[number] for number in chosen_columns(namespace, headings)]
    return new_table(chosen_headings, chosen_cells(namespace, headings, rows))


def show_record(namespace: argparse.Namespace, document: Mapping[str, Any]) -> None:
    """Print one thing: a line for each of its fields."""
    if namespace.format == "value":
        names = list(document)
        for position in chosen_columns(namespace, names):
            print(text_of(document[names[position]]))
        return
    fields = [field for field in document.items() if field[0] in (namespace.column or document)]
    everything = argparse.Namespace(format=namespace.format, column=[])
    show_rows(everything, ("field", "value"), fields, document)


def chosen_columns(namespace: argparse.Namespace, headings: Sequence[str]) -> list[int]:
    """Return the positions of the columns that were asked for.

    :raises UnknownColumn: there is none of a name.
    """
    for column in namespace.column:
        if column not in headings:
            raise UnknownColumn(
                f"There is no column {column!r}: the columns are {', '.join(headings)}."
            )
    return [headings.index(column) for column in namespace.column] or list(range(len(headings)))


def text_of(value: object) -> str:
    """Return a value as a table shows it, without orders to the terminal in its names."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ",".join(f"{name}={text_of(entry)}" for name, entry in sorted(value.items())) or "-"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ",".join(text_of(entry) for entry in value)
    if isinstance(value, float):
        return f"{value:g}"
    return printable(str(value))


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).removeprefix("-").isdigit()
