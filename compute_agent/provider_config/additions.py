"""Provider config files: inventories and traits that an operator adds to providers of this agent.

    meta:
      schema_version: '1.0'
    providers:
      - identification:
          uuid: '$COMPUTE_NODE'      # every compute node of this agent; or a uuid, or name: <name>
        inventories:
          additional:
            - CUSTOM_CACHE_WAY: {total: 20, max_unit: 8}
        traits:
          additional: [CUSTOM_RACK_COLD_AISLE]

The files are the whole truth: what leaves them is taken back out of placement. For that the caller
remembers what `merge` returned as added, and passes it to the next one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, TypeAlias

from msgspec import Struct

from compute_agent import errors
from compute_agent.provider_tree import ProviderData, ProviderTree
from compute_agent.provider_tree.inventory import InventoryRecord, equal_records
from compute_agent.provider_tree.trait_names import COMPUTE_NODE
from compute_agent.state.ledger import Additions

LOG = logging.getLogger(__name__)

EVERY_COMPUTE_NODE: Final = "$COMPUTE_NODE"

HeldAmounts: TypeAlias = Callable[[str], Mapping[str, int]]
"""Provider uuid -> amounts that consumers hold of it, by class."""


class ProviderConfigException(errors.InvalidConfiguration):
    """A provider config file cannot be used; the message names the file and what to change."""


class ProviderConfig(Struct, frozen=True):
    """Additions to one provider, from one file. Exactly one of `uuid` and `name` is set."""

    source_file: str
    uuid: str | None = None
    """Canonical, or `$COMPUTE_NODE`."""
    name: str | None = None
    inventories: Mapping[str, InventoryRecord] = {}
    """Complete records, by class."""
    traits: tuple[str, ...] = ()

    @property
    def identification(self) -> str:
        return f"uuid {self.uuid}" if self.uuid else f"name {self.name}"


class MergeResult(Struct, frozen=True):
    """Result of a merge.

    :ivar additions: of the providers of the tree, and those remembered of others; to be remembered
        once they have been written to placement.
    :ivar problems: contradictions with what the driver or another client reports; that addition is
        left out.
    :ivar absent_providers: providers that the files name and the tree does not have, as written.
    :ivar kept_sentences: about classes that left the files and stay because consumers hold them,
        which no tree shows.
    :ivar uuids: the providers of the tree, with additions or without.
    """

    additions: Additions
    problems: Sequence[errors.InvalidConfiguration]
    absent_providers: Sequence[str]
    kept_sentences: Sequence[str]
    uuids: frozenset[str]


def merge(
    configs: Sequence[ProviderConfig],
    tree: ProviderTree,
    *,
    remembered_additions: Mapping[str, Mapping[str, Sequence[str]]],
    base: ProviderTree | None = None,
    held_amounts: HeldAmounts | None = None,
) -> MergeResult:
    """Add what the files name to a tree, and remove what they no longer name. Edits `tree`.

    To be called after the driver and after the traits that the agent sets itself.

    :param remembered_additions: the additions of earlier merges. Those of providers that are not in
        the tree are carried over.
    :param base: the tree as placement has it; gives back a class that must stay.
    :param held_amounts: amounts that consumers hold; called only for classes that left the
        files. `None`: unknown, placement itself refuses to drop what is in use.
    """
    assigned_configs, absent, problems = _assign(configs, tree)
    additions: Additions = {
        uuid: {kind: sorted(names) for kind, names in kinds.items()}
        for uuid, kinds in remembered_additions.items()
        if not tree.exists(uuid)
    }
    kept_sentences: list[str] = []
    for uuid in tree.get_provider_uuids():
        config = assigned_configs.get(uuid)
        before = remembered_additions.get(uuid, {})
        if config is None and not before:
            continue
        earlier_classes = frozenset(before.get("inventories", ()))
        classes, conflicts = _add(tree, uuid, config, earlier_classes)
        problems.extend(conflicts)
        traits = set(config.traits) if config else set()
        dropped_classes = earlier_classes - classes
        staying = _take_back_classes(tree, uuid, dropped_classes, base, held_amounts)
        kept_sentences.extend(
            f"{rc} on provider {tree.data(uuid).name} is in no provider config file any more, but "
            f"{amount} of it are allocated: it stays until they are released"
            for rc, amount in sorted(staying.items())
        )
        tree.remove_traits(uuid, *(frozenset(before.get("traits", ())) - traits))
        if classes or staying or traits:
            additions[uuid] = {
                "inventories": sorted({*classes, *staying}),
                "traits": sorted(traits),
            }
    return MergeResult(
        additions,
        problems,
        tuple(absent),
        tuple(kept_sentences),
        frozenset(tree.get_provider_uuids()),
    )


def _assign(
    configs: Sequence[ProviderConfig], tree: ProviderTree
) -> tuple[dict[str, ProviderConfig], list[str], list[errors.InvalidConfiguration]]:
    """Assign each entry to its provider of the tree."""
    assigned_configs: dict[str, ProviderConfig] = {}
    absent: list[str] = []
    problems: list[errors.InvalidConfiguration] = []
    for config in configs:
        if config.uuid == EVERY_COMPUTE_NODE:
            continue
        provider = _provider_of(tree, config)
        if provider is None:
            absent.append(config.identification)
        elif provider.uuid in assigned_configs:
            other = assigned_configs[provider.uuid]
            problems.append(
                errors.ProviderConfigConflict(
                    f"{other.source_file} and {config.source_file} both have an entry for provider "
                    f"{provider.name} ({provider.uuid}), one by {other.identification}, the other "
                    f"by {config.identification}. Join the two entries."
                )
            )
        else:
            assigned_configs[provider.uuid] = config
    for config in configs:
        if config.uuid == EVERY_COMPUTE_NODE:
            for root in tree.roots:
                if COMPUTE_NODE in root.traits:
                    # an entry for this very node replaces the one for every node
                    assigned_configs.setdefault(root.uuid, config)
    return assigned_configs, absent, problems


def _provider_of(tree: ProviderTree, config: ProviderConfig) -> ProviderData | None:
    identifier = config.uuid or config.name or ""
    if not tree.exists(identifier):
        return None
    provider = tree.data(identifier)
    return provider if identifier == (provider.uuid if config.uuid else provider.name) else None


def _add(
    tree: ProviderTree, uuid: str, config: ProviderConfig | None, earlier_classes: Collection[str]
) -> tuple[frozenset[str], list[errors.InvalidConfiguration]]:
    """Add classes and traits; return the classes that are in, and what was refused."""
    if config is None:
        return frozenset(), []
    provider = tree.data(uuid)
    problems: list[errors.InvalidConfiguration] = []
    added_records: dict[str, InventoryRecord] = {}
    for resource_class, record in config.inventories.items():
        present = provider.inventory.get(resource_class)
        if present is None or resource_class in earlier_classes or equal_records(present, record):
            added_records[resource_class] = record
            continue
        problems.append(
            errors.ProviderConfigConflict(
                f"{config.source_file} adds {resource_class} to provider {provider.name} ({uuid}), "
                "which has it already from the driver or another service. Remove it from the file."
            )
        )
    tree.update_inventory(uuid, {**provider.inventory, **added_records})
    tree.add_traits(uuid, *config.traits)
    return frozenset(added_records), problems


def _take_back_classes(
    tree: ProviderTree,
    uuid: str,
    leaving_classes: Collection[str],
    base: ProviderTree | None,
    held_amounts: HeldAmounts | None,
) -> dict[str, int]:
    """Drop classes that left the files; return the amounts held of those that stay."""
    if not leaving_classes:
        return {}
    in_use = held_amounts(uuid) if held_amounts is not None else {}
    staying = {rc: in_use[rc] for rc in leaving_classes if in_use.get(rc)}
    inventory = {
        rc: record for rc, record in tree.data(uuid).inventory.items() if rc not in leaving_classes
    }
    source = base if base is not None and base.exists(uuid) else tree
    stored_inventory = source.data(uuid).inventory
    inventory.update({rc: stored_inventory[rc] for rc in sorted(staying) if rc in stored_inventory})
    tree.update_inventory(uuid, inventory)
    return staying
