"""Helps, versions and refusals of arguments, which need no library of the server."""

import subprocess
import sys

import pytest

SCRIPT = """
import sys
from placement_server.cmd import programs

sys.argv = {arguments}
try:
    programs.{program}()
except SystemExit:
    pass
heavy = {{"alembic", "granian", "keystonemiddleware", "numpy", "sqlalchemy", "webob"}}
print(sorted(heavy & set(sys.modules)))
"""


@pytest.mark.parametrize(
    ("program", "line"),
    [
        ("placement_manage", "--help"),
        ("placement_manage", "db downgrade --help"),
        ("placement_manage", "db nonsense"),
        ("placement_server", "serve --help"),
        ("placement_server", "serve --nonsense"),
        ("placement_status", "--version"),
        ("placement_status", "upgrade check --nonsense"),
    ],
)
def test_a_command_line_that_runs_nothing_imports_nothing_of_the_server(
    program: str, line: str
) -> None:
    script = SCRIPT.format(arguments=[program, *line.split()], program=program)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr
