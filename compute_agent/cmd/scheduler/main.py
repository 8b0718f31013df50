"""The command `compute-scheduler`: claim resources in placement, give them back, serve requests.

claim    find providers for some resources, claim them, print the consumer and where it landed
release  give back what a consumer holds
explain  show where a request fits, or why it does not
make-room
show which guests to move so that a request fits
select   read a request specification as JSON, claim, print the selections
reschedule, delete, attach, detach
go on with an instance that was claimed for
move     begin, confirm or revert the move of an instance to another host
serve    answer select_destinations on the message bus
list     show what consumers, a host or a project hold
top      show a running scheduler's work, live
status   ask a running scheduler what agents that are too old hold back
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import uuid
from collections.abc import Sequence

from compute_agent import __version__, errors
from compute_agent.cmd import program
from compute_agent.cmd.scheduler import (
    claim_options,
    explain,
    holdings,
    instances,
    make_room,
    moves,
    top,
)
from compute_agent.cmd.scheduler.configured import assemble, placement_transport, read_json
from compute_agent.daemon import message_bus
from compute_agent.programs import configuration_files
from compute_agent.programs.exit_status import Exit, exit_table

LOG = logging.getLogger(__name__)

PROGRAM = "compute-scheduler"
MODULE = "compute_agent.cmd.scheduler.main"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command given by `argv` and return its exit status."""
    files, others = configuration_files.split(PROGRAM, sys.argv[1:] if argv is None else argv)
    namespace = _parser().parse_args([*files, *others])
    return program.run(PROGRAM, namespace, _exit_status_of)


def _exit_status_of(namespace: argparse.Namespace, error: errors.ComputeAgentError) -> int:
    from compute_agent.scheduler.errors import NoValidHost

    if isinstance(error, errors.PlacementUnavailable):
        print(
            "Check that placement and keystone run, and that [placement]endpoint_override or the "
            "catalogue, and auth_url, have their addresses. What was not done can be repeated; a "
            "claim that may have been made is released with the next request.",
            file=sys.stderr,
        )
    if isinstance(error, NoValidHost):
        if namespace.json:
            print(json.dumps(error.as_dict(), indent=2))
        else:
            from compute_agent.cmd.scheduler.explanation_view import print_explanation

            print_explanation(error.causes, sys.stderr)
    return error.exit_status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Claims resources in placement before a host is contacted.",
        epilog=exit_table(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=__version__)
    configuration_files.add_options(parser, program.CONFIGURATION_FILE)
    parser.add_argument(
        "--os-cloud",
        metavar="NAME",
        help="name of a cloud in clouds.yaml whose placement is used, not that of [placement]; "
        "serve does not take it",
    )
    parser.add_argument(
        "--debug", action="store_true", help="log everything, including each request"
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_claim(commands)
    release = commands.add_parser("release", help="release everything that a consumer holds")
    release.add_argument(
        "consumer", metavar="CONSUMER", help="uuid of the consumer, as claim printed it"
    )
    release.add_argument("--json", action="store_true", help="one JSON document on stdout")
    release.set_defaults(function=_release)
    select = commands.add_parser("select", help="claim resources for a request specification")
    select.add_argument(
        "file",
        nargs="?",
        default="-",
        metavar="FILE",
        help="request specification as JSON; default: standard input",
    )
    select.add_argument("--alternates", action="store_true", help="also list hosts to try later")
    select.add_argument(
        "--json", action="store_true", default=True, help="no effect: the output is always JSON"
    )
    select.set_defaults(function=_select)
    explain.add_parser(commands)
    make_room.add_parser(commands)
    instances.add_parsers(commands)
    moves.add_parsers(commands)
    holdings.add_parser(commands)
    top.add_parser(commands)
    serve = commands.add_parser("serve", help="answer requests on the message bus")
    # set by `serve` for its worker processes
    serve.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    serve.set_defaults(function=_serve, json=False)
    status = commands.add_parser("status", help="show the status of a running scheduler")
    status.add_argument(
        "what", choices=["upgrade"], help="show what agents of older versions still prevent"
    )
    status.add_argument("--json", action="store_true", help="one JSON document on stdout")
    status.set_defaults(function=_upgrade_status)
    return parser


def _add_claim(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    claim = commands.add_parser(
        "claim",
        help="claim resources",
        description="Claims resources on one host, and prints the consumer and the host. GROUP in "
        "an option is the suffix of a --group; an option without GROUP applies to --resources.",
    )
    claim_options.add_request_options(claim)
    claim.add_argument(
        "--consumer", metavar="UUID", help="uuid of the consumer; default: a new one"
    )
    claim.add_argument("--json", action="store_true", help="one JSON document on stdout")
    claim.set_defaults(function=_claim)


def _claim(namespace: argparse.Namespace) -> None:
    from compute_agent.cmd.scheduler.instances import claim_document
    from compute_agent.cmd.scheduler.request_options import spec_of
    from compute_agent.request.extra_specs import uuid_text
    from compute_agent.scheduler.life_cycle.life_cycle import LifeCycle

    spec = spec_of(namespace)
    consumer = (
        uuid_text("--consumer", namespace.consumer) if namespace.consumer else str(uuid.uuid4())
    )
    parts = assemble(namespace, chooses=True)
    claim = LifeCycle(parts).claim(spec, consumer)
    document = claim_document(claim, parts.client)
    if namespace.json:
        print(json.dumps(document, indent=2))
    else:
        from compute_agent.cmd.scheduler.claim_view import print_claim

        print_claim(document)


def _release(namespace: argparse.Namespace) -> int:
    from compute_agent.request.extra_specs import uuid_text

    consumer = uuid_text("CONSUMER", namespace.consumer)
    was_released = assemble(namespace).client.release(consumer)
    if namespace.json:
        print(json.dumps({"consumer": consumer, "released": was_released}))
    elif was_released:
        print(f"Released everything that consumer {consumer} held.")
    if not was_released:
        print(
            f"compute-scheduler release: consumer {consumer} holds nothing: it was released "
            "before, or never claimed.",
            file=sys.stderr,
        )
        return Exit.FAILED
    return Exit.FINE


def _select(namespace: argparse.Namespace) -> None:
    from compute_agent.request import spec_reader

    body = read_json(namespace.file)
    instances = spec_reader.instances_of(body)
    spec = spec_reader.read_spec(body)
    scheduler = assemble(namespace, chooses=True).scheduler
    selections = scheduler.select_destinations(spec, instances, alternates=namespace.alternates)
    print(json.dumps([[host.as_dict() for host in hosts] for hosts in selections], indent=2))


def _serve(namespace: argparse.Namespace) -> int:
    from compute_agent import conf as agent_conf
    from compute_agent.daemon import garbage_collection, logs, tracing
    from compute_agent.programs.systemd import ServiceManager
    from compute_agent.scheduler.service import shown_metrics
    from compute_agent.scheduler.service.life import SchedulerLife, check_placement
    from compute_agent.scheduler.service.workers import Workers, when_abandoned

    if namespace.os_cloud is not None:
        raise errors.InvalidConfiguration(
            "serve takes no --os-cloud: set [placement]auth_type and its options in the file."
        )
    conf = program.configuration(namespace)
    logs.set_up(conf, "compute-scheduler")
    if not namespace.worker:
        LOG.info(
            "compute-scheduler %s starts: %d worker(s), host %s, placement %s, message bus %s",
            __version__,
            max(conf.scheduler.workers, 1),
            conf.DEFAULT.host,
            conf.placement.endpoint_override or "by the catalogue of keystone",
            message_bus.shown_address(conf),
        )
        agent_conf.warn_of_useless(conf)
        from compute_agent.scheduler import assembly

        # a filter or weigher that does not exist ends the start here, instead of every worker
        assembly.search_options(conf)
        assembly.claim_options(conf)
    if namespace.worker or conf.scheduler.workers <= 1:
        tracing.start(conf, PROGRAM)
    manager = ServiceManager()
    if namespace.worker:
        calls = shown_metrics.counted_calls(conf)
        life = SchedulerLife(conf, placement_transport(namespace, conf), manager, calls)
        when_abandoned(sys.stdin.buffer, life.stop)
        return life.run()
    if conf.scheduler.workers <= 1:
        with shown_metrics.of_this_process(conf) as calls:
            return SchedulerLife(conf, placement_transport(namespace, conf), manager, calls).run()
    message_bus.open_transport(conf).cleanup()
    check_placement(conf, placement_transport(namespace, conf))
    files = [f"--config-file={file}" for file in namespace.config_file]
    files += [f"--config-dir={directory}" for directory in namespace.config_dir]
    files += ["--debug"] if namespace.debug else []
    command = [sys.executable, "-m", MODULE, *files, "serve", "--worker"]
    # otherwise Python walks all of it once more when this process ends, which delays a stop
    garbage_collection.keep_what_is_loaded()
    with shown_metrics.of_workers(conf) as (variables, on_end):
        workers = Workers(
            command, conf.scheduler.workers, manager, variables=variables, on_end=on_end
        )
        return workers.run()


def _upgrade_status(namespace: argparse.Namespace) -> None:
    from compute_agent.cmd.scheduler.explanation_view import print_status
    from compute_agent.scheduler.bus.running_scheduler import upgrade_status

    status = upgrade_status(program.configuration(namespace))
    if namespace.json:
        print(json.dumps(status, indent=2))
    else:
        print_status(status)


if __name__ == "__main__":
    sys.exit(main())
