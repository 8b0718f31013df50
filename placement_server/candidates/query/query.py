"""Queries as values, and their compiled form: items to place, and the rules between them.

Every suffixed group is one *item*: one provider takes all of it. The unsuffixed group is one item
for each of its classes, because each class may come from another provider. The rules between
items do not depend on the trees, so they are compiled once for a query.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from msgspec import Struct

from placement_server.candidates.query.filters import AggregateTerms, FilterSize, TraitTerms

GroupPolicy = Literal["none", "isolate"]

# More distinct sums than this are not listed.
_MOST_SUMS = 512


class RequestGroup(Struct, frozen=True):
    """One group of requested resources.

    :param suffix: "" for the unsuffixed group.
    :param resources: amounts by class name, in the order asked.
    :param required: every term must be met by at least one of its traits.
    :param member_of: every term must be met by membership in at least one of its aggregates.
    :param in_tree: the uuid of any provider of the only tree that may serve the group.
    """

    suffix: str
    resources: tuple[tuple[str, int], ...] = ()
    required: TraitTerms = ()
    forbidden: frozenset[str] = frozenset()
    member_of: AggregateTerms = ()
    forbidden_aggregates: frozenset[str] = frozenset()
    in_tree: str | None = None

    def filters(self) -> Iterator[FilterSize]:
        """Yield how much each parameter of the group asks for."""
        suffix, amounts = self.suffix, len(self.resources)
        yield FilterSize(f"resources{suffix}", "resource classes", amounts, amounts)
        yield FilterSize.of(f"required{suffix}", "traits", self.required, self.forbidden)
        yield FilterSize.of(
            f"member_of{suffix}", "aggregates", self.member_of, self.forbidden_aggregates
        )
        yield FilterSize(f"in_tree{suffix}", "resource providers", *[self.in_tree is not None] * 2)


class SameSubtree(Struct, frozen=True):
    """One same_subtree constraint, by suffixes.

    The providers of `together` must all be in the subtree of one of them; those of `apart`
    (written with `!`, an extension) must not be in that subtree.
    """

    together: frozenset[str]
    apart: frozenset[str] = frozenset()

    def __len__(self) -> int:
        """Count the suffixes."""
        return len(self.together) + len(self.apart)


class CandidateQuery(Struct, frozen=True, dict=True):
    """A request for allocation candidates. What others find out about it is kept with it.

    :param groups: in the order in which their suffixes first appear in the query.
    :param isolate: suffixes whose providers serve no other group at all (an extension).
    :param root_member_of: aggregate terms on the root of the tree (an extension).
    """

    groups: tuple[RequestGroup, ...]
    group_policy: GroupPolicy = "none"
    limit: int | None = None
    root_required: frozenset[str] = frozenset()
    root_forbidden: frozenset[str] = frozenset()
    same_subtree: tuple[SameSubtree, ...] = ()
    isolate: frozenset[str] = frozenset()
    root_member_of: AggregateTerms = ()
    root_forbidden_aggregates: frozenset[str] = frozenset()


class Item(NamedTuple):
    """Something that one provider must take whole.

    :param group: position of its group in the query.
    :param amounts: amounts by class id.
    :param is_suffixed: False for one class of the unsuffixed group.
    :param is_named: whether the query isolates this group from all others.
    :param is_exclusive: whether no provider serves it and another such item.
    """

    group: int
    amounts: tuple[tuple[int, int], ...]
    is_suffixed: bool
    is_named: bool
    is_exclusive: bool


class ContestedClass(NamedTuple):
    """A class that several items request, so that one provider may have to serve more than one.

    :param wants: amount by item.
    :param sums: the sums that any of the items can come to, ascending from 0, or () when there
        are too many to list.
    """

    class_id: int
    wants: Mapping[int, int]
    total: int
    sums: tuple[int, ...]


class Subtree(NamedTuple):
    """A same_subtree constraint, by items."""

    together: frozenset[int]
    apart: frozenset[int]


class Plan(NamedTuple):
    """The items of a query and the rules between them, whatever the tree.

    :param wants: by class, the amounts by item.
    :param is_isolated: whether no two suffixed items may be on one provider.
    :param one_per_tree: whether only one provider of a tree may take part (before nesting).
    """

    items: tuple[Item, ...]
    wants: Mapping[int, Mapping[int, int]]
    contested_classes: tuple[ContestedClass, ...]
    subtrees: tuple[Subtree, ...]
    is_isolated: bool
    one_per_tree: bool = False

    def needs(self, placement: Sequence[int]) -> Counter[tuple[int, int]]:
        """Return what a placement takes, by class and position."""
        needs: Counter[tuple[int, int]] = Counter()
        for item, position in zip(self.items, placement, strict=True):
            for class_id, amount in item.amounts:
                needs[class_id, position] += amount
        return needs


def plan(query: CandidateQuery, class_ids: Mapping[str, int]) -> Plan:
    """Compile items and rules. All class names of the query must be in `class_ids`."""
    items: list[Item] = []
    is_isolated = query.group_policy == "isolate"
    for number, group in enumerate(query.groups):
        amounts = tuple((class_ids[name], amount) for name, amount in group.resources)
        if group.suffix:
            is_named = group.suffix in query.isolate
            items.append(Item(number, amounts, True, is_named, is_named or is_isolated))
        else:
            items.extend(Item(number, (amount,), False, False, False) for amount in amounts)
    by_suffix = {query.groups[item.group].suffix: number for number, item in enumerate(items)}
    subtrees = tuple(
        Subtree(
            frozenset(by_suffix[suffix] for suffix in subtree.together),
            frozenset(by_suffix[suffix] for suffix in subtree.apart),
        )
        for subtree in query.same_subtree
    )
    wants: dict[int, dict[int, int]] = {}
    for position, item in enumerate(items):
        for class_id, amount in item.amounts:
            wants.setdefault(class_id, {})[position] = amount
    contested_classes = tuple(
        ContestedClass(class_id, by_item, sum(by_item.values()), _sums(by_item.values()))
        for class_id, by_item in wants.items()
        if len(by_item) > 1
        and not (is_isolated and all(items[item].is_suffixed for item in by_item))
    )
    return Plan(tuple(items), wants, contested_classes, subtrees, is_isolated)


def _sums(amounts: Iterable[int]) -> tuple[int, ...]:
    sums = {0}
    for amount in amounts:
        sums |= {other + amount for other in sums}
        if len(sums) > _MOST_SUMS:
            return ()
    return tuple(sorted(sums))
