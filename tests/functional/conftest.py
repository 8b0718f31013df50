"""The published placement behind a port, one for all functional tests."""

from collections.abc import Iterator

import pytest

from tests.fixtures.environments import skip_without_environment
from tests.functional.agent.published import PublishedPlacement


@pytest.fixture(scope="session")
def published(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PublishedPlacement]:
    """Name what you create so that it is yours alone."""
    server = PublishedPlacement(tmp_path_factory.mktemp("published"))
    with skip_without_environment():
        server.start()
    yield server
    server.kill()
