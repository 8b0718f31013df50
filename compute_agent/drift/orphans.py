"""Judgement of a consumer as gone: a pure function of what placement has and a source knows."""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum

from msgspec import Struct

from compute_agent import errors
from compute_agent.drift.instances.instance import InstanceSource, Listing
from compute_agent.placement.allocations.allocations import INSTANCE, MIGRATION
from compute_agent.placement.consumers import Consumer, Consumers
from compute_agent.placement.provider_directory import ProviderDirectory
from compute_agent.programs.printable import first_of


class Verdict(Enum):
    """What a consumer is taken for."""

    EXISTS = "exists"
    OTHER = "is of a type that is not looked for"
    YOUNG = "was written too recently to be judged"
    UNKNOWN = "cannot be judged"
    ORPHAN = "does not exist any more"


class Judgement(Struct, frozen=True):
    """A verdict and, where it is not plain, why."""

    verdict: Verdict
    reason: str = ""


def judge_alone(
    consumer: Consumer, min_age: float, *, knows_migrations: bool = True
) -> Judgement | None:
    """Judge a consumer by itself; None: a source of instances has to be asked about it.

    :param knows_migrations: whether the source knows them; otherwise only instances are judged.
    """
    judged_types = (INSTANCE, MIGRATION, None) if knows_migrations else (INSTANCE,)
    if consumer.type not in judged_types:
        return Judgement(Verdict.OTHER)
    if consumer.age is None:
        return Judgement(Verdict.UNKNOWN, "placement does not report when it was written")
    return Judgement(Verdict.YOUNG) if consumer.age < min_age else None


def judge(
    consumer: Consumer, listing: Listing, directory: ProviderDirectory, min_age: float
) -> Judgement:
    """Judge a consumer by its own existence, wherever it holds something."""
    if consumer.uuid in listing.known_consumers:
        return Judgement(Verdict.EXISTS)
    if (judgement := judge_alone(consumer, min_age)) is not None:
        return judgement
    if consumer.type == MIGRATION and not listing.knows_migrations:
        return Judgement(Verdict.UNKNOWN, "it is a migration, of which agents know nothing")
    return (
        Judgement(Verdict.ORPHAN) if listing.complete else _by_agents(consumer, listing, directory)
    )


def confirmed(judgement: Judgement, consumer: Consumer, source: InstanceSource) -> Judgement:
    """Check an orphan by itself, since a list may lack an instance that exists.

    :raises ComputeAgentError: the source cannot be asked.
    """
    if judgement.verdict is Verdict.ORPHAN and not source.is_gone(consumer.uuid):
        return Judgement(Verdict.EXISTS)
    return judgement


def delete(consumers: Consumers, orphan: Consumer, listing: Listing) -> str:
    """Delete what an orphan holds; return why it keeps it, an empty string if it does not.

    :raises PlacementError: placement cannot be used.
    """
    if orphan.type is None and not listing.knows_migrations:
        return "it has no type, so it could be a migration, which agents do not know"
    try:
        consumers.delete(orphan)
    except errors.AllocationUpdateFailed as error:
        return str(error)
    return ""


def why_silent(roots: Collection[str], listing: Listing, directory: ProviderDirectory) -> str:
    """Return why it is unknown what runs on these roots, by name: no agent, or one that cannot."""
    names = sorted(directory.name(root) for root in roots if root not in listing.untold)
    reasons = [f"no agent answers for {first_of(names, 5)}"] if names else []
    untold: dict[str, list[str]] = {}
    for root in roots:
        if root in listing.untold:
            untold.setdefault(listing.untold[root], []).append(directory.name(root))
    for why, hosts in sorted(untold.items()):
        reasons.append(
            f"the agent of {first_of(sorted(hosts), 5)} does not list what runs there: {why}"
        )
    return "; ".join(reasons)


def _by_agents(consumer: Consumer, listing: Listing, directory: ProviderDirectory) -> Judgement:
    own = {directory.root(uuid) for uuid in consumer.resources if not directory.is_shared(uuid)}
    # one that holds shared resources only could run anywhere
    concerned_roots = own or listing.silent
    if silent := concerned_roots & listing.silent:
        return Judgement(Verdict.UNKNOWN, why_silent(silent, listing, directory))
    if not listing.roots:
        return Judgement(Verdict.UNKNOWN, "no agent answers at all")
    if not own.issubset(listing.answered_roots):
        return Judgement(Verdict.UNKNOWN, "it holds something of a provider that is not listed")
    return Judgement(Verdict.ORPHAN)
