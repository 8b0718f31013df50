"""The command lines of all programs: one notation, one style of help, one manual."""

import argparse
import contextlib
import io
import pkgutil
import shutil
import subprocess
from collections.abc import Callable, Iterator

import pytest

from compute_agent.cmd.agent import main as agent
from compute_agent.cmd.manage import main as manage
from compute_agent.cmd.placement import main as placement
from compute_agent.cmd.scheduler import main as scheduler
from placement_server.cmd import manage as placement_manage
from placement_server.cmd import serve, status
from tools import completions
from tools.man_pages import TARGET, arguments, commands, pages, parsers

METAVARS = {
    *(
        "ADDRESS",
        "ADDRESS:PORT",
        "COLUMN",
        "DIR",
        "FILE",
        "ID",
        "N",
        "NAME",
        "NAME=VALUE",
        "NODE",
        "PORT",
    ),
    *("REVISION", "SECONDS", "TEXT", "TOKEN", "TYPE", "URL", "UUID"),
    # things of placement: HOST and PROVIDER are a name or a uuid
    *("CLASS", "HOST", "HOST[=N]", "PROVIDER", "ROOT", "CONSUMER", "TRAIT"),
    # several with commas between them; GROUP is the suffix of a group of a request
    *("CLASS=N", "CLASS=N,...", "PROVIDER:CLASS=N", "PROVIDER:CLASS=N,..."),
    *("PROVIDER:TRAIT,...", "TRAIT,...", "[in:]UUID,...", "GROUP,...", "GROUP:CLASS=N,..."),
    *("[GROUP:]TRAIT,...", "[GROUP:]UUID", "[GROUP:]UUID,..."),
}
OF_LIBRARIES = ("placement-manage", "placement-status")
"""Programs whose own parser has the options of oslo.config and oslo.log."""

Main = Callable[[list[str]], int]
BAD_ARGUMENTS: dict[str, tuple[Main, int, list[str]]] = {
    # 2 is a failed reshape, so that units and scripts can act on it
    "compute-agent": (agent.main, 127, ["plan"]),
    # 127 as in nova-manage
    "compute-manage": (manage.main, 127, ["placement", "audit"]),
    "compute-scheduler": (scheduler.main, 2, ["release"]),
    "placement": (placement.main, 2, ["tree", "host"]),
    "placement-server": (serve.main, 2, ["serve"]),
    "placement-manage": (placement_manage.main, 2, ["db", "version"]),
    "placement-status": (status.main, 2, ["upgrade", "check"]),
}
KINDS = {
    "an unknown command": lambda _command: ["nonsense"],
    "an unknown option": lambda command: [*command, "--nonsense"],
    "an option without its value": lambda command: [*command, "--config-file"],
    "an argument too many": lambda command: [*command, "a", "b"],
}


def walk(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for command in commands(parser).values():
        yield from walk(command)


def of_us() -> list[argparse.ArgumentParser]:
    return [part for parser in parsers() for part in walk(parser) if part.prog not in OF_LIBRARIES]


def begins_a_sentence(text: str) -> bool:
    return text[:1].isupper() and text[1:2].islower()


def test_values_have_the_names_of_one_list() -> None:
    used = {
        action.metavar or action.dest: parser.prog
        for parser in of_us()
        for action in arguments(parser)
        if action.nargs != 0 and not action.choices
    }
    assert {name: where for name, where in used.items() if name not in METAVARS} == {}
    assert METAVARS - used.keys() == set()


def test_every_argument_is_explained_in_one_style() -> None:
    wrong = [
        (parser.prog, action.dest, action.help)
        for parser in of_us()
        for action in arguments(parser)
        if not action.help or action.help.endswith(".") or begins_a_sentence(action.help)
    ]
    assert wrong == []


def test_every_command_is_explained_in_one_style() -> None:
    choices = [
        (parser.prog, choice.dest, choice.help or "")
        for parser in of_us()
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
        for choice in action._choices_actions
    ]
    assert [choice for choice in choices if not choice[2] or choice[2].endswith(".")] == []
    assert [choice for choice in choices if begins_a_sentence(choice[2])] == []


def test_every_command_has_a_function() -> None:
    places = {
        place for parser in of_us() if isinstance(place := parser.get_default("function"), str)
    }
    assert places
    assert all(callable(pkgutil.resolve_name(place)) for place in places)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("program", BAD_ARGUMENTS)
def test_a_program_has_one_status_for_bad_arguments(
    program: str, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main, expected, command = BAD_ARGUMENTS[program]
    with pytest.raises(SystemExit) as ended:
        main(KINDS[kind](command))
    assert ended.value.code == expected
    assert program in capsys.readouterr().err


@pytest.mark.parametrize(
    ("main", "line"),
    [
        (manage.main, "placement audit --min-age soon"),
        (manage.main, "placement heal_allocations --max-count 0"),
        (manage.main, "placement adopt this"),
        (scheduler.main, "top --interval often"),
        (scheduler.main, "top --count none"),
        (serve.main, "serve --port http"),
        (serve.main, "serve --workers 0"),
        (agent.main, "dev --port http"),
        (agent.main, "dev --hosts 17"),
        (agent.main, "dev --hosts ٣"),
        (scheduler.main, "top --count ²"),
        (placement.main, "history --limit -1"),
        (placement.main, "candidates --limit 0"),
        (placement.main, "candidates VCPU"),
        (serve.main, "serve --workers ٣"),
        (serve.main, "serve --port 65536"),
        (placement_manage.main, "db online_data_migrations --max-count ٣"),
    ],
)
def test_a_bad_value_is_named_with_what_was_expected(main: Main, line: str) -> None:
    error = io.StringIO()
    with contextlib.redirect_stderr(error), pytest.raises(SystemExit):
        main(line.split())
    last = error.getvalue().splitlines()[-1]
    assert line.split()[-1] in last
    # what argparse writes where a type has nothing to say
    assert "invalid" not in last


@pytest.mark.parametrize(
    ("main", "line"),
    [
        (manage.main, "placement heal_allocations --max-count"),
        (agent.main, "dev --hosts"),
        (serve.main, "serve --workers"),
    ],
)
def test_a_very_long_number_is_not_repeated(
    main: Main, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([*line.split(), "9" * 5000])
    last = capsys.readouterr().err.splitlines()[-1]
    assert "9..." in last
    assert len(last) < 200


def test_manual_pages_and_completions_are_those_of_the_parsers() -> None:
    written = {path.name: path.read_text() for path in TARGET.glob("*.1")}
    assert written == pages(), "run: python -m tools.man_pages"
    assert completions.TARGET.read_text() == completions.script(), (
        "run: python -m tools.completions"
    )


@pytest.mark.skipif(
    shutil.which("groff") is None, reason="needs groff (Debian package: groff-base)"
)
@pytest.mark.parametrize("page", sorted(path.name for path in TARGET.glob("*.1")))
def test_a_manual_page_is_shown_without_warnings(page: str) -> None:
    shown = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", "-K", "utf8", TARGET / page],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (shown.returncode, shown.stderr) == (0, "")
    name = page.removesuffix(".1").upper()
    assert f"{name}(1)" in shown.stdout


def test_a_new_root_that_is_to_have_a_parent_is_refused_before_placement_is_asked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as end:
        placement.main(["provider", "set", "p", "--parent", "q", "--root"])
    assert end.value.code == 2
    assert "--root: not allowed with argument --parent" in capsys.readouterr().err
