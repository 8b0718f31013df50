"""A proxy before placement that lies, and a server that notes who is sent to it."""

from collections.abc import Iterator

import pytest

from tests.functional.agent.lying_proxy import LyingProxy
from tests.functional.lies.elsewhere import Elsewhere, listening_elsewhere


@pytest.fixture(scope="module")
def lying(placement_url: str) -> Iterator[LyingProxy]:
    between = LyingProxy(placement_url)
    yield between
    between.close()


@pytest.fixture
def proxy(lying: LyingProxy) -> Iterator[LyingProxy]:
    """Honest when the test is over."""
    yield lying
    lying.honest()


@pytest.fixture(scope="module")
def listener() -> Iterator[Elsewhere]:
    with listening_elsewhere() as place:
        yield place


@pytest.fixture
def elsewhere(listener: Elsewhere) -> Iterator[Elsewhere]:
    """Where lies lead, and nobody goes."""
    yield listener
    visits, listener.visits = listener.visits, []
    assert not visits, "nobody goes where a lie points to"
