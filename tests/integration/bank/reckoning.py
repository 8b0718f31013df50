"""Reckoning at the end: the ledgers of all tellers, compared with the database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tests.integration.bank.ledger import GuardedWrite, Ledger
from tests.integration.bank.observer import Look
from tests.integration.bank.world import World


def reckon(
    world: World, first: Look, last: Look, stamps_seen: set[int], ledgers: Sequence[Ledger]
) -> list[str]:
    """Everything that contradicts what was acknowledged or refused."""
    return [
        *_holdings(world, first, last, ledgers),
        *_shared_consumers(world, last, ledgers),
        *_inventories(last, stamps_seen, ledgers),
        *_provider_generations(world, first, last, ledgers),
    ]


def _holdings(world: World, first: Look, last: Look, ledgers: Sequence[Ledger]) -> list[str]:
    """Every acknowledged claim is there, every refused one is not."""
    problems = []
    possible = {uuid: states for ledger in ledgers for uuid, states in ledger.possible.items()}
    for uuid, states in possible.items():
        holding = world.grouped(last.held.get(uuid, {}))
        if holding not in states:
            problems.append(f"{uuid} has {holding} in the end, must have one of {states}")
    strangers = last.held.keys() - possible.keys() - first.held.keys()
    problems += [
        f"{stranger} has {last.held[stranger]} in the end, but nobody claimed"
        for stranger in strangers
    ]
    return problems


def _twice(writes: Sequence[GuardedWrite], what: str) -> list[str]:
    """No generation may let two writers in."""
    acknowledged = Counter(
        (write.subject, write.generation) for write in writes if write.outcome == "acknowledged"
    )
    return [
        f"{count} writes of {what} {subject} were acknowledged for its generation {generation}"
        for (subject, generation), count in acknowledged.items()
        if count > 1
    ]


def _shared_consumers(world: World, last: Look, ledgers: Sequence[Ledger]) -> list[str]:
    """Each write of a shared consumer starts where the one before it ended."""
    writes = [write for ledger in ledgers for write in ledger.shared]
    problems = _twice(writes, "consumer")
    for consumer in world.shared_consumers:
        own = [write for write in writes if write.subject == consumer]
        generation = last.consumers.get(consumer, 0)
        content = last.held.get(consumer, {}).get(world.fixed[0], {}).get("VCPU", 0)
        for step in range(1, generation):
            at = [w for w in own if w.generation == step and w.outcome != "refused"]
            if not at:
                problems.append(f"nobody raised consumer {consumer} from generation {step}")
        decisive = [w for w in own if w.generation == generation - 1 and w.outcome != "refused"]
        sure = [write for write in decisive if write.outcome == "acknowledged"]
        if decisive and content not in [write.content for write in sure or decisive]:
            problems.append(f"{consumer} has {content} VCPU, last written was {sure or decisive}")
        for write in own:
            if write.outcome == "acknowledged" and write.generation >= generation:
                problems.append(
                    f"a write of {consumer} at generation {write.generation} was acknowledged, but "
                    f"it is at {generation} in the end"
                )
    return problems


def _inventories(last: Look, stamps_seen: set[int], ledgers: Sequence[Ledger]) -> list[str]:
    writes = [write for ledger in ledgers for write in ledger.inventories]
    problems = _twice(writes, "the inventory of")
    refused = {write.content for write in writes if write.outcome == "refused"}
    for stamp in refused & (stamps_seen | {stock.stamp for stock in last.stock.values()}) - {0}:
        problems.append(f"the inventory with stamp {stamp} was refused, but it was there")
    return problems


def _provider_generations(
    world: World, first: Look, last: Look, ledgers: Sequence[Ledger]
) -> list[str]:
    """Each acknowledged write raised exactly the generations that the contract says."""
    problems = []
    for provider in world.providers():
        least = first.providers[provider] + sum(ledger.raised[provider] for ledger in ledgers)
        most = least + sum(ledger.perhaps[provider] for ledger in ledgers)
        generation = last.providers[provider]
        if not least <= generation <= most:
            problems.append(
                f"provider {provider} is at generation {generation}, the acknowledged writes make "
                f"it {least}, at most {most}"
            )
    return problems
