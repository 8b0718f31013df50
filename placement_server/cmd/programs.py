"""The console scripts of the server, as far as they need nothing of the extra `server`.

compute-agent is installed on every host without that extra, and these scripts with it.
"""

from __future__ import annotations

import sys
from importlib import import_module

from compute_agent.programs.exit_status import Exit
from compute_agent.programs.extra_installation import install_command
from compute_agent.programs.printable import printed


def placement_server() -> int:
    return _run("placement-server", "serve", Exit.FAILED)


def placement_manage() -> int:
    return _run("placement-manage", "manage", Exit.FAILED)


def placement_status() -> int:
    # 1 is a warning there
    return _run("placement-status", "status", Exit.DEFECT)


def _run(program: str, module: str, failure: int) -> int:
    """Run a program.

    :param failure: its status without the extra, and when the reader of its output leaves.
    """
    try:
        command = import_module(f"placement_server.cmd.{module}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("placement_server"):
            raise
        print(
            f"{program}: it needs {error.name}, which this installation of compute-agent does "
            f"not have. Install it with: {install_command('server')}",
            file=sys.stderr,
        )
        return failure
    try:
        return printed(lambda: int(command.main()), failure)
    except KeyboardInterrupt:
        print(f"{program}: interrupted", file=sys.stderr)
        return Exit.INTERRUPTED
