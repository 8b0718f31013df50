"""Shapes of the good answers of placement: all that may be read out of them without a doubt."""

from __future__ import annotations

from itertools import chain
from operator import itemgetter
from typing import Any, Final

from compute_agent.state.shapes import (
    AMOUNTS,
    BOOLEAN,
    LARGEST,
    NUMBER,
    TEXT,
    WHOLE,
    Shape,
    list_of,
    map_of,
    object_of,
    text_like,
    text_or_null,
)

_PROVIDER = {
    "uuid": TEXT,
    "name": TEXT,
    "generation": WHOLE,
    "parent_provider_uuid": text_or_null,
}
RECORD: Final = object_of(
    {"total": WHOLE},
    {
        "reserved": WHOLE,
        "min_unit": WHOLE,
        "max_unit": WHOLE,
        "step_size": WHOLE,
        "allocation_ratio": NUMBER,
    },
    # what is not known here would be lost when the inventory is written again
    is_closed=True,
)
_AT_GENERATION = {"resource_provider_generation": WHOLE}
_HELD = {"resources": AMOUNTS}
_HOLDER = object_of(
    {
        "allocations": map_of(object_of(_HELD)),
        "project_id": TEXT,
        "user_id": TEXT,
        "consumer_generation": WHOLE,
    },
    {"consumer_type": TEXT},
)


def _consumer(value: Any) -> str | None:
    # for a consumer that it does not know, placement returns empty allocations and nothing else
    if type(value) is dict and value.get("allocations") == {}:
        return None
    return _HOLDER(value)


PROVIDER: Final = Shape("a provider", object_of(_PROVIDER))
PROVIDERS: Final = Shape(
    "a list of providers", object_of({"resource_providers": list_of(object_of(_PROVIDER))})
)
ROOTED_PROVIDER: Final = Shape(
    "a provider with its root", object_of({**_PROVIDER, "root_provider_uuid": TEXT})
)
ROOTED_PROVIDERS: Final = Shape(
    "a list of providers with their roots",
    object_of({"resource_providers": list_of(ROOTED_PROVIDER.check)}),
)
INVENTORIES: Final = Shape(
    "the inventories of a provider", object_of({"inventories": map_of(RECORD), **_AT_GENERATION})
)
PROVIDER_TRAITS: Final = Shape(
    "the traits of a provider", object_of({"traits": list_of(TEXT), **_AT_GENERATION})
)
AGGREGATES: Final = Shape(
    "the aggregates of a provider", object_of({"aggregates": list_of(TEXT), **_AT_GENERATION})
)
_TREE_MEMBER = {
    **_PROVIDER,
    "inventories": map_of(RECORD),
    "traits": list_of(TEXT),
    "aggregates": list_of(TEXT),
}
PROVIDER_TREE: Final = Shape(
    "a provider tree",
    object_of(
        {"providers": list_of(object_of(_TREE_MEMBER))},
        {"sharing_providers": list_of(object_of(_TREE_MEMBER)), "allocations": map_of(_HOLDER)},
    ),
)
USED_TREE: Final = Shape(
    "a provider tree with its usages",
    object_of({"providers": list_of(object_of({**_TREE_MEMBER, "usages": AMOUNTS}))}),
)
WRITTEN: Final = Shape("the new generation of a provider", object_of(_AT_GENERATION))
PROVIDER_ALLOCATIONS: Final = Shape(
    "the allocations on a provider",
    object_of({"allocations": map_of(object_of({**_HELD, "consumer_generation": WHOLE}))}),
)
TRAITS: Final = Shape("a list of traits", object_of({"traits": list_of(TEXT)}))
HELD_TREE: Final = Shape(
    "a tree with what consumers hold of it", object_of({"allocations": map_of(object_of({}))})
)
CONSUMER: Final = Shape("the allocations of a consumer", _consumer)
_COUNTS = object_of({"capacity": WHOLE, "used": WHOLE})
_CANDIDATES = object_of(
    {
        "allocation_requests": list_of(object_of({"allocations": map_of(object_of(_HELD))})),
        "provider_summaries": map_of(object_of({"resources": map_of(_COUNTS)})),
    }
)


def _candidates(value: Any) -> str | None:
    """Check candidates all at once; one by one only where something does not fit."""
    try:
        requests, summaries = value["allocation_requests"], value["provider_summaries"]
        allocations = [request["allocations"] for request in requests]
        amounts = [held["resources"] for held in chain.from_iterable(map(dict.values, allocations))]
        resources = [summary["resources"] for summary in dict.values(summaries)]
        counts = list(chain.from_iterable(map(dict.values, resources)))
        numbers = [
            *map(itemgetter("capacity"), counts),
            *map(itemgetter("used"), counts),
            *chain.from_iterable(map(dict.values, amounts)),
        ]
        texts = set(summaries).union(*allocations, *amounts, *resources)
    except (KeyError, TypeError):
        return _CANDIDATES(value)
    fits = (
        type(requests) is list
        and "".join(texts).isascii()
        and set(map(type, numbers)) <= {int}
        and all(-LARGEST <= number <= LARGEST for number in set(numbers))
    )
    return None if fits else _CANDIDATES(value)


CANDIDATES: Final = Shape("a list of candidates", _candidates)
ROOTED_CANDIDATES: Final = Shape(
    "a list of candidates with their roots and mappings",
    object_of(
        {
            "allocation_requests": list_of(
                object_of(
                    {"allocations": map_of(object_of(_HELD)), "mappings": map_of(list_of(TEXT))}
                )
            ),
            "provider_summaries": map_of(
                object_of(
                    {
                        "root_provider_uuid": TEXT,
                        "parent_provider_uuid": text_or_null,
                        "resources": map_of(_COUNTS),
                        "traits": list_of(TEXT),
                    }
                )
            ),
        }
    ),
)
_CHANGED = object_of({"changes": list_of(object_of({})), "trees": WHOLE, "example": TEXT})
_SHORT = object_of(
    {
        "group": TEXT,
        "provider": TEXT,
        "name": TEXT,
        "resource_class": TEXT,
        "asked": WHOLE,
        "free": WHOLE,
        "capacity": WHOLE,
        "held_by": WHOLE,
    }
)
EXPLANATION: Final = Shape(
    "an explanation of candidates",
    object_of(
        {
            "trees": WHOLE,
            "steps": list_of(object_of({"filter": TEXT})),
            "trees_left": WHOLE,
            "trees_failed": list_of(object_of({"reason": TEXT, "trees": WHOLE, "example": TEXT})),
            "sentences": list_of(TEXT),
            "closest": list_of(_CHANGED),
            "short": list_of(_SHORT),
            "complete": BOOLEAN,
        }
    ),
)
SUPPOSED: Final = {
    kind: Shape(f"{shape.words}, supposed", object_of({"answers": list_of(shape.check)}))
    for kind, shape in (("candidates", CANDIDATES), ("explanation", EXPLANATION))
}
"""By the kind of question about a supposed fleet."""
_TREE = object_of({"root": TEXT, "name": text_or_null})
_PLACE = {"to": _TREE, "allocations": map_of(object_of(_HELD)), "mappings": map_of(list_of(TEXT))}
ROOM: Final = Shape(
    "plans that make room",
    object_of(
        {
            "plans": list_of(
                object_of(
                    {
                        "moves": list_of(object_of({"consumer": TEXT, "from": _TREE, **_PLACE})),
                        "places": list_of(object_of(_PLACE)),
                        "memory_mb": WHOLE,
                        "whole": BOOLEAN,
                        "stuck": list_of(TEXT),
                    }
                )
            ),
            "proved": BOOLEAN,
        }
    ),
)
CHANGES: Final = Shape(
    "a list of changes",
    object_of({"changes": list_of(object_of({"root_provider_uuid": text_or_null})), "last": WHOLE}),
)
AGENT_REPORTS: Final = Shape(
    "the last reports of agents",
    object_of(
        {
            "agent_reports": list_of(
                object_of(
                    {
                        "root_provider_uuid": TEXT,
                        "at": text_like(
                            r"[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-2][0-9](:[0-5][0-9]){2}Z", "a time"
                        ),
                        "silent": BOOLEAN,
                        "bus": object_of({"state": TEXT}, {"since": text_or_null, "why": TEXT}),
                        "disabled_reason": TEXT,
                        "trouble": TEXT,
                        "place": object_of(
                            dict.fromkeys(("address", "machine_id", "boot_id", "state_path"), TEXT)
                        ),
                    }
                )
            )
        }
    ),
)
USAGES: Final = Shape("amounts by resource class", object_of({"usages": AMOUNTS}))
TYPED_USAGES: Final = Shape("amounts by type of consumer", object_of({"usages": map_of(AMOUNTS)}))
