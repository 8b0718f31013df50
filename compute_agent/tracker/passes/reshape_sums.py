"""Sums of what a consumer holds before and after a reshape, compared class by class.

A unit stays a unit of its class, with two exceptions:

    VCPU and PCPU      change into each other one for one: a guest has CPUs of its own or not
    classes            change their names: where one goes from a provider below the root and another
                       comes with the same total, what was held of the one is held of the other; so
                       it is anywhere where CUSTOM_<CLASS> goes and <CLASS> comes, or back. What
                       goes of devices from elsewhere, as from the root, may be held of any device
                       that comes

Beyond these, a driver declares what a class becomes (`ClassChange`), or the amounts of all
consumers show it: one class goes, another comes, and each consumer has of it what it had, times one
factor.

Pure functions; amounts are provider uuid -> resource class -> units.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from fractions import Fraction
from typing import TypeAlias

from msgspec import Struct

from compute_agent.placement.allocations.amounts import Amounts
from compute_agent.provider_tree import ProviderTree
from compute_agent.provider_tree.inventory import other_spelling
from compute_agent.provider_tree.trait_names import CUSTOM_PREFIX
from compute_agent.virt.driver import ClassChange

Units: TypeAlias = frozenset[tuple[str, str]]
"""Provider uuid and resource class."""

CPUS = frozenset({"VCPU", "PCPU"})
_DEVICE_CLASS = "VGPU"
_CONVERTED = "converted"
"""The provider of what a declared change made."""
_OF_THE_HOST = CPUS | {"MEMORY_MB", "DISK_GB"}


class Holding(Struct, frozen=True):
    """What one consumer holds on a tree before and after."""

    was: Amounts
    now: Amounts

    def sum_changes(self) -> Counter[str]:
        """Return what was gained of each class; negative: lost."""
        changes = _sums(self.now)
        changes.subtract(_sums(self.was))
        return Counter({rc: amount for rc, amount in changes.items() if amount})

    def gains_on(self, provider: str | None, resource_class: str) -> bool:
        """Whether it has more of a class on a provider than before."""
        place = provider or ""
        return self.now.get(place, {}).get(resource_class, 0) > self.was.get(place, {}).get(
            resource_class, 0
        )

    def after(self, change: ClassChange) -> Holding:
        """Return the holding with a declared change already made before: as far as it was made."""
        sums, factor = self.sum_changes(), Fraction(change.factor)
        lost, gained = -sums[change.old], sums[change.new]
        if min(lost, gained) <= 0:
            return self
        if gained != _ceil(lost * factor):
            lost = min(lost, int(gained / factor))
            gained = _ceil(lost * factor)
        was: dict[str, dict[str, int]] = {uuid: dict(held) for uuid, held in self.was.items()}
        for uuid, held in was.items():
            has = held.get(change.old, 0)
            spared = min(has, lost, max(has - self.now.get(uuid, {}).get(change.old, 0), 0))
            held[change.old] = has - spared
            lost -= spared
        converted = was.setdefault(_CONVERTED, {})
        converted[change.new] = converted.get(change.new, 0) + gained
        return Holding(was, self.now)


class Exchanges(Struct, frozen=True):
    """Which classes of a tree count as one in this reshape.

    `going`, `coming`: units that a provider has only before, or only after.
    `newly_counted`: units that were in use before placement counted them; what is held of them
    may appear from nowhere.
    `before`, `after`: totals. `new_names`: classes by the provider that they stay on.
    """

    groups: tuple[frozenset[str], ...]
    going: Units
    coming: Units
    newly_counted: Units = frozenset()
    before: Mapping[tuple[str, str], int] = {}
    after: Mapping[tuple[str, str], int] = {}
    new_names: Mapping[str, Collection[str]] = {}

    @classmethod
    def of(
        cls, base: ProviderTree, wanted_tree: ProviderTree, root_uuid: str, newly_counted: Units
    ) -> Exchanges:
        """Compare the tree of one root before and after."""
        before, after = _totals(base, root_uuid), _totals(wanted_tree, root_uuid)
        going, coming = frozenset(before.keys() - after), frozenset(after.keys() - before)
        anywhere = {new for _uuid, new in coming - newly_counted if _is_of_devices(new)}
        links = [CPUS]
        new_names: dict[str, set[str]] = {}
        for uuid, old in going:
            here = {
                new
                for at, new in coming
                if at == uuid
                and (
                    new == other_spelling(old)
                    or (
                        uuid != root_uuid
                        and after[at, new] == before[uuid, old]
                        and not {old, new} & _OF_THE_HOST
                    )
                )
            }
            if here:
                if all(sum(at == uuid for at, _rc in units) == 1 for units in (going, coming)):
                    new_names.setdefault(old, set()).update(here)
                links.append(frozenset({old, *here}))
            elif _is_of_devices(old):
                links.append(frozenset({old, *anywhere}))
        return cls(_unite(links), going, coming, newly_counted, before, after, new_names)

    def faults(self, was: Amounts, now: Amounts) -> Iterator[tuple[str, int, int]]:
        """Yield class, units before and units after, of every class that lost or gained units.

        :param was, now: what one consumer holds on this tree.
        """
        before, after = _sums(was), _sums(now)
        found_sums = _sums(_within(now, self.newly_counted))
        departures, arrivals = _sums(_within(was, self.going)), _sums(_within(now, self.coming))
        grouped_classes = {rc for group in self.groups for rc in group}
        alone = (frozenset({rc}) for rc in {*before, *after} - grouped_classes)
        faulty: set[str] = set()
        for group in (*self.groups, *alone):
            total = sum(after[rc] for rc in group)
            healed_total = total - sum(found_sums[rc] for rc in group)
            is_renamed = group != CPUS and len(group) > 1
            if sum(before[rc] for rc in group) not in (total, healed_total) or (
                is_renamed
                and any(
                    before[rc] - after[rc] > departures[rc] or after[rc] - before[rc] > arrivals[rc]
                    for rc in group - CPUS
                )
            ):
                faulty |= group
        for rc in sorted(faulty):
            if before[rc] != after[rc]:
                yield rc, before[rc], after[rc]

    def inferred(
        self, holdings: Collection[Holding], classes: Collection[str]
    ) -> tuple[ClassChange, ...] | None:
        """Return what some classes became, by the amounts of all consumers; None: nothing fits.

        Each class becomes one other, no two the same.
        """
        sums = [
            Counter({rc: n for rc, n in holding.sum_changes().items() if rc in classes})
            for holding in holdings
        ]
        lost_classes = {rc for changes in sums for rc, n in changes.items() if n < 0}
        new_classes = {rc for changes in sums for rc, n in changes.items() if n > 0}
        if lost_classes & new_classes or len(lost_classes) != len(new_classes):
            return None
        candidates = {
            old: sorted(
                (
                    ClassChange(old, new, factor)
                    for new in new_classes
                    if (factor := self._factor(old, new, holdings, sums)) is not None
                ),
                key=lambda change: (change.factor != 1, change.new),
            )
            for old in lost_classes
        }
        return _matched(sorted(lost_classes), candidates)

    def _factor(
        self,
        old: str,
        new: str,
        holdings: Collection[Holding],
        sums: Collection[Counter[str]],
    ) -> Fraction | None:
        """Return how many units of one class each unit of another became for every consumer."""
        going = [self.before[unit] for unit in self.going if unit[1] == old]
        coming = [self.after[unit] for unit in self.coming - self.newly_counted if unit[1] == new]
        if not going or not coming or not self._may_become(old, new):
            return None
        factors = set()
        for holding, changes in zip(holdings, sums, strict=True):
            lost, gained = -changes[old], changes[new]
            if not lost and not gained:
                continue
            if (
                not lost
                or lost > _sums(_within(holding.was, self.going))[old]
                or gained > _sums(_within(holding.now, self.coming))[new]
            ):
                return None
            factors.add(Fraction(gained, lost))
        if len(factors) != 1 or 0 in factors or (sum(going) == sum(coming) and factors != {1}):
            return None
        return factors.pop()

    def _may_become(self, old: str, new: str) -> bool:
        """Whether nothing contradicts it: a name given where the class stays, or units in use.

        CPUs, memory and disks only where no provider counted them before, or none does after.
        """
        if new not in self.new_names.get(old, {new}):
            return False
        if not {old, new} & _OF_THE_HOST:
            return True
        if old.startswith(CUSTOM_PREFIX):
            return all(rc != new for _uuid, rc in self.before)
        return new.startswith(CUSTOM_PREFIX) and all(rc != old for _uuid, rc in self.after)


def _matched(
    lost_classes: list[str], candidates: Mapping[str, list[ClassChange]]
) -> tuple[ClassChange, ...] | None:
    """Return one change for each class, no two to the same one; None: there are none such."""
    if not lost_classes:
        return ()
    for change in candidates[lost_classes[0]]:
        remaining = {
            old: [c for c in changes if c.new != change.new] for old, changes in candidates.items()
        }
        if (others := _matched(lost_classes[1:], remaining)) is not None:
            return (change, *others)
    return None


def _ceil(amount: Fraction) -> int:
    return -int(-amount // 1)


def _totals(tree: ProviderTree, root_uuid: str) -> dict[tuple[str, str], int]:
    return {
        (uuid, rc): int(record["total"])
        for uuid in tree.get_provider_uuids(root_uuid)
        for rc, record in tree.data(uuid).inventory.items()
    }


def _is_of_devices(resource_class: str) -> bool:
    return resource_class == _DEVICE_CLASS or resource_class.startswith(CUSTOM_PREFIX)


def _unite(links: Collection[frozenset[str]]) -> tuple[frozenset[str], ...]:
    """Unite sets that have something in common; of the result no two have."""
    groups: list[frozenset[str]] = []
    for link in links:
        touching = [group for group in groups if group & link]
        groups = [group for group in groups if not group & link]
        groups.append(link.union(*touching))
    return tuple(groups)


def _sums(amounts: Amounts) -> Counter[str]:
    sums: Counter[str] = Counter()
    for resources in amounts.values():
        sums.update(resources)
    return sums


def _within(amounts: Amounts, units: Units) -> Amounts:
    return {
        uuid: {rc: n for rc, n in resources.items() if (uuid, rc) in units}
        for uuid, resources in amounts.items()
    }
