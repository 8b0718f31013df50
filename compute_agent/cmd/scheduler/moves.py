"""The command `compute-scheduler move`: allocations of a move, from begin to end.

begin     claim a destination; the document printed is kept until the move ends
finish    confirm: release what is held on the source
revert    give the instance back what it held on the source
returned  the source of an evacuation is back: take its part from the instance
"""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from compute_agent.cmd.scheduler.instances import add_file, add_instance

if TYPE_CHECKING:
    from compute_agent.scheduler.moves.move import Move
    from compute_agent.scheduler.moves.mover import Mover


def add_parsers(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to those of `compute-scheduler`."""
    move = commands.add_parser("move", help="begin, confirm or revert the move of an instance")
    steps = move.add_subparsers(dest="step", required=True, metavar="STEP")

    begin = steps.add_parser("begin", help="claim a destination and keep the source")
    begin.add_argument(
        "kind",
        choices=["cold", "live", "evacuate"],
        help="kind of the move; cold is also for a resize",
    )
    add_instance(begin, "request specification")
    begin.add_argument(
        "--migration",
        default="",
        metavar="UUID",
        help="consumer that holds the source during the move",
    )
    begin.add_argument(
        "--source",
        default="",
        metavar="UUID",
        help="root provider of the dead host; with it an evacuation can be repeated",
    )
    begin.add_argument("--alternates", action="store_true", help="also list hosts to try later")
    begin.set_defaults(function=_begin)

    for name, function, what in (
        ("finish", _finish, "release the source"),
        ("revert", _revert, "return to the source and release the destination"),
    ):
        step = steps.add_parser(name, help=what)
        add_file(step, "output of begin")
        step.set_defaults(function=function)

    returned_parser = steps.add_parser(
        "returned", help="release a source that was dead, after it is back"
    )
    add_instance(returned_parser)
    returned_parser.add_argument(
        "source", metavar="ROOT", help="uuid of the root provider of the source"
    )
    returned_parser.set_defaults(function=_record_returned_source)
    move.set_defaults(json=True)


def _begin(namespace: argparse.Namespace) -> None:
    from compute_agent.cmd.scheduler.configured import assemble, read_json
    from compute_agent.request import spec_reader
    from compute_agent.request.extra_specs import uuid_text
    from compute_agent.request.spec_reader import Fields
    from compute_agent.scheduler.life_cycle.life_cycle import LifeCycle
    from compute_agent.scheduler.moves.move import move_kind

    body = read_json(namespace.file)
    instance = uuid_text("INSTANCE", namespace.instance)
    migration = uuid_text("--migration", namespace.migration) if namespace.migration else ""
    source = uuid_text("--source", namespace.source) if namespace.source else ""
    begun_move = LifeCycle(assemble(namespace, chooses=True)).begin_move(
        move_kind(namespace.kind),
        spec_reader.read_spec(body),
        instance,
        migration,
        source_root=source,
        mappings={s: [str(u) for u in us] for s, us in Fields(body).lists("mappings").items()},
        alternates=namespace.alternates,
    )
    document = {
        "move": begun_move.move.as_dict(),
        "selections": [selection.as_dict() for selection in begun_move.selections],
    }
    print(json.dumps(document, indent=2))


def _finish(namespace: argparse.Namespace) -> None:
    move, mover = _move_and_mover(namespace)
    mover.finish(move)
    print(json.dumps({"finished": move.instance}))


def _revert(namespace: argparse.Namespace) -> None:
    move, mover = _move_and_mover(namespace)
    mappings = {suffix: list(uuids) for suffix, uuids in mover.revert(move).items()}
    print(json.dumps({"reverted": move.instance, "mappings": mappings}))


def _move_and_mover(namespace: argparse.Namespace) -> tuple[Move, Mover]:
    from compute_agent.cmd.scheduler.configured import assemble, read_json
    from compute_agent.scheduler.moves.move import move_of

    body = read_json(namespace.file)
    return move_of(body.get("move", body)), assemble(namespace).mover


def _record_returned_source(namespace: argparse.Namespace) -> None:
    from compute_agent.cmd.scheduler.configured import assemble
    from compute_agent.request.extra_specs import uuid_text

    instance = uuid_text("INSTANCE", namespace.instance)
    source = uuid_text("ROOT", namespace.source)
    assemble(namespace).mover.source_returned(instance, source)
    print(json.dumps({"returned": source, "instance": instance}))
