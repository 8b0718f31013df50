"""Extensions of this server to OpenStack's API, and their negotiation with a client.

Microversions belong to OpenStack, so extensions have a service type of their own in the header:

    OpenStack-API-Version: placement 1.39, placement-ext 1.1

Other servers ignore an item for a service that is not theirs. Here, a request without it is
answered exactly as the plain API answers; with it, the response header names it too, and the root
document lists it.
"""

from typing import Final

from placement_server.negotiation.microversion import (
    InvalidVersionString,
    Microversion,
    UnacceptableVersion,
    version_asked_for,
)

SERVICE_TYPE: Final = "placement-ext"

HISTORY: Final = (
    "isolated groups, aggregates of roots, subtrees to stay out of; the candidate explanation",
    "whole trees, the feed of changes, answers to what-if questions, and plans that make room",
)
"""What each minor version changed, in order: the position in the list is the minor number."""

MIN: Final = Microversion(1, 0)
MAX: Final = Microversion(1, len(HISTORY) - 1)

_LONGEST: Final = 100
"""Characters of a version. Python refuses to read an integer of thousands of digits."""

DOCUMENT: Final = {"id": SERVICE_TYPE, "min_version": str(MIN), "max_version": str(MAX)}
"""The entry of the extensions in the root document."""


def asked_for(header: str | None) -> Microversion | None:
    """Return the version of the extensions that `OpenStack-API-Version` asks for, if any.

    :raises InvalidVersionString: what follows the service type is not a version.
    :raises UnacceptableVersion: it is a version that this server does not have.
    """
    if header is None or SERVICE_TYPE not in header.lower():
        return None
    requested_version = version_asked_for(header, SERVICE_TYPE)
    if requested_version is None:
        return None
    if requested_version == "latest":
        return MAX
    major, _, minor = requested_version.partition(".")
    if not (major.isdecimal() and minor.isdecimal() and len(requested_version) <= _LONGEST):
        raise InvalidVersionString(
            requested_version, f"{SERVICE_TYPE} wants two integers, such as {MAX}"
        )
    version = Microversion(int(major), int(minor))
    if not MIN <= version <= MAX:
        raise UnacceptableVersion(
            f"{SERVICE_TYPE} {requested_version}, of which there are {MIN} to {MAX}"
        )
    return version
