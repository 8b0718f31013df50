"""The console scripts of the server; a command that is chosen imports what it needs.

compute-agent is installed on every host without the extra `server`, and these scripts with it.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Final

from compute_agent.programs.exit_status import Exit
from compute_agent.programs.extra_installation import install_command
from compute_agent.programs.printable import printed

_OURS: Final = ("compute_agent", "placement_server")


def placement_server() -> int:
    return _run("placement-server", "serve", Exit.FAILED)


def placement_manage() -> int:
    return _run("placement-manage", "manage", Exit.FAILED)


def placement_status() -> int:
    # 1 is a warning there
    return _run("placement-status", "status", Exit.DEFECT)


def _run(program: str, module: str, failure: int) -> int:
    """Run a program.

    :param failure: its status without the extra, for a defect, and when the reader of its output
        leaves.
    """
    command = import_module(f"placement_server.cmd.{module}")
    try:
        return printed(lambda: int(command.main()), failure)
    except KeyboardInterrupt:
        print(f"{program}: interrupted", file=sys.stderr)
        return Exit.INTERRUPTED
    except Exception as error:  # noqa: BLE001 - Python's own status, 1, may be a warning
        missing_module = isinstance(error, ModuleNotFoundError) and error.name
        if missing_module and not missing_module.startswith(_OURS):
            print(
                f"{program}: it needs {missing_module}, which this installation of compute-agent "
                f"does not have. Install it with: {install_command('server')}",
                file=sys.stderr,
            )
        else:
            import traceback

            traceback.print_exception(error)
        return failure
