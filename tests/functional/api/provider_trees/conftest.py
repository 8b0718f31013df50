"""Trees that are there, and the audit after each test."""

from collections.abc import Iterator

import pytest

from placement_server.store import audit

from ..wsgi_client import Client
from .trees import BELOW, LEAF, OTHER, host, must, provider, put


@pytest.fixture
def tree(api: Client) -> str:
    """The host, made by PUT; its tag."""
    return must(put(api, host())).headers["etag"]


@pytest.fixture(autouse=True)
def invariants_hold(api: Client) -> Iterator[None]:
    """After every test the audit is clean."""
    yield
    assert api.store.read(audit.audit) == []


@pytest.fixture
def other_tree(api: Client, tree: str) -> str:
    """A second tree of three providers, one below the other; its tag."""
    sent = [
        provider(OTHER, "other", None),
        provider(BELOW, "below", OTHER, inventories={"VCPU": 4}),
        provider(LEAF, "leaf", BELOW),
    ]
    return must(put(api, sent, root=OTHER)).headers["etag"]
