"""Random requests over all routes and microversions, most of them nearly right.

A request that is wrong in one place tells more than noise, so requests are made right for the
state of the server and then, now and then, one thing in them is changed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from ..wsgi_client import Client
from .draw import Draw
from .oddities import Oddities
from .reads import Reads
from .vocabulary import (
    AGGREGATES,
    CLASSES,
    CONSUMERS,
    NAMES,
    PROVIDERS,
    STRANGE,
    TRAITS,
    SentRequest,
)
from .writes import Writes


class Traffic:
    """Makes requests. `ours` is asked for the generations that are right at the moment."""

    def __init__(self, seed: int, ours: Client) -> None:
        self._draw = Draw(seed, ours)
        writes, reads = Writes(self._draw), Reads(self._draw)
        self._oddities = Oddities(self._draw)
        self._fresh = 0
        self._makers: list[tuple[int, Callable[[int], tuple[str, str, Any]]]] = [
            (8, writes.create_provider),
            (6, writes.update_provider),
            (1, writes.delete_provider),
            (7, writes.replace_inventories),
            (5, writes.create_inventory),
            (5, writes.update_inventory),
            (2, writes.delete_inventory),
            (5, writes.replace_aggregates),
            (6, writes.replace_traits),
            (2, writes.trait),
            (3, writes.resource_class),
            (14, writes.claim),
            (6, writes.claim_many),
            (3, writes.delete_claim),
            (8, writes.reshape),
            (10, reads.list_providers),
            (14, reads.read),
            (4, reads.usages),
            (4, reads.list_traits),
            (24, reads.candidates),
            (2, reads.nowhere),
        ]

    def warm_up(self) -> Iterator[SentRequest]:
        """Requests that make a world in which later ones find something.

        Two trees and two lone providers, with stock, traits and aggregates drawn at random.
        """
        for name in CLASSES:
            if name.startswith("CUSTOM_"):
                yield SentRequest("PUT", f"/resource_classes/{name}", "1.39")
        for name in TRAITS:
            if name.startswith("CUSTOM_"):
                yield SentRequest("PUT", f"/traits/{name}", "1.39")
        parents = [None, PROVIDERS[0], PROVIDERS[0], None, PROVIDERS[3], None, None]
        for name, uuid, parent in zip(NAMES, PROVIDERS, parents, strict=False):
            body: dict[str, Any] = {"name": name, "uuid": uuid, "parent_provider_uuid": parent}
            yield self._write("POST", "/resource_providers", body)
        for provider in PROVIDERS:
            path = f"/resource_providers/{provider}"
            stock = {
                name: {"total": self._draw.pick([8, 100])}
                for name in self._draw.some(CLASSES, 4, 2)
            }
            for rest, content in (
                ("inventories", {"inventories": stock}),
                ("traits", {"traits": self._draw.some(TRAITS, 2)}),
                ("aggregates", {"aggregates": self._draw.some(AGGREGATES, 2)}),
            ):
                generation = self._draw.ours.get(path).json["generation"]
                body = {**content, "resource_provider_generation": generation}
                yield self._write("PUT", f"{path}/{rest}", body)

    @staticmethod
    def _write(method: str, url: str, body: Any) -> SentRequest:
        return SentRequest(method, url, "1.39", body=json.dumps(body).encode())

    def next(self) -> SentRequest:
        """The next request."""
        chance = self._draw.chance
        version = self._version()
        minor = SentRequest("GET", "/", version).minor
        makers = [make for weight, make in self._makers for _ in range(weight)]
        method, url, body = self._draw.pick(makers)(39 if minor is None else minor)
        headers: dict[str, str] = {}
        if chance() < 0.02:
            headers["Accept"] = self._draw.pick(
                ["text/html", "text/plain", "*/*", "application/*;q=0.5", "nonsense", "a/b, c/d"]
            )
        if chance() < 0.01:
            method = self._draw.pick(["GET", "PUT", "POST", "DELETE", "PATCH", "OPTIONS"])
        encoded = None
        if body is not None:
            if chance() < 0.25:
                body = self._mutated(body)
                if url == "/resource_providers" and isinstance(body, dict):
                    # A uuid that the server chooses would be another one on each.
                    body.setdefault("uuid", self._draw.pick(PROVIDERS))
            encoded = json.dumps(body).encode()
            if chance() < 0.01:
                encoded = self._draw.pick([b"", b"{", b"[1,", b"nul", b"{} {}", b"\xff", b'"\xe9"'])
            if chance() < 0.01:
                headers["Content-Type"] = self._draw.pick(
                    ["text/plain", "", "application/json; charset=utf-8", "APPLICATION/JSON"]
                )
        token: str | None = "admin"
        if chance() < 0.02:
            token = self._draw.pick([None, "", "admin:project", "user", "user:project", ":x"])
        if chance() < 0.02:
            headers["X-Roles"] = self._draw.pick(
                ["", "admin", "service", "reader", "Admin, x", "member"]
            )
        if chance() < 0.01:
            headers[self._draw.pick(["OpenStack-System-Scope", "X-Domain-Id"])] = "all"
        sent = SentRequest(method, url, version, headers, encoded, token)
        is_odd = chance() < 0.15
        return self._oddities.applied(sent) if is_odd else sent

    def retire_consumers(self, sent: SentRequest) -> None:
        """Never again name consumers that a write left without allocations.

        The published server may keep a record of such a consumer and then expects its generation.
        """
        if sent.method not in ("PUT", "POST") or sent.url == "/resource_providers":
            return
        named = (sent.url + (sent.body or b"").decode("utf-8", "replace")).lower().replace("-", "")
        for place, consumer in enumerate(self._draw.consumers):
            held = self._draw.ours.get(f"/allocations/{consumer}").json["allocations"]
            if consumer.replace("-", "") in named and not held:
                self._fresh += 1
                self._draw.consumers[place] = f"{CONSUMERS[place][:24]}{self._fresh:010}cc"

    def _version(self) -> str | None:
        chance = self._draw.chance()
        if chance < 0.02:
            return self._draw.pick([None, "1.40", "0.9", "x.y", "1", "1.2.3", "2.0", "1.05"])
        if chance < 0.05:
            return "latest"
        if chance < 0.5:
            return "1.39"
        return f"1.{self._draw.random.randint(0, 39)}"

    def _mutated(self, body: Any) -> Any:
        """The body with one thing changed, taken away or added, at any depth."""
        if isinstance(body, dict) and body and self._draw.chance() < 0.85:
            changed = dict(body)
            key = self._draw.pick(list(changed))
            how = self._draw.chance()
            if how < 0.2:
                del changed[key]
            elif how < 0.3:
                changed[self._draw.pick(["extra", "uuid", "consumer_type", "VCPU", ""])] = (
                    self._draw.pick(STRANGE)
                )
            else:
                changed[key] = self._mutated(changed[key])
            return changed
        if isinstance(body, list) and body and self._draw.chance() < 0.8:
            place = self._draw.random.randrange(len(body))
            how = self._draw.chance()
            if how < 0.3:
                return [*body, body[place]]
            return [*body[:place], self._mutated(body[place]), *body[place + 1 :]]
        return self._draw.pick(STRANGE)
