"""Limits on what one request may name, so that its cost is bounded.

A client that needs more sends several requests.
"""

from typing import Final

NAMES: Final = 10_000
"""Traits, resource classes, aggregates or resource providers, of each kind."""

FILTERS: Final = 1_000
"""Filters of a query: each class of `resources`, each trait or `in:` list of `required`, each
`member_of`, ..."""

GROUPS: Final = 1_000
"""Groups of a query for allocation candidates."""

SHAPES: Final = 100
"""Shapes of a question for the fragmentation."""

CONSUMERS: Final = 10_000
"""Consumers of a request that writes allocations."""

CHANGES: Final = 10_000
"""Changes that one request supposes, and questions that it asks then."""

QUESTIONS: Final = 100
ROOTS: Final = 1_000
"""Hosts of a question of the pages for some hosts."""


def too_many(field: str, count: int, what: str, most: int) -> str:
    """Return the sentence for the client."""
    return f"{field} has {count} {what}, the limit is {most}"
