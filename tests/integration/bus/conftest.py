"""A placement for the tests of a module whose agents are on a message bus."""

from collections.abc import Iterator

import pytest

from tests.functional.agent.processes import PlacementProcess


@pytest.fixture(scope="module")
def placement(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlacementProcess]:
    server = PlacementProcess(tmp_path_factory.mktemp("placement"))
    server.start()
    yield server
    server.kill()
