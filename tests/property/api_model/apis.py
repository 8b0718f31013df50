"""Servers in this process without authentication."""

from __future__ import annotations

from placement_server.app import build_app
from placement_server.conf import new_config
from placement_server.store.store import Store
from tests.functional.api.wsgi_client import Client


def api_of(store: Store) -> Client:
    conf = new_config(config_files=[])
    conf.set_override("auth_strategy", "noauth2", group="api")
    conf.set_override("enforce_new_defaults", False, group="oslo_policy")
    return Client(build_app(conf, store), store)
