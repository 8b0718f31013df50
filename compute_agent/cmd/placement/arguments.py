"""Arguments in the notations that several commands share."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from compute_agent import errors
from compute_agent.programs.whole_numbers import whole_number

_OF_PROVIDER: Final = re.compile(r"(.+?):([A-Z]\w*[=:]\d+(?:,.*)?)")

MEMBER_OF: Final = """
    --member-of [in:]UUID,... *  in this aggregate; in:UUID,...: in at least one; ! before it: in
                                 none
    """
"""The option that restricts to aggregates."""


class BadInput(errors.ComputeAgentError):
    """An argument or a file that cannot be used."""


def amounts(texts: Sequence[str]) -> dict[str, int]:
    """Read `VCPU=4` or `VCPU:4`, also several with commas between them.

    :raises BadInput: a text is something else.
    """
    amount_of_class: dict[str, int] = {}
    for text in (part for entry in texts for part in entry.split(",")):
        name, separator, number = text.replace(":", "=").partition("=")
        amount = whole_number(number)
        if not (name and separator and amount):
            raise BadInput(f"{text!r} is not an amount of a resource class, such as VCPU=4.")
        amount_of_class[name] = amount
    return amount_of_class


def provider_amounts(text: str) -> tuple[str, dict[str, int]]:
    """Read `PROVIDER:VCPU=4` with any number of amounts; the name of the provider may have colons.

    :raises BadInput: the text is something else.
    """
    match = _OF_PROVIDER.fullmatch(text)
    if match is None:
        raise BadInput(f"{text!r} is not PROVIDER:CLASS=N,..., such as host-1:VCPU=4.")
    return match[1], amounts([match[2]])


def query_amounts(text: str) -> str:
    """Return amounts in the notation of a query string.

    :raises BadInput: the text is something else.
    """
    return ",".join(f"{name}:{amount}" for name, amount in amounts([text]).items())
