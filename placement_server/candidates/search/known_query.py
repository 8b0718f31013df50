"""A query with its names looked up, and what follows from that whatever the state of the trees.

Parsed queries are kept, because schedulers send the same few; this is kept with them, for as long
as every id has its name.
"""

from collections.abc import Iterable, Sequence
from itertools import chain

from msgspec import Struct

from placement_server.candidates.errors import QueryError
from placement_server.candidates.index.index import IndexNames
from placement_server.candidates.query.filters import AggregateTerms
from placement_server.candidates.query.query import (
    CandidateQuery,
    Plan,
    RequestGroup,
    plan,
)
from placement_server.candidates.search.look_ahead import find_contradiction, is_trivial
from placement_server.candidates.search.problem import Problem


class UnknownName(QueryError):
    """A class or trait of the query is not among the names that the index knows."""


class ProviderFilter(Struct, frozen=True):
    """What one provider must have to serve all that is asked for.

    :param amounts: by class id.
    :param terms: of each it has one of the traits, given by their ids.
    :param member_of: of each it is in one of the aggregates.
    """

    amounts: tuple[tuple[int, int], ...]
    terms: tuple[tuple[int, ...], ...]
    forbidden_ids: tuple[int, ...]
    member_of: AggregateTerms
    forbidden_aggregates: frozenset[str]

    def parameters(self) -> list[str]:
        """Return the parameters beside amounts that ask for something."""
        required = ["required"] if self.terms or self.forbidden_ids else []
        return required + (["member_of"] if self.member_of or self.forbidden_aggregates else [])


class KnownQuery(Struct, frozen=True):
    """What a query comes to with the names of an index.

    :param meanings: of the names.
    :param of_root: what is asked of the root of each tree.
    :param of_groups: what is asked by each group.
    :param of_lone: what is asked of a provider that is a tree by itself; None where none can serve
        everything, or where other rules matter.
    """

    meanings: object
    plan: Plan
    of_root: ProviderFilter
    of_groups: list[ProviderFilter]
    of_lone: ProviderFilter | None


def known_query(query: CandidateQuery, names: IndexNames) -> KnownQuery:
    """Look up all names: whether a wrong one is an error must not depend on what else there is.

    :raises UnknownName: a class or trait is not known.
    """
    known: KnownQuery | None = query.__dict__.get("known")
    if known is None or known.meanings is not names.meanings:
        known = _look_up(query, names)
        # The sums of contested classes may be many.
        if not known.plan.contested_classes:
            query.__dict__["known"] = known
    return known


def _look_up(query: CandidateQuery, names: IndexNames) -> KnownQuery:
    of_root = ProviderFilter(
        (),
        tuple([(number,) for number in _trait_ids(query.root_required, names)]),
        _trait_ids(query.root_forbidden, names),
        query.root_member_of,
        query.root_forbidden_aggregates,
    )
    of_groups = [_filter_of(group, names) for group in query.groups]
    compiled = plan(query, names.class_ids)
    is_tied = any(group.in_tree is not None for group in query.groups)
    of_lone = None if is_tied else _of_lone(compiled, [of_root, *of_groups])
    return KnownQuery(names.meanings, compiled, of_root, of_groups, of_lone)


def _filter_of(group: RequestGroup, names: IndexNames) -> ProviderFilter:
    for name, _amount in group.resources:
        if name not in names.class_ids:
            raise UnknownName(
                f"Invalid resource class in resources parameter: No such resource class {name}."
            )
    return ProviderFilter(
        tuple([(names.class_ids[name], amount) for name, amount in group.resources]),
        tuple([_trait_ids(term, names) for term in group.required]),
        _trait_ids(group.forbidden, names),
        group.member_of,
        group.forbidden_aggregates,
    )


def _of_lone(plan: Plan, filters: Sequence[ProviderFilter]) -> ProviderFilter | None:
    """Return all filters in one, if a provider that passes it is sure to serve everything."""
    amounts = tuple(chain.from_iterable([asked.amounts for asked in filters]))
    if plan.contested_classes or not amounts:
        return None
    problem = Problem.of_one_provider(len(plan.items))
    if not is_trivial(plan, problem) or find_contradiction(plan, problem):
        return None
    return ProviderFilter(
        amounts,
        tuple(chain.from_iterable([asked.terms for asked in filters])),
        tuple(chain.from_iterable([asked.forbidden_ids for asked in filters])),
        tuple(chain.from_iterable([asked.member_of for asked in filters])),
        frozenset().union(*[asked.forbidden_aggregates for asked in filters]),
    )


def _trait_ids(traits: Iterable[str], names: IndexNames) -> tuple[int, ...]:
    ids = []
    for name in sorted(traits):
        if name not in names.trait_ids:
            raise UnknownName(f"No such trait(s): {name}.")
        ids.append(names.trait_ids[name])
    return tuple(ids)
