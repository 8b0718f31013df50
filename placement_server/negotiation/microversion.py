"""Microversions of the API, and their negotiation with a client.

A microversion is the tuple `(major, minor)`; handlers compare tuples, `version >= (1, 14)`.
OpenStack owns the numbers: this list never grows past what OpenStack has published. What this
server offers beyond it has a service type of its own in the same header.

A new line here needs its handlers, schemas and documentation.
"""

from typing import Final, NamedTuple

SERVICE_TYPE: Final = "placement"


class Microversion(NamedTuple):
    """One version of the API. Compares with plain tuples."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


HISTORY: Final = (
    "resource providers, inventories, usages and allocations",
    "aggregates of a provider can be read and replaced",
    "resource class routes; custom resource classes",
    "member_of filters the provider list",
    "resources filters the provider list",
    "all inventories of a provider can be deleted at once",
    "traits, and traits of a provider",
    "PUT resource class ensures that it exists instead of renaming it",
    "allocations name project and user",
    "usages of a project",
    "allocation candidates",
    "providers link to their allocations",
    "allocations are written, and candidates answered, as objects keyed by provider",
    "POST allocations for several consumers in one transaction",
    "trees of providers: parent, root and the in_tree filter",
    "last-modified and cache-control headers",
    "limit on allocation candidates",
    "required traits on allocation candidates; traits in summaries",
    "required traits filter the provider list",
    "aggregates carry and check the provider's generation",
    "POST provider answers with the provider",
    "member_of on allocation candidates",
    "forbidden traits",
    "errors carry a code",
    "member_of may be repeated",
    "numbered request groups and group_policy",
    "reserved may equal total",
    "summaries list every resource class of a provider",
    "consumer generations",
    "candidates from nested providers; summaries show the tree",
    "the reshaper",
    "in_tree on allocation candidates",
    "forbidden aggregates",
    "request groups with free suffixes",
    "mappings of request groups to providers",
    "root_required",
    "same_subtree and groups without resources",
    "providers may change or lose their parent",
    "consumer types",
    "any-trait sets and repeated required",
)
"""What each minor version changed, in order: the position in the list is the minor number."""

MIN: Final = Microversion(1, 0)
MAX: Final = Microversion(1, len(HISTORY) - 1)


class InvalidVersionString(ValueError):
    """The version asked for is not two integers joined by a dot."""

    def __init__(self, given_version: str, reason: str) -> None:
        super().__init__(f"invalid version string: {given_version}; {reason}")


class UnacceptableVersion(ValueError):
    """The version asked for is well formed, but this server does not have it."""

    def __init__(self, given_version: str) -> None:
        super().__init__(f"Unacceptable version header: {given_version}")


def negotiate(header: str | None) -> Microversion:
    """Return the version that the value of `OpenStack-API-Version` asks for.

    The value is a comma-separated list of `<service> <version>` items. Items for other services
    and items of one word are ignored, the last one for placement counts, and without one the
    answer is the minimum.

    :raises InvalidVersionString: not two integers.
    :raises UnacceptableVersion: outside of MIN..MAX.
    """
    requested_version = version_asked_for(header or "", SERVICE_TYPE)
    if requested_version is None:
        return MIN
    if requested_version == "latest":
        return MAX
    major, dot, minor = requested_version.partition(".")
    try:
        numbers = (int(major), int(minor)) if dot else (int(major),)
    except ValueError as error:
        raise InvalidVersionString(requested_version, str(error)) from error
    if len(numbers) == 1:
        # The wording is what clients of the published server have seen for years.
        raise InvalidVersionString(
            requested_version, "Version.__new__() missing 1 required positional argument: 'minor'"
        )
    if numbers[0] != MIN.major or not MIN.minor <= numbers[1] <= MAX.minor:
        raise UnacceptableVersion(requested_version)
    return Microversion(*numbers)


def version_asked_for(header: str, service_type: str) -> str | None:
    """Return the version in the last item for a service type; None when there is no such item."""
    requested_version = None
    for item in header.split(","):
        words = item.split(maxsplit=1)
        if len(words) == 2 and words[0].lower() == service_type:
            requested_version = words[1].rstrip()
    return requested_version
