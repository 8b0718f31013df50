"""Negotiation of microversions, and a guard for whoever adds one."""

import pytest

from placement_server.api import routes
from placement_server.negotiation import microversion
from placement_server.negotiation.microversion import InvalidVersionString, UnacceptableVersion


@pytest.mark.parametrize(
    "header",
    [None, "", "1.5", "compute 2.1", "placement", "compute 2.1, volume 3.0", "placement-ext 1.0"],
)
def test_without_a_usable_item_the_version_is_the_minimum(header: str | None) -> None:
    assert microversion.negotiate(header) == (1, 0)


@pytest.mark.parametrize(
    ("header", "version"),
    [
        ("placement 1.0", (1, 0)),
        ("placement 1.39", (1, 39)),
        ("placement latest", (1, 39)),
        ("PLACEMENT 1.7", (1, 7)),
        ("  placement   1.7  ", (1, 7)),
        ("placement 1.05", (1, 5)),
        ("compute 2.1, placement 1.12", (1, 12)),
        ("placement 1.12,compute 2.1", (1, 12)),
        ("placement 1.39, placement-ext 1.0", (1, 39)),
    ],
)
def test_the_item_for_placement_counts(header: str, version: tuple[int, int]) -> None:
    assert microversion.negotiate(header) == version


def test_of_several_items_for_placement_the_last_wins() -> None:
    assert microversion.negotiate("placement 1.1, placement 1.2") == (1, 2)


@pytest.mark.parametrize(
    "version", ["pony.horse", "1.2.3", "1", "LATEST", "Latest", "1.", ".1", "1.x", "1.2 foo"]
)
def test_what_is_not_two_integers_is_malformed(version: str) -> None:
    with pytest.raises(InvalidVersionString) as raised:
        microversion.negotiate(f"placement {version}")
    assert str(raised.value).startswith(f"invalid version string: {version}; ")


@pytest.mark.parametrize("version", ["0.5", "0.9", "1.40", "1.-1", "-1.5", "2.0", "99.99"])
def test_what_this_server_lacks_is_unacceptable(version: str) -> None:
    with pytest.raises(UnacceptableVersion, match=f"Unacceptable version header: {version}"):
        microversion.negotiate(f"placement {version}")


def test_random_headers_do_not_fill_the_memory() -> None:
    before = routes._known_versions.cache_info().currsize
    for number in range(2000):
        long = "x" * 200
        routes._negotiate({"HTTP_OPENSTACK_API_VERSION": f"placement 1.1, {long} {number}"})
    assert routes._known_versions.cache_info().currsize == before
    for number in range(2000):
        routes._negotiate({"HTTP_OPENSTACK_API_VERSION": f"placement 1.1, other {number}"})
    assert routes._known_versions.cache_info().currsize <= 512


def test_there_are_forty_versions() -> None:
    """A new one also needs its handlers, schemas, documentation and a release note."""
    assert len(microversion.HISTORY) == 40
    assert str(microversion.MIN) == "1.0"
    assert str(microversion.MAX) == "1.39"
