"""Packing of consumers that so far held the whole host into NUMA cells.

    known place      exactly there, or nowhere: a guest is not counted where it is not
    else             larger consumers first, on the cell with the least free memory in which
                     everything fits
    else             split over as few cells as possible, every class in the same proportion

Deterministic: ties go to the lower cell, consumers of one size in the order of their uuids.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

ClassAmounts = Mapping[str, int]
"""Resource class -> units."""

MEMORY = "MEMORY_MB"


class Demand(Struct, frozen=True):
    """What one consumer holds."""

    consumer: str
    amounts: ClassAmounts
    place: Mapping[int, ClassAmounts] = {}
    """Where its guest really is: cell -> units by class, as weights; empty = unknown."""

    @property
    def size(self) -> tuple[int, int]:
        cpus = sum(n for rc, n in self.amounts.items() if rc != MEMORY)
        return self.amounts.get(MEMORY, 0), cpus


class Misfit(Struct, frozen=True):
    """A consumer for which there is no room, and how much is missing of what."""

    consumer: str
    missing_amounts: ClassAmounts


class Packing(Struct, frozen=True):
    parts: Mapping[str, Mapping[int, ClassAmounts]]
    """Consumer -> cell -> units; the sums are those of the demand."""
    misfits: tuple[Misfit, ...]


def pack(demands: Sequence[Demand], room: Mapping[int, ClassAmounts]) -> Packing:
    """Distribute the demands over cells.

    :param room: free units by cell and class.
    """
    free = {cell: dict(amounts) for cell, amounts in sorted(room.items())}
    parts: dict[str, Mapping[int, ClassAmounts]] = {}
    misfits = []
    placed_demands = [demand for demand in demands if demand.place]
    floating_demands = [demand for demand in demands if not demand.place]
    for demand in sorted(placed_demands, key=lambda d: d.consumer):
        parts_by_cell = _follow(demand)
        if lacking_amounts := _lacking(parts_by_cell, free):
            misfits.append(Misfit(demand.consumer, lacking_amounts))
        else:
            parts[demand.consumer] = _take(free, parts_by_cell)
    for demand in sorted(floating_demands, key=lambda d: (-d.size[0], -d.size[1], d.consumer)):
        found_parts = _whole(demand.amounts, free) or _split(demand.amounts, free)
        if found_parts is None:
            misfits.append(Misfit(demand.consumer, _missing_amounts(demand.amounts, free)))
        else:
            parts[demand.consumer] = _take(free, found_parts)
    return Packing(parts, tuple(misfits))


def proportional(total: int, weights: Sequence[int], least: int = 0) -> list[int]:
    """Divide whole units by weight, at least `least` each; the largest remainders go first."""
    rest = total - least * len(weights)
    whole = sum(weights)
    if rest < 0:
        raise ValueError(f"{total} cannot be divided into {len(weights)} parts of {least}")
    if whole == 0:
        weights, whole = [1] * len(weights), len(weights)
    shares = [rest * weight // whole for weight in weights]
    by_remainder = sorted(range(len(weights)), key=lambda i: (-(rest * weights[i] % whole), i))
    for i in by_remainder[: rest - sum(shares)]:
        shares[i] += 1
    return [share + least for share in shares]


def _follow(demand: Demand) -> dict[int, dict[str, int]]:
    """Divide what placement reports as held in the way the guest really has it."""
    cells = sorted(demand.place)
    parts: dict[int, dict[str, int]] = {cell: {} for cell in cells}
    for resource_class, amount in sorted(demand.amounts.items()):
        weights = [demand.place[cell].get(resource_class, 0) for cell in cells]
        if not any(weights):
            weights = [sum(demand.place[cell].values()) for cell in cells]
        for cell, share in zip(cells, proportional(amount, weights), strict=True):
            if share:
                parts[cell][resource_class] = share
    return {cell: amounts for cell, amounts in parts.items() if amounts}


def _whole(
    amounts: ClassAmounts, free: Mapping[int, Mapping[str, int]]
) -> dict[int, dict[str, int]] | None:
    fitting_cells = [
        cell
        for cell, room in free.items()
        if all(room.get(rc, 0) >= amount for rc, amount in amounts.items())
    ]
    if not fitting_cells:
        return None
    fullest_cell = min(fitting_cells, key=lambda cell: (free[cell].get(MEMORY, 0), cell))
    return {fullest_cell: dict(amounts)}


def _split(
    amounts: ClassAmounts, free: Mapping[int, Mapping[str, int]]
) -> dict[int, dict[str, int]] | None:
    """Take as few cells as can be; on equal numbers those with the most room for this demand."""

    def scarcest(cell: int) -> float:
        return min(free[cell].get(rc, 0) / amount for rc, amount in amounts.items())

    usable = [cell for cell in free if all(free[cell].get(rc, 0) > 0 for rc in amounts)]
    usable.sort(key=lambda cell: (-scarcest(cell), cell))
    most = min(len(usable), *amounts.values())
    for divide in (_in_proportion, _as_it_fits):
        for count in range(2, most + 1):
            parts = divide(amounts, [(cell, free[cell]) for cell in sorted(usable[:count])])
            if parts is not None:
                return parts
    return None


def _in_proportion(
    amounts: ClassAmounts, cells: Sequence[tuple[int, Mapping[str, int]]]
) -> dict[int, dict[str, int]] | None:
    """Divide the class with the fewest units, and all others as that one was divided."""
    lead = min(amounts, key=lambda rc: (amounts[rc], rc))
    whole = amounts[lead]
    caps = [
        min(min(whole, room[rc] * whole // amount) for rc, amount in amounts.items())
        for _cell, room in cells
    ]
    if sum(caps) < whole or not all(caps):
        return None
    leads = _fill(whole, caps)
    parts: dict[int, dict[str, int]] = {cell: {} for cell, _room in cells}
    for resource_class, amount in sorted(amounts.items()):
        limits = [room[resource_class] for _cell, room in cells]
        shares = _within(proportional(amount - len(cells), leads), [n - 1 for n in limits])
        for (cell, _room), share in zip(cells, shares, strict=True):
            parts[cell][resource_class] = share + 1
    return parts


def _as_it_fits(
    amounts: ClassAmounts, cells: Sequence[tuple[int, Mapping[str, int]]]
) -> dict[int, dict[str, int]] | None:
    """Give up the common proportion where whole units do not allow it."""
    parts: dict[int, dict[str, int]] = {cell: {} for cell, _room in cells}
    for resource_class, amount in sorted(amounts.items()):
        caps = [room[resource_class] for _cell, room in cells]
        if sum(caps) < amount:
            return None
        for (cell, _room), share in zip(cells, _fill(amount, caps), strict=True):
            parts[cell][resource_class] = share
    return parts


def _fill(total: int, caps: Sequence[int]) -> list[int]:
    """Divide by room, at least one unit each. The caps together hold the total."""
    return _within(proportional(total, caps, least=1), caps)


def _within(shares: Sequence[int], caps: Sequence[int]) -> list[int]:
    """Move what rounding put above a cap to where there is room, first cells first."""
    bounded_shares = [min(share, cap) for share, cap in zip(shares, caps, strict=True)]
    over = sum(shares) - sum(bounded_shares)
    for i, cap in enumerate(caps):
        moved_amount = min(over, cap - bounded_shares[i])
        bounded_shares[i] += moved_amount
        over -= moved_amount
    return bounded_shares


def _take(
    free: dict[int, dict[str, int]], parts: Mapping[int, ClassAmounts]
) -> Mapping[int, ClassAmounts]:
    for cell, amounts in parts.items():
        for resource_class, amount in amounts.items():
            free[cell][resource_class] -= amount
    return parts


def _lacking(
    parts: Mapping[int, ClassAmounts], free: Mapping[int, Mapping[str, int]]
) -> ClassAmounts:
    lacking_amounts: dict[str, int] = {}
    for cell, amounts in parts.items():
        for resource_class, amount in amounts.items():
            short = amount - free.get(cell, {}).get(resource_class, 0)
            if short > 0:
                lacking_amounts[resource_class] = lacking_amounts.get(resource_class, 0) + short
    return dict(sorted(lacking_amounts.items()))


def _missing_amounts(amounts: ClassAmounts, free: Mapping[int, Mapping[str, int]]) -> ClassAmounts:
    missing_amounts = {
        rc: amount - sum(max(room.get(rc, 0), 0) for room in free.values())
        for rc, amount in amounts.items()
    }
    short = {rc: n for rc, n in sorted(missing_amounts.items()) if n > 0}
    # there is enough in all, but not together on cells that have every class
    return short or dict(sorted(amounts.items()))
