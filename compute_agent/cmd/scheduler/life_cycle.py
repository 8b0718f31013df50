"""The commands that go on with an instance: reschedule, delete, attach, detach, and its moves."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import Any

from compute_agent.cmd.scheduler.configured import assemble, claim_document, read_json
from compute_agent.placement.allocations.amounts import MutableAmounts
from compute_agent.request import spec_reader
from compute_agent.request.extra_specs import uuid_text
from compute_agent.request.spec_reader import Fields
from compute_agent.scheduler.life_cycle.life_cycle import LifeCycle
from compute_agent.scheduler.moves.move import Move, move_kind, move_of
from compute_agent.scheduler.moves.mover import Mover


def reschedule(namespace: argparse.Namespace) -> None:
    """Claim another host for an instance."""
    spec, instance = spec_reader.read_spec(read_json(namespace.file)), _instance(namespace)
    parts = assemble(namespace, chooses=True)
    claim = LifeCycle(parts).reschedule(spec, instance, namespace.failed)
    print(json.dumps(claim_document(claim, parts.client), indent=2))


def delete(namespace: argparse.Namespace) -> None:
    """Release what a deleted instance holds."""
    instance = _instance(namespace)
    migrations = [uuid_text("--migration", uuid) for uuid in namespace.migration]
    # only a local delete asks who is alive
    life_cycle = _life_cycle(namespace, chooses=namespace.local)
    delete = life_cycle.local_delete if namespace.local else life_cycle.delete
    print(json.dumps({"deleted": instance, "released": delete(instance, migrations)}))


def attach(namespace: argparse.Namespace) -> None:
    """Add a port or an accelerator to an instance."""
    spec = spec_reader.read_spec(read_json(namespace.file))
    outcome = _life_cycle(namespace).attach(spec, _instance(namespace), _before(namespace))
    print(json.dumps(outcome.as_dict(), indent=2))


def detach(namespace: argparse.Namespace) -> None:
    """Remove a port or an accelerator from an instance."""
    body, instance = read_json(namespace.file), _instance(namespace)
    resources = _amounts("allocations", body.get("allocations", body))
    _life_cycle(namespace).detach(instance, resources, _before(namespace))
    print(json.dumps({"detached": resources, "instance": instance}))


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
        "move": begun_move.move.as_dict(),
        "selections": [selection.as_dict() for selection in begun_move.selections],
    }
    print(json.dumps(document, indent=2))


def finish_move(namespace: argparse.Namespace) -> None:
    """Release the source."""
    move, mover = _move_and_mover(namespace)
    mover.finish(move)
    print(json.dumps({"finished": move.instance}))


def revert_move(namespace: argparse.Namespace) -> None:
    """Return to the source."""
    move, mover = _move_and_mover(namespace)
    mappings = {suffix: list(uuids) for suffix, uuids in mover.revert(move).items()}
    print(json.dumps({"reverted": move.instance, "mappings": mappings}))


def record_returned_source(namespace: argparse.Namespace) -> None:
    """Release a source that was dead."""
    instance = uuid_text("INSTANCE", namespace.instance)
    source = uuid_text("ROOT", namespace.source)
    assemble(namespace).mover.source_returned(instance, source)
    print(json.dumps({"returned": source, "instance": instance}))


def _move_and_mover(namespace: argparse.Namespace) -> tuple[Move, Mover]:
    body = read_json(namespace.file)
    return move_of(body.get("move", body)), assemble(namespace).mover


def _life_cycle(namespace: argparse.Namespace, *, chooses: bool = False) -> LifeCycle:
    return LifeCycle(assemble(namespace, chooses=chooses))


def _instance(namespace: argparse.Namespace) -> str:
    return uuid_text("INSTANCE", namespace.instance)


def _before(namespace: argparse.Namespace) -> MutableAmounts | None:
    return _amounts("--before", read_json(namespace.before)) if namespace.before else None


def _amounts(name: str, body: Mapping[str, Any]) -> MutableAmounts:
    fields = Fields(body, name)
    return {uuid: dict(fields.resources(uuid)) for uuid in body}
