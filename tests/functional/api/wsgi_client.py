"""A client that calls the WSGI application directly: no sockets, full control over headers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import webob

from placement_server.negotiation import extensions
from placement_server.store.store import Store
from tests.fixtures.allocations import claim_body

HOST = "http://placement.example.org"
LATEST = "1.39"
EXTENDED = f"{LATEST}, {extensions.SERVICE_TYPE} {extensions.MAX}"
"""The newest version, with the extensions."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        (only,) = self.json["errors"]
        assert isinstance(only, dict)
        assert only["status"] == self.status
        return only

    @property
    def detail(self) -> str:
        """The specific message, behind the lead sentence of the status."""
        return str(self.error["detail"]).partition("\n\n")[2].strip()

    @property
    def code(self) -> str | None:
        return self.error.get("code")


class Client:
    """Requests to one application, as the user `admin` at the newest version by default."""

    def __init__(self, application: Any, store: Store) -> None:
        self.application = application
        self.store = store

    def __call__(
        self,
        method: str,
        url: str,
        json_body: Any = None,
        *,
        version: str | None = LATEST,
        token: str | None = "admin",
        headers: Mapping[str, str] | None = None,
        raw: bytes | None = None,
        content_type: str | None = "application/json",
        environ: Mapping[str, Any] | None = None,
    ) -> Answer:
        """Send a request.

        :param url: path and query, percent-encoded.
        :param raw: the body as bytes, instead of `json_body`.
        :param content_type: only sent with a body.
        """
        sent = dict(headers or {})
        if token is not None:
            sent.setdefault("X-Auth-Token", token)
        if version is not None:
            sent.setdefault("OpenStack-API-Version", f"placement {version}")
        body = raw if json_body is None else json.dumps(json_body).encode()
        request = webob.Request.blank(url, {"REMOTE_ADDR": "192.0.2.1"}, HOST, body=body or b"")
        if body is not None and content_type is not None:
            request.environ["CONTENT_TYPE"] = content_type
        request.method = method
        # as from a client of HTTP/1.0
        del request.environ["HTTP_HOST"]
        request.headers.update(sent)
        request.environ.update(environ or {})
        status, received, chunks = request.call_application(self.application)
        lower_headers = {name.lower(): value for name, value in received}
        return Answer(int(status[:3]), lower_headers, b"".join(chunks))

    def get(self, url: str, **kwargs: Any) -> Answer:
        return self("GET", url, **kwargs)

    def put(self, url: str, json_body: Any = None, **kwargs: Any) -> Answer:
        return self("PUT", url, json_body, **kwargs)

    def post(self, url: str, json_body: Any = None, **kwargs: Any) -> Answer:
        return self("POST", url, json_body, **kwargs)

    def delete(self, url: str, **kwargs: Any) -> Answer:
        return self("DELETE", url, **kwargs)

    def must(self, method: str, url: str, json_body: Any = None) -> Answer:
        """Send a request that succeeds."""
        answer = self(method, url, json_body)
        assert answer.status < 300, answer.body
        return answer

    # Things to test with.

    def provider(self, name: str = "host", **more: Any) -> str:
        """Create a provider; its path."""
        answer = self.post("/resource_providers", {"name": name, **more})
        assert answer.status == 200, answer.body
        return f"/resource_providers/{answer.json['uuid']}"

    def generation(self, provider: str) -> int:
        return int(self.get(provider).json["generation"])

    def inventory(self, provider: str, **totals: Any) -> None:
        """Set the inventories of a provider: a total each, or a whole record."""
        records = {
            name: value if isinstance(value, dict) else {"total": value}
            for name, value in totals.items()
        }
        answer = self.put(
            f"{provider}/inventories",
            {
                "resource_provider_generation": self.generation(provider),
                "inventories": records,
            },
        )
        assert answer.status == 200, answer.body

    def traits(self, provider: str, *names: str) -> None:
        """Set the traits of a provider, making the custom ones."""
        for name in names:
            if name.startswith("CUSTOM_"):
                assert self.put(f"/traits/{name}").status in (201, 204)
        answer = self.put(
            f"{provider}/traits",
            {"resource_provider_generation": self.generation(provider), "traits": list(names)},
        )
        assert answer.status == 200, answer.body

    def aggregates(self, provider: str, *uuids: str) -> None:
        """Set the aggregates of a provider."""
        answer = self.put(
            f"{provider}/aggregates",
            {
                "resource_provider_generation": self.generation(provider),
                "aggregates": list(uuids),
            },
        )
        assert answer.status == 200, answer.body

    def claim(self, consumer: str, **kwargs: Any) -> Answer:
        """PUT allocations at the newest version; see `claim_body`."""
        return self.put(f"/allocations/{consumer}", claim_body(**kwargs))
