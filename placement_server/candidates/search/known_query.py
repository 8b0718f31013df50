"""A query with its names looked up, and what follows from that whatever the state of the trees.

Parsed queries are kept, because schedulers send the same few; this is kept with them, for as long
as every id has its name.
"""

from collections.abc import Iterable

from msgspec import Struct

from placement_server.candidates.errors import QueryError
from placement_server.candidates.index.index import IndexNames
from placement_server.candidates.query.query import CandidateQuery, Plan, plan


class UnknownName(QueryError):
    """A class or trait of the query is not among the names that the index knows."""


class KnownQuery(Struct, frozen=True):
    """What a query comes to with the names of an index.

    :param meanings: of the names.
    :param terms: by group, the ids of the traits of each required term.
    :param forbidden_ids: by group.
    """

    meanings: object
    plan: Plan
    root_required_ids: list[int]
    root_forbidden_ids: list[int]
    terms: list[list[list[int]]]
    forbidden_ids: list[list[int]]


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
    root_required_ids = _trait_ids(query.root_required, names)
    root_forbidden_ids = _trait_ids(query.root_forbidden, names)
    terms, forbidden_ids = [], []
    for group in query.groups:
        for name, _amount in group.resources:
            if name not in names.class_ids:
                raise UnknownName(
                    f"Invalid resource class in resources parameter: No such resource class {name}."
                )
        terms.append([_trait_ids(term, names) for term in group.required])
        forbidden_ids.append(_trait_ids(group.forbidden, names))
    return KnownQuery(
        names.meanings,
        plan(query, names.class_ids),
        root_required_ids,
        root_forbidden_ids,
        terms,
        forbidden_ids,
    )


def _trait_ids(traits: Iterable[str], names: IndexNames) -> list[int]:
    ids = []
    for name in sorted(traits):
        if name not in names.trait_ids:
            raise UnknownName(f"No such trait(s): {name}.")
        ids.append(names.trait_ids[name])
    return ids
