"""The command `compute-agent`: run the agent, or look at what it does.

    run      report this host and keep reporting it
    plan     print what a pass would change, and change nothing
    show     print the tree of resource providers that placement has
    diff     print the differences between two hosts in placement
    status   print the status of the running agent
    report   ask the running agent for a pass now
    history  print the last changes that the agent wrote to placement
    claims   print which instance holds which CPUs and devices of this host
    fit      draw what a request would get of this host now, or why it gets nothing
    drop-claim  forget what an instance holds here, with or without a running agent
    enable   allow new instances on the host; asks the running agent
    disable  keep new instances away from the host; asks the running agent
    clear-fault  offer a device again that was marked as broken; asks the running agent
    doctor   check identity, placement, permissions, CPU sets, devices; change nothing
    capture  copy the machine's description into a directory, for a bug report
    dev      agent, scheduler and placement in one, for trying things out

Each command imports its own needs, so that all stay light.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from compute_agent import __version__, errors
from compute_agent.cmd import program
from compute_agent.cmd.trees.form import add_form_options, form_of, given_form_options
from compute_agent.daemon import garbage_collection
from compute_agent.programs import configuration_files
from compute_agent.programs.exit_status import Exit, ExitStatus, exit_table

if TYPE_CHECKING:
    from compute_agent.agent.assembly import AgentParts


PROGRAM = "compute-agent"
STATUS_TIMEOUT = 10.0
REPORT_TIMEOUT = 330.0
ORDER_TIMEOUT = 60.0


class AgentExit(ExitStatus):
    """Exit status of the commands; those up to 5 are the daemon's, `tracker.decisions.ExitCode`."""

    FINE = 0, "success; run: stopped on request; plan: no changes, no errors; diff: no differences"
    CONFIGURATION = 1, "configuration error, also of plan; doctor: warnings"
    RESHAPE_FAILED = 2, "a reshape failed; report: one is pending; doctor: errors"
    PLACEMENT_REJECTED = 3, "placement rejected a request, or cannot be used"
    DRIVER_FAILED = (
        4,
        "the driver failed or is not ready, no space is left, or there is no such node or host",
    )
    IDENTITY = 5, "identity: lost, contradictory, or the name belongs to another provider"
    WOULD_CHANGE = 6, "plan: changes; diff: differences"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command given by `argv` and return its exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["dev"]:
        # dev has its own options and parses them itself
        from compute_agent.cmd.dev import main as dev

        return int(dev.run(arguments[1:]))
    files, others = configuration_files.split(PROGRAM, arguments, Exit.BAD_ARGUMENTS)
    namespace = _parser().parse_args([*others, *files])
    return program.run(PROGRAM, namespace, _exit_status_of, reader_may_leave=True)


def _exit_status_of(_namespace: argparse.Namespace, error: errors.ComputeAgentError) -> int:
    from compute_agent.tracker.decisions import exit_code_of

    return Exit.NO_AGENT if error.exit_status is Exit.NO_AGENT else exit_code_of(error)


def _parser() -> argparse.ArgumentParser:
    parser = program.Parser(
        prog=PROGRAM,
        description="Reports this host to placement as a tree of resource providers.",
        epilog=exit_table(statuses=[*AgentExit, Exit.NO_AGENT, Exit.BAD_ARGUMENTS]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    run = _command(commands, "run", _run, "report this host and keep reporting it")
    run.add_argument(
        "--adopt",
        action="store_true",
        help="in this start only, take over the provider in placement that has this host's name",
    )
    plan = _command(commands, "plan", _plan, "print what a pass would change, and change nothing")
    _node_and_json(plan)
    _capture_source(plan)
    plan.add_argument(
        "--tree", action="store_true", help="also print the tree that a pass would write"
    )
    show = _command(commands, "show", _show, "print the tree that placement has")
    _node_and_json(show)
    _parts_of_tree(show)
    diff = _command(commands, "diff", _diff, "print the differences between two hosts in placement")
    diff.add_argument("first", metavar="HOST", help="name or uuid of the root provider of a host")
    diff.add_argument(
        "second", metavar="HOST", help="name or uuid of the root provider of the other host"
    )
    diff.add_argument("--json", action="store_true", help="one JSON document on stdout")
    status = _command(commands, "status", _status, "print the status of the running agent")
    status.add_argument("--json", action="store_true", help="one JSON document on stdout")
    report = _command(commands, "report", _report, "request a pass of the running agent now")
    report.add_argument("--node", metavar="NODE", help="only this node; default: all")
    report.add_argument(
        "--no-wait", action="store_true", help="do not wait for the end of the pass"
    )
    report.add_argument("--json", action="store_true", help="one JSON document on stdout")
    history = _command(commands, "history", _history, "print the last changes that the agent wrote")
    history.add_argument("--json", action="store_true", help="one JSON document on stdout")
    claims = _command(commands, "claims", _claims, "print what each instance holds of this host")
    claims.add_argument("--json", action="store_true", help="one JSON document on stdout")
    fit = _command(commands, "fit", _fit, "draw what a request would get of this host now")
    fit.add_argument("spec", metavar="FILE", help="JSON file of the request; - for stdin")
    fit.add_argument("--node", metavar="NODE", help="this node; default: the only one")
    drop = _command(
        commands, "drop-claim", _drop_claim, "delete the claim of an instance on this host"
    )
    drop.add_argument("consumer", metavar="UUID", help="uuid of the instance or of the migration")
    _command(commands, "enable", _enable, "allow new instances on the host")
    disable = _command(commands, "disable", _disable, "allow no new instances on the host")
    disable.add_argument(
        "--reason", default="", metavar="TEXT", help="reason that the status of the host shows"
    )
    fault = _command(
        commands, "clear-fault", _clear_fault, "report a device again that was marked as broken"
    )
    fault.add_argument(
        "provider", metavar="PROVIDER", help="uuid or name of the device's resource provider"
    )
    doctor = _command(
        commands, "doctor", _doctor, "check the host for problems, and change nothing"
    )
    doctor.add_argument("--json", action="store_true", help="one JSON document on stdout")
    capture = _command(commands, "capture", _capture, "copy the description of this machine")
    capture.add_argument("directory", metavar="DIR", help="directory to write to, new or empty")
    commands.add_parser(
        "dev", help="run agent, scheduler and placement together on this machine", add_help=False
    )
    return parser


def _command(
    commands: argparse._SubParsersAction[program.Parser],
    name: str,
    function: Callable[[argparse.Namespace], int],
    text: str,
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
    parser.set_defaults(function=function)
    configuration_files.add_options(parser, program.CONFIGURATION_FILE)
    parser.add_argument("--debug", action="store_true", help="log everything")
    return parser


def _node_and_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--node", metavar="NODE", help="only this node; default: all")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")


def _parts_of_tree(parser: argparse.ArgumentParser) -> None:
    add_form_options(parser)
    parser.add_argument(
        "--details",
        action="store_true",
        help="all data of each provider: a table of its inventories, its traits and aggregates",
    )
    parser.set_defaults(refuse=parser.error)


def _capture_source(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--from-capture",
        metavar="DIR",
        help="use the machine captured in DIR instead of this one, with driver host.HostDriver; if "
        "no placement is configured, compare it with an empty placement",
    )


def _parts(namespace: argparse.Namespace) -> AgentParts:
    """Assemble an agent that changes nothing."""
    from compute_agent.agent import assembly
    from compute_agent.cmd.agent import logging_setup

    conf = program.configuration(namespace)
    logging_setup.set_up_command(conf, verbose=namespace.debug)
    directory = getattr(namespace, "from_capture", None)
    if directory is None:
        return assembly.build(conf, read_only=True)
    from compute_agent.cmd.agent import capture

    capture.use(conf, directory)
    transport = None
    if not (conf.placement.auth_type or conf.placement.auth_section):
        from compute_agent.placement.transports.empty import EmptyPlacement

        print(
            "No placement is configured ([placement]auth_type), so the machine is compared with an "
            "empty one.",
            file=sys.stderr,
        )
        transport = EmptyPlacement()
    # a captured machine is compared with what placement has under its name, guests or not
    return assembly.build(conf, read_only=True, adopt_asked=True, transport=transport)


def _run(namespace: argparse.Namespace) -> int:
    with garbage_collection.pause():
        from compute_agent import conf as agent_conf
        from compute_agent.agent import assembly
        from compute_agent.agent.agent import Agent
        from compute_agent.cmd.agent import logging_setup
        from compute_agent.daemon import tracing
        from compute_agent.drift.healing import configured
        from compute_agent.placement.transports.keystone import KeystoneTransport

    conf = program.configuration(namespace)
    logging_setup.set_up_daemon(conf)
    logging_setup.log_start(conf)
    agent_conf.warn_of_useless(conf)
    try:
        KeystoneTransport.from_conf(conf).prepare()
        tracing.start(conf, PROGRAM)
        parts = assembly.build(conf, adopt_asked=namespace.adopt)
        garbage_collection.keep_what_is_loaded()
        return Agent(
            conf, parts, remedies=lambda: configured.remedies(conf, parts.driver, parts.ledger)
        ).run()
    except Exception as error:  # noqa: BLE001 - logged where an operator looks, then printed
        logging_setup.log_fatal(error)
        return program.end(PROGRAM, namespace, _exit_status_of, error)


def _plan(namespace: argparse.Namespace) -> int:
    from compute_agent.cmd.agent import inspection

    return inspection.plan(
        _parts(namespace), namespace.node, as_json=namespace.json, with_tree=namespace.tree
    )


def _refuse_parts_of_everything(namespace: argparse.Namespace) -> None:
    """End with a usage error where an option would have no effect."""
    given_options = given_form_options(namespace)
    if given_options and (namespace.details or namespace.json):
        everything = "--json" if namespace.json else "--details"
        namespace.refuse(
            f"{', '.join(given_options)} cannot be combined with {everything}, which has all"
        )


def _show(namespace: argparse.Namespace) -> int:
    from compute_agent.cmd.agent import inspection
    from compute_agent.placement.consumers import Consumers
    from compute_agent.placement.transports.keystone import KeystoneTransport

    _refuse_parts_of_everything(namespace)
    parts = _parts(namespace)
    consumers = Consumers(KeystoneTransport.from_conf(parts.conf))
    try:
        return inspection.show(
            parts,
            namespace.node,
            as_json=namespace.json,
            age_of=consumers.last_written,
            form=form_of(namespace, full=namespace.details),
        )
    finally:
        consumers.close()


def _diff(namespace: argparse.Namespace) -> int:
    from compute_agent.cmd.agent import diff, logging_setup

    conf = program.configuration(namespace)
    logging_setup.set_up_command(conf, verbose=namespace.debug)
    return diff.run(conf, namespace.first, namespace.second, as_json=namespace.json)


def _status(namespace: argparse.Namespace) -> int:
    from compute_agent.cmd.agent import inspection

    document = _ask(namespace, "status", STATUS_TIMEOUT)
    return inspection.print_status(document, as_json=namespace.json)


def _report(namespace: argparse.Namespace) -> int:
    from compute_agent.cmd.agent import inspection

    arguments = {"node": namespace.node, "wait": not namespace.no_wait}
    document = _ask(namespace, "report", REPORT_TIMEOUT, **arguments)
    inspection.print_status(document, as_json=namespace.json)
    return Exit.FINE if namespace.no_wait else inspection.exit_status_of_passes(document)


def _history(namespace: argparse.Namespace) -> int:
    from compute_agent.cmd.agent import inspection

    changes = _ask(namespace, "history", STATUS_TIMEOUT)
    return inspection.print_history(changes, as_json=namespace.json)


def _claims(namespace: argparse.Namespace) -> int:
    from compute_agent.cmd.agent import claims

    return claims.show(program.configuration(namespace), as_json=namespace.json)


def _fit(namespace: argparse.Namespace) -> int:
    from compute_agent.cmd.agent import claims

    arguments = {"spec": claims.request_of(namespace.spec), "node": namespace.node}
    answer = _ask(namespace, "fit", ORDER_TIMEOUT, **arguments)
    print("\n".join(answer["lines"]))
    return 0 if answer["fits"] else 1


def _drop_claim(namespace: argparse.Namespace) -> int:
    from compute_agent.cmd.agent import claims

    return claims.drop(program.configuration(namespace), namespace.consumer)


def _enable(namespace: argparse.Namespace) -> int:
    _ask(namespace, "set_host_enabled", ORDER_TIMEOUT, enabled=True)
    print("enabled")
    return Exit.FINE


def _disable(namespace: argparse.Namespace) -> int:
    _ask(namespace, "set_host_enabled", ORDER_TIMEOUT, enabled=False, reason=namespace.reason)
    print("disabled")
    return Exit.FINE


def _clear_fault(namespace: argparse.Namespace) -> int:
    is_cleared = _ask(namespace, "clear_fault", ORDER_TIMEOUT, provider=namespace.provider)
    print("cleared" if is_cleared else f"{namespace.provider} is not marked as broken")
    return Exit.FINE


def _ask(namespace: argparse.Namespace, command: str, timeout: float, **arguments: object) -> Any:
    from compute_agent.cmd.agent.claims import ask_agent

    return ask_agent(program.configuration(namespace), command, timeout, **arguments)


def _doctor(namespace: argparse.Namespace) -> int:
    from compute_agent.cmd.agent import doctor, logging_setup

    try:
        conf = program.configuration(namespace)
    except errors.InvalidConfiguration as error:
        return doctor.report_configuration(error, as_json=namespace.json)
    logging_setup.set_up_command(conf, verbose=namespace.debug)
    return doctor.run(conf, as_json=namespace.json)


def _capture(namespace: argparse.Namespace) -> int:
    from compute_agent.cmd.agent import capture

    return capture.run(program.configuration(namespace), namespace.directory)


if __name__ == "__main__":
    sys.exit(main())
