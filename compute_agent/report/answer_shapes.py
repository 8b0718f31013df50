"""What each good answer of placement looks like: all that may be read out of it without a doubt.

Keys that are not named here may be there or not; they are not read.  A shape says the first place
that does not fit, as ``resource_providers[3].generation is null, not a whole number``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, TypeAlias

SHOWN: Final = 60
"""Characters of a value that go into a message."""

Check: TypeAlias = Callable[[Any], str | None]
"""None for a value that fits, else where in it what is wrong, to be put after its own place."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What one kind of answer has to be.

    :ivar words: the answer in words, for messages.
    """

    words: str
    check: Check

    def misfit(self, body: Any) -> str | None:
        """The first thing in ``body`` that is not as it must be, None where all is."""
        found = self.check(body)
        return None if found is None else found.removeprefix(".").removeprefix(" ")


def _is_not(value: Any, expected: str) -> str:
    text = json.dumps(value)
    shown = text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
    return f" is {shown}, not {expected}"


def _one_of(expected: str, *types: type) -> Check:
    def check(value: Any) -> str | None:
        # by type and not by instance, for true is no number
        return None if type(value) in types else _is_not(value, expected)

    return check


def _list_of(entry: Check) -> Check:
    def check(value: Any) -> str | None:
        if type(value) is not list:
            return _is_not(value, "a list")
        for place, one in enumerate(value):
            wrong = entry(one)
            if wrong is not None:
                return f"[{place}]{wrong}"
        return None

    return check


def _map_of(entry: Check) -> Check:
    def check(value: Any) -> str | None:
        if type(value) is not dict:
            return _is_not(value, "an object")
        for key, one in value.items():
            wrong = entry(one)
            if wrong is not None:
                return f".{key}{wrong}"
        return None

    return check


def _object(
    required: Mapping[str, Check],
    optional: Mapping[str, Check] = MappingProxyType({}),
    *,
    closed: bool = False,
) -> Check:
    """An object with these keys.

    :param closed: other keys are an error.
    """

    def check(value: Any) -> str | None:
        if type(value) is not dict:
            return _is_not(value, "an object")
        for key, entry in required.items():
            if key not in value:
                return f".{key} is missing"
            wrong = entry(value[key])
            if wrong is not None:
                return f".{key}{wrong}"
        for key, entry in optional.items():
            wrong = entry(value[key]) if key in value else None
            if wrong is not None:
                return f".{key}{wrong}"
        if closed:
            for key in value:
                if key not in required and key not in optional:
                    return f".{key} is not known"
        return None

    return check


_TEXT = _one_of("text", str)
_WHOLE = _one_of("a whole number", int)
_NUMBER = _one_of("a number", int, float)
_PROVIDER = {
    "uuid": _TEXT,
    "name": _TEXT,
    "generation": _WHOLE,
    "parent_provider_uuid": _one_of("text or null", str, type(None)),
}
_RECORD = _object(
    {"total": _WHOLE},
    {
        "reserved": _WHOLE,
        "min_unit": _WHOLE,
        "max_unit": _WHOLE,
        "step_size": _WHOLE,
        "allocation_ratio": _NUMBER,
    },
    # what is not known here would be lost when the inventory is written again
    closed=True,
)
_AT_GENERATION = {"resource_provider_generation": _WHOLE}
_AMOUNTS = _map_of(_WHOLE)
_HELD = {"resources": _AMOUNTS}
_HOLDER = _object(
    {
        "allocations": _map_of(_object(_HELD)),
        "project_id": _TEXT,
        "user_id": _TEXT,
        "consumer_generation": _WHOLE,
    },
    {"consumer_type": _TEXT},
)


def _consumer(value: Any) -> str | None:
    # of a consumer that it does not know, placement says that it holds nothing, and nothing else
    if type(value) is dict and value.get("allocations") == {}:
        return None
    return _HOLDER(value)


PROVIDER: Final = Shape("a provider", _object(_PROVIDER))
PROVIDERS: Final = Shape(
    "a list of providers", _object({"resource_providers": _list_of(_object(_PROVIDER))})
)
ROOTED_PROVIDER: Final = Shape(
    "a provider with its root", _object({**_PROVIDER, "root_provider_uuid": _TEXT})
)
ROOTED_PROVIDERS: Final = Shape(
    "a list of providers with their roots",
    _object({"resource_providers": _list_of(ROOTED_PROVIDER.check)}),
)
INVENTORIES: Final = Shape(
    "the inventories of a provider", _object({"inventories": _map_of(_RECORD), **_AT_GENERATION})
)
PROVIDER_TRAITS: Final = Shape(
    "the traits of a provider", _object({"traits": _list_of(_TEXT), **_AT_GENERATION})
)
AGGREGATES: Final = Shape(
    "the aggregates of a provider", _object({"aggregates": _list_of(_TEXT), **_AT_GENERATION})
)
WRITTEN: Final = Shape("the new generation of a provider", _object(_AT_GENERATION))
PROVIDER_ALLOCATIONS: Final = Shape(
    "the allocations on a provider",
    _object({"allocations": _map_of(_object({**_HELD, "consumer_generation": _WHOLE}))}),
)
TRAITS: Final = Shape("a list of traits", _object({"traits": _list_of(_TEXT)}))
CONSUMER: Final = Shape("the allocations of a consumer", _consumer)
CANDIDATES: Final = Shape(
    "a list of candidates",
    _object(
        {
            "allocation_requests": _list_of(_object({"allocations": _map_of(_object(_HELD))})),
            "provider_summaries": _map_of(_object({})),
        }
    ),
)
USAGES: Final = Shape("amounts by resource class", _object({"usages": _AMOUNTS}))
TYPED_USAGES: Final = Shape("amounts by type of consumer", _object({"usages": _map_of(_AMOUNTS)}))
