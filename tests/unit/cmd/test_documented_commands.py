"""Command lines of this project's programs in docs/learn and docs/do: the parsers take each.

Blocks that a test runs are among them, and those that need a cloud, which nothing else checks.
"""

import re
import shlex
import uuid
from pathlib import Path

import pytest

from tests.functional.documentation.shell_blocks import blocks_of
from tools.man_pages import parsers

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGES = [page for kind in ("learn", "do") for page in sorted((DOCS / kind).glob("*.md"))]
PROGRAMS = {parser.prog: parser for parser in parsers()}
INLINE = re.compile(r"`([^`\n]+)`")
BLOCK = re.compile(r"```.*?```", re.DOTALL)
CONFIGURATION = re.compile(r"--config-file[ =]\S+\s*")
"""Taken before and after every command; `test_configuration_files` holds that."""
END = re.compile(r"\s*(?:\||&&|;|#|[12]?>{1,2}|<)\s*")
"""Where a command ends in a line of the shell."""


def call_in(line: str) -> str | None:
    """The call of one of the programs that a line begins with."""
    command = END.split(line)[0].strip().removeprefix("sudo -u compute-agent ")
    program, _, arguments = command.partition(" ")
    return f"{program} {arguments.strip()}" if program in PROGRAMS and arguments else None


def calls(page: Path) -> dict[str, bool]:
    """Calls of the programs on a page, and whether each is complete, as in a block of the shell."""
    text = page.read_text()
    blocks = "\n".join(block.text.replace("\\\n", "") for block in blocks_of(text))
    lines = dict.fromkeys(INLINE.findall(BLOCK.sub("", text)), False)
    lines |= dict.fromkeys(blocks.split("\n"), True)
    return {call: complete for line, complete in lines.items() if (call := call_in(line))}


CALLS = [(call, complete) for page in PAGES for call, complete in calls(page).items()]


@pytest.mark.parametrize(("call", "complete"), sorted(set(CALLS)), ids=str)
def test_a_command_of_a_page_is_one_that_the_program_has(
    call: str, complete: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    line = CONFIGURATION.sub("", call).replace("UUID", str(uuid.uuid4()))
    program, *words = shlex.split(line)
    try:
        PROGRAMS[program].parse_args(words)
    except SystemExit:
        # a sentence may leave out what is obvious there
        error = capsys.readouterr().err
        assert not complete, error
        assert "arguments are required" in error, error


def test_commands_are_found_in_text_and_in_blocks() -> None:
    assert calls(DOCS / "do" / "drains.md")["compute-manage host drain host-17 --undo"]
    assert not calls(DOCS / "do" / "troubleshooting.md")["placement-manage audit --repair"]
