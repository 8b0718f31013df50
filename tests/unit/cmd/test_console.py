"""Output of commands on a terminal, and in the pager where it cannot show all at once."""

import io
import os
import pty
import re
import sys
from collections.abc import Callable, Iterator

import pytest
from rich.console import RenderableType

from compute_agent.cmd.output import new_table, print_paged

LINES = 10


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[RenderableType], str]]:
    """What a terminal of ten lines gets of a text."""
    monkeypatch.setenv("LINES", str(LINES))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("PAGER", "sed s/^/paged:/")
    reader, writer = pty.openpty()

    def get(text: RenderableType) -> str:
        with os.fdopen(os.dup(writer), "w") as terminal, monkeypatch.context() as patched:
            patched.setattr(sys, "stdout", terminal)
            print_paged(text)
        return os.read(reader, 65536).decode().replace("\r\n", "\n")

    yield get
    os.close(reader)
    os.close(writer)


def test_what_fits_on_the_terminal_is_printed(printed: Callable[[RenderableType], str]) -> None:
    assert printed("a\nb") == "a\nb\n"


def test_what_does_not_fit_goes_through_the_pager(printed: Callable[[RenderableType], str]) -> None:
    assert printed("line\n" * LINES).count("paged:line") == LINES


@pytest.mark.parametrize("pager", ["", "no-such-pager --at-all"])
def test_without_a_pager_all_of_it_is_printed(
    printed: Callable[[RenderableType], str], monkeypatch: pytest.MonkeyPatch, pager: str
) -> None:
    monkeypatch.setenv("PAGER", pager)
    assert printed("line\n" * LINES).count("line") == LINES


def test_a_file_gets_it_without_a_pager(
    printed: Callable[[RenderableType], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", output := io.StringIO())
    print_paged("line\n" * LINES)
    assert output.getvalue().count("line") == LINES


def test_no_line_of_a_table_ends_with_spaces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", output := io.StringIO())
    print_paged(new_table(("name", "why"), [("a", "something long"), ("b", "short"), ("c", "")]))
    lines = output.getvalue().splitlines()
    assert lines == ["name  why", "a     something long", "b     short", "c"]


def test_no_line_of_a_table_on_a_terminal_ends_with_spaces(
    printed: Callable[[RenderableType], str],
) -> None:
    table = new_table(("name", "why"), [("a", "something long"), ("b", "short")])
    assert not re.search(r" +(\x1b\[0m)?$", printed(table), re.MULTILINE)
