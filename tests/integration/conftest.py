"""A placement for the tests of a module, and for the agents that they start."""

from collections.abc import Iterator

import pytest

from tests.functional.agent.processes import PlacementProcess


@pytest.fixture(scope="module")
def placement(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlacementProcess]:
    server = PlacementProcess(tmp_path_factory.mktemp("placement"))
    server.start()
    yield server
    server.kill()
