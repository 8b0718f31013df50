"""The few calls of placement that single providers need, in memory: for more nodes than a real
placement should be asked about in a test.
"""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from typing import Any
from urllib.parse import parse_qs, urlsplit

from compute_agent.placement.transports.transport import Request, Response

_OF_ONE = re.compile(r"/resource_providers/([^/]+)/(inventories|traits|aggregates)")


class SmallPlacement:
    """A transport that answers by itself. Every provider is a root."""

    def __init__(self) -> None:
        self.providers: dict[str, dict[str, Any]] = {}
        self.content: dict[tuple[str, str], Any] = {}
        self.calls: Counter[str] = Counter()
        self._lock = threading.Lock()

    def send(self, request: Request) -> Response:
        with self._lock:
            self.calls[request.method] += 1
            status, document = self._answer(request.method, request.path, request.json)
        text = "" if document is None else json.dumps(document)
        return Response(status, {}, document, text)

    def _answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        parts = urlsplit(path)
        if path == "/":
            version = {"min_version": "1.0", "max_version": "1.39", "id": "v1.0"}
            return 200, {"versions": [version]}
        if parts.path == "/resource_providers":
            return self._listed(parts.query) if method == "GET" else self._created(body)
        if parts.path == "/traits":
            names = parse_qs(parts.query)["name"][0].removeprefix("in:").split(",")
            return 200, {"traits": names}
        if found := _OF_ONE.fullmatch(parts.path):
            return self._of_one(method, found[1], found[2], body)
        return 204, None  # a trait, a resource class

    def _listed(self, query: str) -> tuple[int, Any]:
        root = parse_qs(query).get("in_tree", [""])[0]
        found = [self.providers[root]] if root in self.providers else []
        return 200, {"resource_providers": found}

    def _created(self, body: Any) -> tuple[int, Any]:
        provider = {**body, "generation": 0, "parent_provider_uuid": None}
        self.providers[body["uuid"]] = provider
        return 200, provider

    def _of_one(self, method: str, uuid: str, aspect: str, body: Any) -> tuple[int, Any]:
        provider = self.providers[uuid]
        if method == "PUT":
            provider["generation"] += 1
            self.content[uuid, aspect] = body[aspect]
        held = self.content.get((uuid, aspect), {} if aspect == "inventories" else [])
        return 200, {"resource_provider_generation": provider["generation"], aspect: held}
