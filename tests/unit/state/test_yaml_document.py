"""YAML whose aliases stand for more than its text says, or that cannot be built."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from compute_agent.programs.yaml_text import MAX_VALUES
from compute_agent.state.documents import FileUnusable, parse_yaml


def nines(kind: str) -> str:
    """Nine levels, of which each has the one below nine times: 9**9 values."""
    levels = ["a: &a [x, x, x, x, x, x, x, x, x]", "a: &a {x: 1}"]
    lines = [levels[kind == "merged"]]
    for below, level in zip("abcdefgh", "bcdefghi", strict=True):
        aliases = ", ".join([f"*{below}"] * 9)
        lines.append(
            f"{level}: &{level} {{<<: [{aliases}]}}"
            if kind == "merged"
            else f"{level}: &{level} [{aliases}]"
        )
    return "\n".join(lines)


@pytest.mark.parametrize("kind", ["listed", "merged"])
def test_values_of_aliases_are_counted_before_they_are_built(kind: str) -> None:
    program = (
        "import sys\n"
        "from compute_agent.state.documents import parse_yaml\n"
        "try: parse_yaml(sys.stdin.buffer.read())\n"
        "except Exception as error: print(error)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program],
        input=nines(kind),
        capture_output=True,
        text=True,
        timeout=60,
        cwd=Path(__file__).parents[3],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (300 << 20, 300 << 20)),
        check=True,
    )
    assert ended.stdout == (
        f"has more than {MAX_VALUES} values, those of aliases counted each time\n"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: &a [*a]", "alias inside its own anchor"),
        ("[" * 5000, "nested too deeply"),
        ("a: 'b", "not YAML, line 1, column 6"),
        ("a: \0", "not YAML"),
        ("a: 2024-02-30", "a value that cannot be read: day is out of range"),
        ("!!python/object:os.system {}", "could not determine a constructor"),
    ],
)
def test_a_text_that_is_no_usable_document_is_refused(text: str, message: str) -> None:
    with pytest.raises(FileUnusable, match=message):
        parse_yaml(text.encode())


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(categories=["L", "N"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("ab"), inner, max_size=4),
)


@given(VALUES)
def test_other_documents_are_those_of_the_library(value: object) -> None:
    # one value twice, so that it is written with an alias
    text = yaml.safe_dump([value, value])
    assert parse_yaml(text.encode()) == [value, value]
