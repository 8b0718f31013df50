"""Placements with amounts that are new before those with amounts that were there already.

Items that want the same class may exchange their providers and still take the same amounts::

    A (a trait) and B want one VGPU each     A on gpu1, B on gpu2    new
                                             A on gpu1, B on gpu3    new
                                             A on gpu2, B on gpu1    put off: gpu1 and gpu2 again

The solver does not enumerate such permutations of *symmetric* items. Those of other items, where
one may go where the other may not, are found like any placement and put off here; and so are
placements that differ only in the provider of a group that asks for no resources.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from placement_server.candidates.bounds import sizes
from placement_server.candidates.bounds.memory import Account
from placement_server.candidates.query.compiled import Plan
from placement_server.candidates.search.problem import Positions

# A request for a few candidates must not wait for all permutations between two new ones.
_MOST_IN_A_ROW = 512
_MOST_PUT_OFF = 10_000


def may_repeat(plan: Plan, symmetric_items: Sequence[tuple[int, ...]]) -> bool:
    """Check whether two placements of the solver may have the same amounts.

    :param symmetric_items: the sets of items that the solver places in one order only.
    """
    sets = [frozenset(items) for items in symmetric_items]
    return any(not item.amounts for item in plan.items) or any(
        len(by_item) > 1 and not any(items >= by_item.keys() for items in sets)
        for by_item in plan.wants.values()
    )


def distinct_first(
    plan: Plan, placements: Iterator[Positions], put_off: list[Positions], account: Account
) -> Iterator[Positions]:
    """Yield the placements whose amounts are new, and collect the others.

    After very many in a row that are not new, or very many in all, what is left comes as it is
    found: the order is worth some time, not any.
    """
    seen_keys: set[object] = set()
    in_a_row = 0
    for placement in placements:
        amounts = _amounts(plan, placement)
        if amounts not in seen_keys:
            numbers = sum([len(sums) for sums in amounts if isinstance(sums, tuple)])
            account.take(sizes.seen_amounts(len(amounts), numbers))
            seen_keys.add(amounts)
            in_a_row = 0
            yield placement
            continue
        account.take(sizes.placement(len(placement)))
        put_off.append(placement)
        in_a_row += 1
        if in_a_row == _MOST_IN_A_ROW or len(put_off) == _MOST_PUT_OFF:
            yield from placements
            return


def _amounts(plan: Plan, placement: Positions) -> tuple[object, ...]:
    """Return what is equal for two placements just when their amounts are."""
    return tuple([_of_class(by_item, placement) for by_item in plan.wants.values()])


def _of_class(by_item: Mapping[int, int], placement: Positions) -> object:
    if len(by_item) == 1:
        return placement[next(iter(by_item))]
    sums: dict[int, int] = {}
    for item, amount in by_item.items():
        at = placement[item]
        sums[at] = sums.get(at, 0) + amount
    # One flat tuple takes a quarter of a set of pairs.
    return tuple(chain.from_iterable(sorted(sums.items())))
