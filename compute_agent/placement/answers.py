"""Types of the good answers of placement, which check what they are decoded from.

Keys that a type does not have are ignored, except those of an inventory record. What callers build
upon, show or send back is a dict still, whose keys are checked anyway.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Generic, NotRequired, TypedDict, TypeVar

from msgspec import Meta, Struct, field
from msgspec.structs import asdict

from compute_agent.programs.decoding import Amounts, Number, Whole
from compute_agent.provider_tree import PlacementProvider
from compute_agent.provider_tree.inventory import MAX_INT, FrozenRecord

T = TypeVar("T")


class RootedProvider(PlacementProvider):
    """A provider with the root of its tree."""

    root_provider_uuid: str


class ProviderList(Struct, Generic[T], frozen=True):
    """The answer about several providers."""

    resource_providers: list[T]


class Record(Struct, frozen=True, forbid_unknown_fields=True):
    """An inventory record. What is not known here would be lost when it is written again."""

    total: Whole
    reserved: Whole = 0
    min_unit: Whole = 1
    max_unit: Whole = MAX_INT
    step_size: Whole = 1
    allocation_ratio: Number = 1.0


Records = dict[str, Record]


def inventory_of(records: Records) -> FrozenRecord:
    """Return inventory records as a tree has them."""
    return FrozenRecord({name: FrozenRecord(asdict(record)) for name, record in records.items()})


class ProviderGeneration(Struct, frozen=True):
    """The answer to a write of a provider, and what an answer about one has beside its content."""

    resource_provider_generation: Whole


class InventoriesOfProvider(ProviderGeneration, frozen=True):
    """The inventories of a provider."""

    inventories: Records


class TraitsOfProvider(ProviderGeneration, frozen=True):
    """The traits of a provider."""

    traits: list[str]


class AggregatesOfProvider(ProviderGeneration, frozen=True):
    """The aggregates of a provider."""

    aggregates: list[str]


class TraitList(Struct, frozen=True):
    """The answer about the traits that there are."""

    traits: list[str]


class Held(TypedDict):
    """What is held of one provider, which had a generation when a consumer was read."""

    resources: Amounts
    generation: NotRequired[Whole]


class HeldByConsumer(Held):
    """What one consumer holds of a provider that was asked for."""

    consumer_generation: Whole


class Holders(Struct, Generic[T], frozen=True):
    """What an answer has by consumer, or of a consumer by provider."""

    allocations: dict[str, T]


class ConsumerRecord(TypedDict):
    """A consumer that holds something."""

    allocations: dict[str, Held]
    project_id: str
    user_id: str
    consumer_generation: Whole
    consumer_type: NotRequired[str]


class TreeMember(PlacementProvider):
    """A provider of a whole tree."""

    inventories: Records
    traits: list[str]
    aggregates: list[str]


class UsedTreeMember(TreeMember):
    """A provider of a tree whose usages were asked for."""

    usages: Amounts


class Tree(Struct, Generic[T], frozen=True):
    """A provider tree."""

    providers: list[T]
    sharing_providers: list[TreeMember] = []
    allocations: dict[str, ConsumerRecord] = {}


class TreeChange(Struct, frozen=True):
    """A change; its tree is unknown where it was deleted since."""

    root_provider_uuid: str | None


class ChangeList(Struct, frozen=True):
    """Changes, and the id to ask on from."""

    changes: list[TreeChange]
    last: Whole


class BusState(TypedDict):
    """The message bus as an agent sees it."""

    state: str
    since: NotRequired[str | None]
    why: NotRequired[str]


class AgentPlace(TypedDict):
    """Where an agent runs."""

    address: str
    machine_id: str
    boot_id: str
    state_path: str


class AgentReport(Struct, frozen=True):
    """The last report of the agent of one host.

    :ivar at: by placement's clock.
    :ivar is_silent: it has missed the next ones.
    :ivar trouble: what its last pass failed with; empty: nothing.
    """

    root_provider_uuid: str
    at: Annotated[datetime, Meta(tz=True)]
    is_silent: bool = field(name="silent")
    bus: BusState
    disabled_reason: str
    trouble: str
    place: AgentPlace


class ReportList(Struct, frozen=True):
    """The last reports of agents."""

    agent_reports: list[AgentReport]


class Usages(Struct, Generic[T], frozen=True):
    """Amounts by resource class, or by type of consumer and class."""

    usages: dict[str, T]


class OfferedVersion(Struct, frozen=True):
    """A range of versions."""

    max_version: str
    min_version: str = ""
    id: str = ""


class VersionDocument(Struct, frozen=True):
    """The versions of the API that placement offers, and those of extensions."""

    versions: list[OfferedVersion]
    extensions: list[OfferedVersion] = []
