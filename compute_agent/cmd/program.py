"""One run of a command: what is printed when it fails, and with which status it ends."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

from compute_agent import errors
from compute_agent.programs.arguments import Argument, arguments
from compute_agent.programs.exit_status import Exit
from compute_agent.programs.module_loading import load
from compute_agent.programs.printable import printed, show_orders

if TYPE_CHECKING:
    from oslo_config import cfg

    from compute_agent.placement.transports.transport import Transport

AGENT, SCHEDULER = "compute-agent", "compute-scheduler"
"""Names of configurations: each is `/etc/NAME/NAME.conf`, or where oslo.config looks besides."""

LONGEST: Final = 8000
"""Characters of an error that are printed."""

Function = Callable[[argparse.Namespace], int | None]
"""A command; it returns its exit status, or nothing where it always ends well."""

Failed = Callable[[argparse.Namespace, errors.ComputeAgentError], int]
"""Adds to what was printed of an error, if need be, and returns the exit status for it."""


class Parser(argparse.ArgumentParser):
    """A parser of a program in which 2, the usual status, means something else."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(Exit.BAD_ARGUMENTS, f"{self.prog}: {message}\n")


def default_files(names: Sequence[str]) -> str:
    """Return the files of configurations for the help of an option."""
    return ", else ".join(f"/etc/{name}/{name}.conf" for name in names)


def add_command(
    commands: argparse._SubParsersAction[Any],
    name: str,
    function: str | Function,
    text: str,
    *declared_arguments: str | Argument,
    **words: Any,
) -> argparse.ArgumentParser:
    """Add a command.

    :param function: what runs it, or where that is: `package.module:name`.
    :param text: what it does, for the list of commands, and for its own help without another.
    :param words: further ones of its parser.
    """
    words.setdefault("description", f"{text[0].upper()}{text[1:]}.")
    words.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
    parser: argparse.ArgumentParser = commands.add_parser(name, help=text, **words)
    parser.set_defaults(function=function, refuse=parser.error)
    for declared in declared_arguments:
        add = arguments(declared) if isinstance(declared, str) else declared
        add(parser)
    return parser


def configuration(namespace: argparse.Namespace) -> cfg.ConfigOpts:
    """Return the configuration of the files that a command line names.

    Where it names none it is the first of `namespace.configurations` that this machine has.

    :raises InvalidConfiguration: it cannot be used.
    """
    from oslo_config import cfg

    from compute_agent import conf as agent_conf

    names = namespace.configurations
    first = next((name for name in names if cfg.find_config_files(project=name)), names[0])
    argv = [f"--config-file={file}" for file in namespace.config_file]
    argv += [f"--config-dir={directory}" for directory in namespace.config_dir]
    argv += ["--debug"] if namespace.debug else []
    return agent_conf.new_config(argv, first)


def transport(namespace: argparse.Namespace, conf: cfg.ConfigOpts | None = None) -> Transport:
    """Return the way to the placement that options name.

    :param conf: whose placement it is where they name none; None: that of the OS_* variables.
    :raises InvalidConfiguration: a file that they name cannot be used.
    :raises PlacementUnavailable: the database that a file names cannot be used.
    """
    file, cloud = getattr(namespace, "placement_config", None), namespace.os_cloud
    if file is not None:
        if not Path(file).is_file():
            raise errors.InvalidConfiguration(
                f"The configuration of placement-server {file} does not exist. Correct the path."
            )
        from compute_agent.placement.transports.in_process import InProcessTransport

        return InProcessTransport.from_config_files([file])
    if cloud is not None or conf is None:
        from compute_agent.placement.transports.cloud import cloud_transport

        limit = getattr(namespace, "request_timeout", None)
        return cloud_transport(cloud, limit and (limit, limit))
    from compute_agent.placement.transports.keystone import KeystoneTransport

    return KeystoneTransport.from_conf(conf)


def run(
    program: str,
    parse: Callable[[], argparse.Namespace],
    failure_status: Failed = lambda _namespace, error: error.exit_status,
    *,
    reader_may_leave: bool = False,
) -> int:
    """Run the command of a program that was asked for, and return its exit status.

    :param parse: returns parsed arguments, with the name of the command and its `function`, or
        where that is, `package.module:name`, so that each command imports its own needs only.
    :param reader_may_leave: an output that is closed early is a good end: nothing is left undone.
    """
    show_orders()
    unread_status = Exit.FINE if reader_may_leave else Exit.FAILED
    return printed(lambda: _run(program, parse(), failure_status), unread_status)


def _run(program: str, namespace: argparse.Namespace, failure_status: Failed) -> int:
    try:
        function: str | Function = namespace.function
        if isinstance(function, str):
            function = cast(Function, load(function))
        return int(function(namespace) or Exit.FINE)
    except BrokenPipeError:
        raise
    except KeyboardInterrupt:
        print(f"{program} {namespace.command}: interrupted", file=sys.stderr)
        return Exit.INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last line of defence of a command
        return end(program, namespace, failure_status, error)


def end(
    program: str, namespace: argparse.Namespace, failure_status: Failed, error: Exception
) -> int:
    """Print an error in one sentence, or with traceback if it is a defect; return its status."""
    if isinstance(error, errors.ComputeAgentError):
        text = str(error)
        if len(text) > LONGEST:
            # a hypervisor may answer with all that it has in memory
            text = f"{text[:LONGEST]} ... ({len(text) - LONGEST} more characters)"
        print(f"{program} {namespace.command}: {text}", file=sys.stderr)
        return int(failure_status(namespace, error))
    import traceback

    traceback.print_exception(error)
    print(
        f"{program} {namespace.command}: this is a defect of {program}; please report it with the "
        "lines above.",
        file=sys.stderr,
    )
    return Exit.DEFECT
