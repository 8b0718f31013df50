"""Requests of this process on their way to a placement of a test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fixtures
import requests
from keystoneauth1 import session as keystone_session
from requests.adapters import BaseAdapter

from placement_server.testing.faults import Faults, FaultyAdapter

SERVICE_TYPE = "placement"


class Interception(fixtures.Fixture):
    """Leads requests for placement to one endpoint, past Keystone, with the failures of a test.

    It reaches all that sends by the library requests: keystoneauth1, openstacksdk, the clients
    of OpenStack.

    :param endpoint: the URL of the placement.
    :param token: carried by every request there that has none.
    :param adapter: answers requests in place of the network.
    """

    def __init__(
        self, endpoint: str, token: str, faults: Faults, adapter: BaseAdapter | None = None
    ) -> None:
        super().__init__()
        self._endpoint = endpoint
        self._token = token
        self._faults = faults
        self._adapter = adapter

    def _setUp(self) -> None:
        sessions = keystone_session.Session
        for owner, name, wrapper in (
            (requests.Session, "get_adapter", self._get_adapter),
            (requests.Session, "prepare_request", self._prepare_request),
            (sessions, "request", self._request),
            (sessions, "get_endpoint", self._get_endpoint),
        ):
            original = getattr(owner, name)
            path = f"{owner.__module__}.{owner.__qualname__}.{name}"
            self.useFixture(fixtures.MonkeyPatch(path, wrapper(original)))

    def _is_ours(self, url: str | None) -> bool:
        below = (f"{self._endpoint}/", f"{self._endpoint}?")
        return url == self._endpoint or (url or "").startswith(below)

    def _get_adapter(self, original: Callable[..., BaseAdapter]) -> Callable[..., BaseAdapter]:
        def get_adapter(session: requests.Session, url: str) -> BaseAdapter:
            if not self._is_ours(url):
                return original(session, url)
            return FaultyAdapter(self._adapter or original(session, url), self._faults)

        return get_adapter

    def _prepare_request(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def prepare_request(session: requests.Session, request: requests.Request) -> Any:
            prepared_request = original(session, request)
            if self._is_ours(prepared_request.url):
                prepared_request.headers.setdefault("X-Auth-Token", self._token)
            return prepared_request

        return prepare_request

    def _request(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def request(session: Any, url: str, method: str, **kwargs: Any) -> Any:
            service = (kwargs.get("endpoint_filter") or {}).get("service_type")
            if service == SERVICE_TYPE and not kwargs.get("endpoint_override"):
                # neither a token nor the catalogue is asked of Keystone
                kwargs |= {"authenticated": False, "endpoint_override": self._endpoint}
            return original(session, url, method, **kwargs)

        return request

    def _get_endpoint(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def get_endpoint(session: Any, auth: Any = None, **kwargs: Any) -> Any:
            if kwargs.get("service_type") == SERVICE_TYPE:
                return self._endpoint
            return original(session, auth, **kwargs)

        return get_endpoint
