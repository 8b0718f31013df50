"""Arguments of commands, declared by lines as a help shows them."""

import argparse

import pytest

from compute_agent.programs.arguments import arguments

LINES = """
    file FILE ? (-)                 what is read
    -n --limit N (10)               the most of them, of which there may be many more than anybody
                                    has a use for
    --node NODE *                   only this node
    --failed HOST +                 a host that was tried
    --project ID !                  its project
    --sort:by {name,age} (name)     the order
    --reason TEXT ()                why
    --member-of [in:]UUID,... *     in this aggregate
    --dry-run                       change nothing
    """
NEEDED = ["--failed=a", "--project=p"]


@pytest.fixture
def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="program")
    arguments(LINES, file=str.upper)(made)
    return made


def test_what_is_left_out_has_its_default(parser: argparse.ArgumentParser) -> None:
    assert vars(parser.parse_args(NEEDED)) == {
        "file": "-",
        "limit": 10,
        "node": [],
        "failed": ["a"],
        "project": "p",
        "by": "name",
        "reason": "",
        "member_of": [],
        "dry_run": False,
    }


def test_values_have_the_type_of_their_name_or_a_given_one(parser: argparse.ArgumentParser) -> None:
    line = ["a", "-n", "3", "--node=x", "--node=y", "--member-of=in:u", "--dry-run", *NEEDED]
    read = parser.parse_args(line)
    assert (read.file, read.limit, read.node, read.dry_run) == ("A", 3, ["x", "y"], True)
    assert read.member_of == ["in:u"]


@pytest.mark.parametrize(
    "line", ["--failed=a", "--project=p", "--limit=0", "--sort=size", "a b"], ids=str
)
def test_a_line_that_breaks_a_declaration_is_refused(
    parser: argparse.ArgumentParser, line: str
) -> None:
    needed = [] if line in NEEDED else NEEDED
    with pytest.raises(SystemExit):
        parser.parse_args([*line.split(), *needed])


def test_the_help_has_defaults_and_lines_that_go_on(parser: argparse.ArgumentParser) -> None:
    text = " ".join(parser.format_help().split())
    assert "many more than anybody has a use for; default: 10" in text
    assert "--member-of [in:]UUID,..." in text
    assert "why; default" not in text


def test_a_line_that_declares_nothing_is_a_defect() -> None:
    with pytest.raises(AssertionError, match="--limit N one space only"):
        arguments("--limit N one space only")(argparse.ArgumentParser())
