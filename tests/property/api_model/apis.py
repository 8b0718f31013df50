"""Servers in this process, each on a database of its own in memory."""

from __future__ import annotations

from placement_server.app import build_app
from placement_server.conf import new_config
from tests.fixtures.memory_stores import memory_store
from tests.functional.api.wsgi_client import Client


def new_api() -> Client:
    """A server without authentication."""
    conf = new_config(config_files=[])
    conf.set_override("auth_strategy", "noauth2", group="api")
    conf.set_override("enforce_new_defaults", False, group="oslo_policy")
    store = memory_store()
    return Client(build_app(conf, store), store)
