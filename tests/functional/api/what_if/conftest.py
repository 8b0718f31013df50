"""A server with the world that changes are supposed in."""

from __future__ import annotations

import pytest

from ..conftest import MakeApi
from ..wsgi_client import Client
from .questions import build


@pytest.fixture
def api(make_api: MakeApi) -> Client:
    return make_api(filled_by=build)
