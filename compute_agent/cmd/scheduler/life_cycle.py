"""The commands about an instance: from a claim over moves to its end, and what would be claimed."""

from __future__ import annotations

import argparse
import sys
import uuid
from typing import Final

from msgspec import to_builtins

from compute_agent.cmd.output import print_json, show
from compute_agent.cmd.scheduler import request_options
from compute_agent.cmd.scheduler.configured import assemble, claim_document, read_json
from compute_agent.cmd.scheduler.views import explanation_lines, print_claim
from compute_agent.placement.allocations.amounts import MutableAmounts
from compute_agent.programs.exit_status import Exit
from compute_agent.programs.printable import first_of
from compute_agent.request import spec_reader
from compute_agent.request.extra_specs import uuid_text
from compute_agent.request.spec_reader import Fields
from compute_agent.scheduler.life_cycle.life_cycle import LifeCycle
from compute_agent.scheduler.moves.move import Move, move_kind, move_of
from compute_agent.scheduler.moves.mover import Mover

_SHOWN_HOSTS: Final = 10


def claim(namespace: argparse.Namespace) -> None:
    """Claim resources for a consumer."""
    spec = request_options.spec_of(namespace)
    consumer = (
        uuid_text("--consumer", namespace.consumer) if namespace.consumer else str(uuid.uuid4())
    )
    parts = assemble(namespace, chooses=True)
    document = claim_document(LifeCycle(parts).claim(spec, consumer), parts.client)
    if namespace.json:
        print_json(document)
    else:
        print_claim(document)


def release(namespace: argparse.Namespace) -> int:
    """Release all that a consumer holds."""
    consumer = uuid_text("CONSUMER", namespace.consumer)
    was_released = assemble(namespace).client.release(consumer)
    line = [f"Released everything that consumer {consumer} held."] if was_released else []
    show(namespace, {"consumer": consumer, "released": was_released}, *line)
    if not was_released:
        print(
            f"compute-scheduler release: consumer {consumer} holds nothing: it was released "
            "before, or never claimed.",
            file=sys.stderr,
        )
        return Exit.FAILED
    return Exit.FINE


def select(namespace: argparse.Namespace) -> None:
    """Claim for a request specification."""
    body = read_json(namespace.file)
    instances = spec_reader.instances_of(body)
    spec = spec_reader.read_spec(body)
    scheduler = assemble(namespace, chooses=True).scheduler
    selections = scheduler.select_destinations(spec, instances, alternates=namespace.alternates)
    print_json(to_builtins(selections))


def explain(namespace: argparse.Namespace) -> int:
    """Show where a request fits, or why it does not."""
    spec = request_options.given_spec(namespace)
    explanation = assemble(namespace, chooses=True).explainer.explain(spec)
    hosts, causes = explanation.hosts, explanation.causes
    lines = [f"No valid host. {causes.sentence()}"]
    if hosts:
        names = [host.name for host in hosts]
        lines = [f"It fits on {first_of(names, _SHOWN_HOSTS)}. Nothing was claimed."]
        lines += [f"On {names[0]}:", *explanation.plan] if explanation.plan else []
    show(namespace, explanation.as_dict(), *lines, *explanation_lines(causes))
    return Exit.FINE if hosts else Exit.FAILED


def reschedule(namespace: argparse.Namespace) -> None:
    """Claim another host for an instance."""
    spec, instance = spec_reader.read_spec(read_json(namespace.file)), _instance(namespace)
    parts = assemble(namespace, chooses=True)
    claim = LifeCycle(parts).reschedule(spec, instance, namespace.failed)
    print_json(claim_document(claim, parts.client))


def delete(namespace: argparse.Namespace) -> None:
    """Release what a deleted instance holds."""
    instance = _instance(namespace)
    migrations = [uuid_text("--migration", uuid) for uuid in namespace.migration]
    # only a local delete asks who is alive
    life_cycle = _life_cycle(namespace, chooses=namespace.local)
    delete = life_cycle.local_delete if namespace.local else life_cycle.delete
    print_json({"deleted": instance, "released": delete(instance, migrations)})


def attach(namespace: argparse.Namespace) -> None:
    """Add a port or an accelerator to an instance."""
    spec = spec_reader.read_spec(read_json(namespace.file))
    outcome = _life_cycle(namespace).attach(spec, _instance(namespace), _before(namespace))
    print_json(to_builtins(outcome))


def detach(namespace: argparse.Namespace) -> None:
    """Remove a port or an accelerator from an instance."""
    body, instance = read_json(namespace.file), _instance(namespace)
    resources = Fields(body.get("allocations", body), "allocations").amounts()
    _life_cycle(namespace).detach(instance, resources, _before(namespace))
    print_json({"detached": resources, "instance": instance})


def begin_move(namespace: argparse.Namespace) -> None:
    """Claim a destination and keep the source."""
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
        "move": to_builtins(begun_move.move),
        "selections": to_builtins(begun_move.selections),
    }
    print_json(document)


def finish_move(namespace: argparse.Namespace) -> None:
    """Release the source."""
    move, mover = _move_and_mover(namespace)
    mover.finish(move)
    print_json({"finished": move.instance})


def revert_move(namespace: argparse.Namespace) -> None:
    """Return to the source."""
    move, mover = _move_and_mover(namespace)
    mappings = {suffix: list(uuids) for suffix, uuids in mover.revert(move).items()}
    print_json({"reverted": move.instance, "mappings": mappings})


def record_returned_source(namespace: argparse.Namespace) -> None:
    """Release a source that was dead."""
    instance = uuid_text("INSTANCE", namespace.instance)
    source = uuid_text("ROOT", namespace.source)
    assemble(namespace).mover.source_returned(instance, source)
    print_json({"returned": source, "instance": instance})


def _move_and_mover(namespace: argparse.Namespace) -> tuple[Move, Mover]:
    body = read_json(namespace.file)
    return move_of(body.get("move", body)), assemble(namespace).mover


def _life_cycle(namespace: argparse.Namespace, *, chooses: bool = False) -> LifeCycle:
    return LifeCycle(assemble(namespace, chooses=chooses))


def _instance(namespace: argparse.Namespace) -> str:
    return uuid_text("INSTANCE", namespace.instance)


def _before(namespace: argparse.Namespace) -> MutableAmounts | None:
    return Fields(read_json(namespace.before), "--before").amounts() if namespace.before else None
