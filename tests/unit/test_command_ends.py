"""Ends of the commands of every program when something goes wrong."""

import argparse
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from compute_agent import errors
from compute_agent.cmd import program
from compute_agent.programs import log_lines
from placement_server.cmd import programs, upgrade_check
from tests.fixtures.databases import migrated_sqlite


def ending(error: BaseException, *, reader_may_leave: bool = False) -> int:
    def function(_namespace: argparse.Namespace) -> int:
        raise error

    namespace = argparse.Namespace(command="look", function=function)
    return program.run("a-program", lambda: namespace, failed, reader_may_leave=reader_may_leave)


def end_without_reader(main: str, arguments: list[str], unbuffered: str) -> tuple[str, int]:
    """Run a program whose output nobody reads; its errors and its status."""
    text = f"import pkgutil, sys; sys.exit(pkgutil.resolve_name({main!r})())"
    reading_end, writing_end = os.pipe()
    os.close(reading_end)
    try:
        ended = subprocess.run(
            [sys.executable, "-c", text, *arguments],
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            stdout=writing_end,
            stderr=subprocess.PIPE,
            text=True,
        )
    finally:
        os.close(writing_end)
    return ended.stderr, ended.returncode


def failed(_namespace: argparse.Namespace, error: errors.ComputeAgentError) -> int:
    return 3 if isinstance(error, errors.PlacementError) else 1


def test_a_known_error_is_one_sentence_and_has_the_status_that_its_program_gives_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert ending(errors.PlacementUnavailable("placement is away")) == 3
    assert ending(errors.InvalidInput("no such thing")) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == "a-program look: placement is away\na-program look: no such thing\n"


def test_an_interruption_is_130_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert ending(KeyboardInterrupt()) == 130
    assert capsys.readouterr().err == "a-program look: interrupted\n"


def test_a_defect_is_255_with_traceback_and_a_line_that_asks_for_a_report(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert ending(ZeroDivisionError("by zero")) == 255
    shown = capsys.readouterr().err
    assert "Traceback" in shown
    assert "ZeroDivisionError: by zero" in shown
    assert shown.endswith(
        "a-program look: this is a defect of a-program; please report it with the lines above.\n"
    )


@pytest.mark.parametrize(("reader_may_leave", "status"), [(True, 0), (False, 1)])
def test_a_closed_output_is_a_good_end_only_where_nothing_is_left_undone(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    reader_may_leave: bool,
    status: int,
) -> None:
    monkeypatch.setattr(sys, "stdout", sys.stdout)  # what the command does to it ends with the test
    assert ending(BrokenPipeError(), reader_may_leave=reader_may_leave) == status
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("script", "command", "unbuffered", "status"),
    [
        ("placement_manage", ["db", "version"], "1", 1),
        ("placement_manage", ["db", "version"], "", 0),
        # it prints nothing but its log
        ("placement_manage", ["db", "sync"], "1", 0),
        ("placement_manage", ["db", "sync"], "", 0),
        ("placement_status", ["upgrade", "check"], "1", 255),
        ("placement_status", ["upgrade", "check"], "", 0),
    ],
)
def test_a_program_of_the_server_ends_without_a_word_when_its_reader_has_left(
    tmp_path: Path, script: str, command: list[str], unbuffered: str, status: int
) -> None:
    configuration = tmp_path / "placement.conf"
    database = migrated_sqlite(tmp_path / "placement.db")
    configuration.write_text(f"[placement_database]\nconnection = {database}\n")
    main = f"placement_server.cmd.programs:{script}"
    arguments = ["--config-file", str(configuration), *command]
    assert end_without_reader(main, arguments, unbuffered) == ("", status)


@pytest.mark.parametrize("unbuffered", ["1", ""])
@pytest.mark.parametrize(
    "main",
    [
        *("compute_agent.cmd.agent.main:main", "compute_agent.cmd.manage.main:main"),
        *("compute_agent.cmd.scheduler.main:main", "compute_agent.cmd.placement.main:main"),
        "placement_server.cmd.programs:placement_server",
    ],
)
def test_help_ends_well_without_a_word_when_its_reader_has_left(main: str, unbuffered: str) -> None:
    assert end_without_reader(main, ["--help"], unbuffered) == ("", 0)


@pytest.mark.parametrize("status", [0, 6])
def test_without_an_error_the_status_is_what_the_command_returns(status: int) -> None:
    namespace = argparse.Namespace(command="look", function=lambda _namespace: status)
    assert program.run("a-program", lambda: namespace, failed) == status


def test_a_check_that_could_not_be_made_for_a_defect_is_no_warning(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_conf: object) -> NoReturn:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(upgrade_check, "_check", refuse)
    monkeypatch.setattr(log_lines, "set_up", lambda *_: None)
    words = ["placement-status", "--config-file=/dev/null", "upgrade", "check"]
    monkeypatch.setattr(sys, "argv", words)
    assert programs.placement_status() == 255
    assert "ZeroDivisionError: by zero" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "script", "name"),
    [
        ("serve", programs.placement_server, "placement-server"),
        ("manage", programs.placement_manage, "placement-manage"),
        ("status", programs.placement_status, "placement-status"),
    ],
)
def test_an_interruption_of_a_program_of_the_server_is_130_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
    script: Callable[[], int],
    name: str,
) -> None:
    def interrupted() -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"placement_server.cmd.{command}.main", interrupted)
    assert script() == 130
    assert capsys.readouterr().err == f"{name}: interrupted\n"
