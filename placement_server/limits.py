"""The most that one request may name, so that what it costs has an end.

A client that has more to say sends several requests.
"""

from typing import Final

#: Traits, resource classes, aggregates or resource providers, of each kind.
NAMES: Final = 10_000
#: Filters of a query: each class of ``resources``, each trait or ``in:`` list of ``required``, each
#: ``member_of``, ...
FILTERS: Final = 1_000
#: Groups of a query for allocation candidates.
GROUPS: Final = 1_000
#: Consumers of a request that writes allocations.
CONSUMERS: Final = 10_000


def too_many(field: str, given: int, what: str, most: int) -> str:
    """The sentence for the client."""
    return f"{field} has {given} {what}, the limit is {most}"
