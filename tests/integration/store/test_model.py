"""The API against the model of dictionaries, in the words of each database."""

from __future__ import annotations

import pytest
from hypothesis import settings

from placement_server.store.store import Store
from tests.property.api_model.apis import api_of
from tests.property.api_model.machine import Machine, run

# SQLite has a test of its own, which compares more
pytestmark = pytest.mark.parametrize(
    "module_database_url", ["postgresql", "mariadb"], indirect=True
)


# a failure takes minutes to be made small
@pytest.mark.timeout(900)
def test_every_get_equals_the_model_after_every_request(store: Store) -> None:
    class OnThisDatabase(Machine):
        api = api_of(store)

    run(OnThisDatabase, settings().max_examples // 20)
