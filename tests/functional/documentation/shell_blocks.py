"""Shell blocks of a page, and the script that runs them as a reader would type them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

_BLOCK: Final = re.compile(
    r"(?:<!-- (?P<mark>[^\n]*?) -->\n+)?^(?P<indent> *)```sh\n(?P<text>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)
_DOCS: Final = Path(__file__).parents[3] / "docs"
_WITH: Final = re.compile(r"run (with \S.*)")
_NOT_RUN: Final = re.compile(r"not run: (\S.*)")
SECONDS: Final = 60
"""Seconds that a block may take, and one that waits for something to have happened."""


class Manner(Enum):
    """The way a block is run."""

    ONCE = None
    BACKGROUND = "run: in the background"
    UNTIL_IT_SUCCEEDS = "run: until it succeeds"
    FAILING = "run: it fails"
    PLANNING = "run: it may find changes"
    IN_ANOTHER_TEST = "run with"
    NEVER = "not run"


@dataclass(frozen=True, slots=True)
class Block:
    """One block, as a reader would paste it.

    :param note: the reason why it is not run, or what the test that runs it has.
    """

    text: str
    manner: Manner
    note: str = ""


def blocks_of(page: str) -> Iterator[Block]:
    """Yield the blocks of a page; ValueError where a mark is none that is known."""
    for found in _BLOCK.finditer(page):
        mark = found["mark"]
        text = re.sub(f"^{found['indent']}", "", found["text"], flags=re.MULTILINE)
        if mark and (never := _NOT_RUN.fullmatch(mark)):
            yield Block(text, Manner.NEVER, never[1])
        elif mark and (surroundings := _WITH.fullmatch(mark)):
            yield Block(text, Manner.IN_ANOTHER_TEST, surroundings[1])
        else:
            yield Block(text, Manner(mark))


def commands_of(block: str) -> list[list[str]]:
    """Return the words of each command of a block that has nothing but plain commands."""
    lines = block.replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def pages() -> list[Path]:
    """Return the pages to learn from and to act by."""
    return sorted(path for kind in ("learn", "do") for path in (_DOCS / kind).glob("*.md"))


class BlocksToRun:
    """Blocks of all pages that one test runs, which takes them page by page in their order.

    :param surroundings: what the marks of these blocks name, such as "with a Keystone".
    """

    def __init__(self, surroundings: str) -> None:
        self._blocks = {
            f"{page.parent.name}/{page.stem}": [
                block.text for block in blocks_of(page.read_text()) if block.note == surroundings
            ]
            for page in pages()
        }

    def next_of(self, page: str) -> str:
        """Take the next block of a page, such as "do/install"."""
        return self._blocks[page].pop(0)

    @property
    def left(self) -> dict[str, list[str]]:
        """Return the blocks that were not taken."""
        return {page: blocks for page, blocks in self._blocks.items() if blocks}


def script_of(page: Path, replaced: dict[str, str]) -> str:
    """The blocks of a page as one script, which ends at the first that does not do what it should.

    :param replaced: texts by what takes their place, such as addresses of the reader's machine.
    """
    lines = ["set -eu -o pipefail"]
    for block in blocks_of(page.read_text()):
        text = block.text
        for old, new in replaced.items():
            text = text.replace(old, new)
        if block.manner is Manner.ONCE:
            lines.append(text)
        elif block.manner is Manner.BACKGROUND:
            lines.append(f"({text}) >>background.log 2>&1 &")
        elif block.manner is Manner.FAILING:
            lines.append(f"if (set -e\n{text}); then echo 'this block was to fail'; exit 1; fi")
        elif block.manner is Manner.PLANNING:
            # bash ignores `set -e` in what stands before `||`
            lines.append(f"set +e\n(set -e\n{text})\nstatus=$?\nset -e")
            lines.append("[ $status = 0 ] || [ $status = 6 ]")
        elif block.manner is Manner.UNTIL_IT_SUCCEEDS:
            lines.append(
                f"deadline=$((SECONDS + {SECONDS}))\nuntil (set -e\n{text}); do\n"
                "  [ $SECONDS -lt $deadline ] || { cat background.log; exit 1; }\n  sleep 0.2\ndone"
            )
    return "\n".join(lines)
