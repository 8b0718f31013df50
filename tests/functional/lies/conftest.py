"""A placement, a proxy before it that lies, and a server that notes who is sent to it."""

from collections.abc import Iterator

import pytest

from tests.functional.agent.lying_proxy import LyingProxy
from tests.functional.lies.elsewhere import Elsewhere, listening_elsewhere


@pytest.fixture(scope="module")
def proxy(placement_url: str) -> Iterator[LyingProxy]:
    between = LyingProxy(placement_url)
    yield between
    between.close()


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Elsewhere]:
    with listening_elsewhere() as place:
        yield place
