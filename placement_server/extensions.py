"""Extensions of this server to OpenStack's API, and their negotiation with a client.

Microversions belong to OpenStack, so extensions have a service type of their own in the header:

    OpenStack-API-Version: placement 1.39, placement-ext 1.0

Other servers ignore an item for a service that is not theirs. Here, a request without it is
answered exactly as the plain API answers; with it, the response header names it too, and the root
document lists it.
"""

from typing import Final

from placement_server.microversion import (
    InvalidVersionString,
    UnacceptableVersion,
    version_asked_for,
)

SERVICE_TYPE: Final = "placement-ext"
VERSION: Final = "1.0"

#: The entry of the extensions in the root document.
DOCUMENT: Final = {"id": SERVICE_TYPE, "min_version": VERSION, "max_version": VERSION}


def asked_for(header: str | None) -> bool:
    """Check whether the value of ``OpenStack-API-Version`` asks for the extensions.

    :raises InvalidVersionString: what follows the service type is not a version.
    :raises UnacceptableVersion: it is a version that this server does not have.
    """
    if header is None or SERVICE_TYPE not in header.lower():
        return False
    asked = version_asked_for(header, SERVICE_TYPE)
    if asked is None:
        return False
    if asked in (VERSION, "latest"):
        return True
    major, _, minor = asked.partition(".")
    if not (major.isdecimal() and minor.isdecimal()):
        raise InvalidVersionString(asked, f"{SERVICE_TYPE} wants two integers, such as {VERSION}")
    raise UnacceptableVersion(f"{SERVICE_TYPE} {asked}, of which there is only {VERSION}")
