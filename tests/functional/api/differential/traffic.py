"""Random requests over all routes and microversions, most of them nearly right.

A request that is wrong in one place tells more than noise, so requests are made right for the
state of the server and then, now and then, one thing in them is changed.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar
from urllib.parse import quote

from ..wsgi_client import Client
from .vocabulary import (
    AGGREGATES,
    CLASSES,
    CONSUMERS,
    NAMES,
    PROJECTS,
    PROVIDERS,
    STRANGE,
    STRANGE_TEXTS,
    TRAITS,
    TYPES,
    USERS,
    Sent,
)

_Choice = TypeVar("_Choice")


class Traffic:
    """Makes requests. ``ours`` is asked for the generations that are right at the moment."""

    def __init__(self, seed: int, ours: Client) -> None:
        self._random = random.Random(seed)
        self._ours = ours
        self.consumers = list(CONSUMERS)
        self._fresh = 0
        self._makers: list[tuple[int, Callable[[int], tuple[str, str, Any]]]] = [
            (8, self._create_provider),
            (6, self._update_provider),
            (1, self._delete_provider),
            (7, self._replace_inventories),
            (5, self._create_inventory),
            (5, self._update_inventory),
            (2, self._delete_inventory),
            (5, self._replace_aggregates),
            (6, self._replace_traits),
            (2, self._trait),
            (3, self._resource_class),
            (14, self._claim),
            (6, self._claim_many),
            (3, self._delete_claim),
            (8, self._reshape),
            (10, self._list_providers),
            (14, self._read),
            (4, self._usages),
            (4, self._list_traits),
            (24, self._candidates),
            (2, self._nowhere),
        ]

    def warm_up(self) -> Iterator[Sent]:
        """Requests that make a world in which later ones find something.

        Two trees and two lone providers, with stock, traits and aggregates drawn at random.
        """
        for name in CLASSES:
            if name.startswith("CUSTOM_"):
                yield Sent("PUT", f"/resource_classes/{name}", "1.39")
        for name in TRAITS:
            if name.startswith("CUSTOM_"):
                yield Sent("PUT", f"/traits/{name}", "1.39")
        parents = [None, PROVIDERS[0], PROVIDERS[0], None, PROVIDERS[3], None, None]
        for name, uuid, parent in zip(NAMES, PROVIDERS, parents, strict=False):
            body: dict[str, Any] = {"name": name, "uuid": uuid, "parent_provider_uuid": parent}
            yield self._write("POST", "/resource_providers", body)
        for provider in PROVIDERS:
            path = f"/resource_providers/{provider}"
            stock = {name: {"total": self._pick([8, 100])} for name in self._some(CLASSES, 4, 2)}
            for rest, content in (
                ("inventories", {"inventories": stock}),
                ("traits", {"traits": self._some(TRAITS, 2)}),
                ("aggregates", {"aggregates": self._some(AGGREGATES, 2)}),
            ):
                generation = self._ours.get(path).json["generation"]
                body = {**content, "resource_provider_generation": generation}
                yield self._write("PUT", f"{path}/{rest}", body)

    @staticmethod
    def _write(method: str, url: str, body: Any) -> Sent:
        return Sent(method, url, "1.39", body=json.dumps(body).encode())

    def next(self) -> Sent:
        """The next request."""
        chance = self._random.random
        version = self._version()
        minor = Sent("GET", "/", version).minor
        makers = [make for weight, make in self._makers for _ in range(weight)]
        method, url, body = self._pick(makers)(39 if minor is None else minor)
        headers: dict[str, str] = {}
        if chance() < 0.02:
            headers["Accept"] = self._pick(
                ["text/html", "text/plain", "*/*", "application/*;q=0.5", "nonsense", "a/b, c/d"]
            )
        if chance() < 0.01:
            method = self._pick(["GET", "PUT", "POST", "DELETE", "PATCH", "OPTIONS"])
        encoded = None
        if body is not None:
            if chance() < 0.25:
                body = self._mutated(body)
                if url == "/resource_providers" and isinstance(body, dict):
                    # A uuid that the server chooses would be another one on each.
                    body.setdefault("uuid", self._pick(PROVIDERS))
            encoded = json.dumps(body).encode()
            if chance() < 0.01:
                encoded = self._pick([b"", b"{", b"[1,", b"nul", b"{} {}", b"\xff", b'"\xe9"'])
            if chance() < 0.01:
                headers["Content-Type"] = self._pick(
                    ["text/plain", "", "application/json; charset=utf-8", "APPLICATION/JSON"]
                )
        token: str | None = "admin"
        if chance() < 0.02:
            token = self._pick([None, "", "admin:project", "user", "user:project", ":x"])
        if chance() < 0.02:
            headers["X-Roles"] = self._pick(
                ["", "admin", "service", "reader", "Admin, x", "member"]
            )
        if chance() < 0.01:
            headers[self._pick(["OpenStack-System-Scope", "X-Domain-Id"])] = "all"
        return Sent(method, url, version, headers, encoded, token)

    def retire_consumers(self, sent: Sent) -> None:
        """Never again name consumers that a write left without allocations.

        The published server may keep a record of such a consumer and then expects its generation.
        """
        if sent.method not in ("PUT", "POST") or sent.url == "/resource_providers":
            return
        named = (sent.url + (sent.body or b"").decode("utf-8", "replace")).lower().replace("-", "")
        for place, consumer in enumerate(self.consumers):
            held = self._ours.get(f"/allocations/{consumer}").json["allocations"]
            if consumer.replace("-", "") in named and not held:
                self._fresh += 1
                self.consumers[place] = f"{CONSUMERS[place][:24]}{self._fresh:010}cc"

    def _pick(self, choices: Sequence[_Choice]) -> _Choice:
        return self._random.choice(choices)

    def _some(self, choices: list[_Choice], most: int = 3, least: int = 0) -> list[_Choice]:
        return self._random.sample(choices, self._random.randint(least, min(most, len(choices))))

    def _version(self) -> str | None:
        chance = self._random.random()
        if chance < 0.02:
            return self._pick([None, "1.40", "0.9", "x.y", "1", "1.2.3", "2.0", "1.05"])
        if chance < 0.05:
            return "latest"
        if chance < 0.5:
            return "1.39"
        return f"1.{self._random.randint(0, 39)}"

    def _mutated(self, body: Any) -> Any:
        """The body with one thing changed, taken away or added, at any depth."""
        if isinstance(body, dict) and body and self._random.random() < 0.85:
            changed = dict(body)
            key = self._pick(list(changed))
            how = self._random.random()
            if how < 0.2:
                del changed[key]
            elif how < 0.3:
                changed[self._pick(["extra", "uuid", "consumer_type", "VCPU", ""])] = self._pick(
                    STRANGE
                )
            else:
                changed[key] = self._mutated(changed[key])
            return changed
        if isinstance(body, list) and body and self._random.random() < 0.8:
            place = self._random.randrange(len(body))
            how = self._random.random()
            if how < 0.3:
                return [*body, body[place]]
            return [*body[:place], self._mutated(body[place]), *body[place + 1 :]]
        return self._pick(STRANGE)

    # What is true at the moment.

    def _generation(self, provider: str) -> int:
        answer = self._ours.get(f"/resource_providers/{provider}")
        right = answer.json["generation"] if answer.status == 200 else 0
        return int(right if self._random.random() < 0.9 else self._random.randint(0, 3))

    def _consumer_generation(self, consumer: str) -> int | None:
        right = self._ours.get(f"/allocations/{consumer}").json.get("consumer_generation")
        return right if self._random.random() < 0.9 else self._pick([None, 0, 1, 2, 33])

    def _provider(self) -> str:
        chance = self._random.random()
        if chance < 0.02:
            return self._pick(["nonsense", PROVIDERS[0].upper(), PROVIDERS[0].replace("-", "")])
        return self._pick(PROVIDERS)

    def _stock(self, provider: str) -> dict[str, Any]:
        answer = self._ours.get(f"/resource_providers/{provider}/inventories")
        known = answer.status == 200 and self._random.random() < 0.7
        return dict(answer.json["inventories"]) if known else {}

    # Writes.

    def _create_provider(self, minor: int) -> tuple[str, str, Any]:
        # Each provider mostly has a name of its own, or names would always be taken.
        place = self._random.randrange(len(PROVIDERS))
        name = NAMES[place] if self._random.random() < 0.8 else self._pick([*NAMES, ""])
        body: dict[str, Any] = {"name": name, "uuid": PROVIDERS[place]}
        if minor >= 14 and self._random.random() < 0.6:
            body["parent_provider_uuid"] = self._pick([None, *PROVIDERS, CONSUMERS[0]])
        return "POST", "/resource_providers", body

    def _update_provider(self, minor: int) -> tuple[str, str, Any]:
        provider = self._provider()
        body: dict[str, Any] = {"name": self._pick([*NAMES, "moved", "renamed", ""])}
        if minor >= 14 and self._random.random() < 0.7:
            body["parent_provider_uuid"] = self._pick([None, *PROVIDERS, CONSUMERS[0]])
        return "PUT", f"/resource_providers/{provider}", body

    def _delete_provider(self, minor: int) -> tuple[str, str, Any]:
        return "DELETE", f"/resource_providers/{self._provider()}", None

    def _record(self) -> dict[str, Any]:
        record: dict[str, Any] = {"total": self._pick([1, 4, 8, 100])}
        for name, values in (
            ("reserved", [0, 1, 4, 200]),
            ("min_unit", [1, 2]),
            ("max_unit", [1, 4, 1000]),
            ("step_size", [1, 2]),
            ("allocation_ratio", [1.0, 2, 16.5, 0.5, 0.1, 0, -1.0]),
        ):
            if self._random.random() < 0.25:
                record[name] = self._pick(values)
        if self._random.random() < 0.05:
            record["resource_provider_generation"] = 7
        return record

    def _inventories(self) -> dict[str, Any]:
        classes = self._some(CLASSES, 4, self._pick([0, 2, 2]))
        if self._random.random() < 0.05:
            classes.append(self._pick(["CUSTOM_NOPE", "NOPE"]))
        return {name: self._record() for name in classes}

    def _replace_inventories(self, minor: int) -> tuple[str, str, Any]:
        provider = self._provider()
        body = {
            "resource_provider_generation": self._generation(provider),
            "inventories": self._inventories(),
        }
        return "PUT", f"/resource_providers/{provider}/inventories", body

    def _create_inventory(self, minor: int) -> tuple[str, str, Any]:
        body = {**self._record(), "resource_class": self._pick([*CLASSES, "CUSTOM_NOPE"])}
        return "POST", f"/resource_providers/{self._provider()}/inventories", body

    def _update_inventory(self, minor: int) -> tuple[str, str, Any]:
        provider = self._provider()
        body = {**self._record(), "resource_provider_generation": self._generation(provider)}
        name = self._pick([*CLASSES, "CUSTOM_NOPE"])
        return "PUT", f"/resource_providers/{provider}/inventories/{name}", body

    def _delete_inventory(self, minor: int) -> tuple[str, str, Any]:
        url = f"/resource_providers/{self._provider()}/inventories"
        if self._random.random() < 0.7:
            url += f"/{self._pick([*CLASSES, 'CUSTOM_NOPE'])}"
        return "DELETE", url, None

    def _replace_aggregates(self, minor: int) -> tuple[str, str, Any]:
        provider = self._provider()
        aggregates = self._some(AGGREGATES)
        body: Any = aggregates
        if minor >= 19:
            body = {
                "aggregates": aggregates,
                "resource_provider_generation": self._generation(provider),
            }
        return "PUT", f"/resource_providers/{provider}/aggregates", body

    def _replace_traits(self, minor: int) -> tuple[str, str, Any]:
        provider = self._provider()
        if self._random.random() < 0.15:
            return "DELETE", f"/resource_providers/{provider}/traits", None
        traits = self._some(TRAITS)
        if self._random.random() < 0.05:
            traits.append("CUSTOM_NOPE")
        body = {"traits": traits, "resource_provider_generation": self._generation(provider)}
        return "PUT", f"/resource_providers/{provider}/traits", body

    def _trait(self, minor: int) -> tuple[str, str, Any]:
        name = self._pick([*TRAITS, "CUSTOM_FAST", "CUSTOM_COLD", "custom_x", "CUSTOM_", "X" * 256])
        return (
            self._pick(["PUT", "PUT", "PUT", "PUT", "PUT", "DELETE", "GET"]),
            f"/traits/{name}",
            None,
        )

    def _resource_class(self, minor: int) -> tuple[str, str, Any]:
        name = self._pick([*CLASSES, "CUSTOM_GOLD", "CUSTOM_IRON", "CUSTOM_", "custom_x"])
        method = self._pick(["PUT", "PUT", "POST", "DELETE", "GET"])
        if method == "POST":
            return method, "/resource_classes", {"name": name}
        body = {"name": self._pick(CLASSES)} if method == "PUT" and minor < 7 else None
        return method, f"/resource_classes/{name}", body

    def _resources(self) -> dict[str, int]:
        most = self._pick([1, 1, 2, 3])
        classes = self._some(CLASSES, most, 1)
        if self._random.random() < 0.03:
            classes.append("CUSTOM_NOPE")
        return {name: self._pick([1, 1, 1, 1, 2, 2, 4, 8, 1000]) for name in classes}

    def _held(self, minor: int, *, may_be_empty: bool) -> dict[str, Any]:
        if may_be_empty and self._random.random() < 0.15:
            return {}
        held: dict[str, Any] = {}
        for provider in self._some(PROVIDERS, 2, 1):
            stocked = self._ours.get(f"/resource_providers/{provider}/inventories")
            resources = self._resources()
            if (
                stocked.status == 200
                and stocked.json["inventories"]
                and self._random.random() < 0.8
            ):
                names = self._some(list(stocked.json["inventories"]), 2, 1)
                resources = {name: self._pick([1, 1, 1, 2, 4]) for name in names}
            held[provider] = {"resources": resources}
            if minor >= 12 and self._random.random() < 0.1:
                held[provider]["generation"] = 3
        return held

    def _consumer_body(self, minor: int, consumer: str, *, many: bool) -> dict[str, Any]:
        held = self._held(minor, may_be_empty=many or minor >= 28)
        body: dict[str, Any] = {"allocations": held}
        if minor < 12:
            body["allocations"] = [
                {"resource_provider": {"uuid": provider}, "resources": entry["resources"]}
                for provider, entry in held.items()
            ]
        if minor >= 8:
            body["project_id"] = self._pick(PROJECTS)
            body["user_id"] = self._pick(USERS)
        if minor >= 28:
            body["consumer_generation"] = self._consumer_generation(consumer)
        if minor >= 34 and self._random.random() < 0.3:
            body["mappings"] = self._pick([{"": PROVIDERS[:1]}, {"_A": PROVIDERS[:2]}, {}])
        if minor >= 38:
            body["consumer_type"] = self._pick(TYPES)
        return body

    def _claim(self, minor: int) -> tuple[str, str, Any]:
        consumer = self._pick(self.consumers)
        body = self._consumer_body(minor, consumer, many=False)
        if self._random.random() < 0.03:
            consumer = self._pick(["nonsense", consumer.replace("-", ""), consumer.upper()])
        return "PUT", f"/allocations/{consumer}", body

    def _claim_many(self, minor: int) -> tuple[str, str, Any]:
        consumers = self._some(self.consumers, 3, 1)
        minor = max(minor, 13)
        body = {consumer: self._consumer_body(minor, consumer, many=True) for consumer in consumers}
        return "POST", "/allocations", body

    def _delete_claim(self, minor: int) -> tuple[str, str, Any]:
        return "DELETE", f"/allocations/{self._pick([*self.consumers, 'nonsense'])}", None

    def _reshape(self, minor: int) -> tuple[str, str, Any]:
        minor = max(minor, 30)
        body = {
            "inventories": {
                provider: {
                    "resource_provider_generation": self._generation(provider),
                    "inventories": {**self._stock(provider), **self._inventories()},
                }
                for provider in self._some(PROVIDERS, 2, 1)
            },
            "allocations": {
                consumer: self._consumer_body(minor, consumer, many=True)
                for consumer in self._some(self.consumers, 2)
            },
        }
        return "POST", "/reshaper", body

    # Reads.

    def _query(self, path: str, parameters: list[tuple[str, str]]) -> tuple[str, str, Any]:
        if self._random.random() < 0.1:
            parameters.append(
                (self._pick(["spam", "limit", "name", "uuid"]), self._pick(["1", ""]))
            )
        if parameters and self._random.random() < 0.15:
            place = self._random.randrange(len(parameters))
            parameters[place] = (parameters[place][0], self._pick(STRANGE_TEXTS))
        if parameters and self._random.random() < 0.05:
            parameters.append(self._pick(parameters))
        query = "&".join(f"{name}={quote(value, safe='')}" for name, value in parameters)
        return "GET", f"{path}?{query}" if query else path, None

    def _amounts(self) -> str:
        return ",".join(f"{name}:{amount}" for name, amount in self._resources().items())

    def _required(self, minor: int, *, any_of: bool = True) -> str:
        if any_of and minor >= 39 and self._random.random() < 0.25:
            return "in:" + ",".join(self._some(TRAITS, 3, 1))
        sign = "!" if minor >= 22 and self._random.random() < 0.4 else ""
        return ",".join(
            f"{sign if self._random.random() < 0.6 else ''}{name}"
            for name in self._some(TRAITS, 2, 1)
        )

    def _member_of(self, minor: int) -> str:
        sign = "!" if minor >= 32 and self._random.random() < 0.3 else ""
        if self._random.random() < 0.3:
            return f"{sign}in:" + ",".join(self._some(AGGREGATES, 2, 1))
        return f"{sign}{self._pick(AGGREGATES)}"

    def _list_providers(self, minor: int) -> tuple[str, str, Any]:
        makers: list[tuple[str, int, Callable[[], str]]] = [
            ("name", 0, lambda: self._pick([*NAMES, ""])),
            ("uuid", 0, self._provider),
            ("member_of", 3, lambda: self._member_of(minor)),
            ("resources", 4, self._amounts),
            ("in_tree", 14, self._provider),
            ("required", 18, lambda: self._required(minor)),
        ]
        usable = [(name, make) for name, since, make in makers if minor >= since]
        chosen = self._some(usable, 2)
        return self._query("/resource_providers", [(name, make()) for name, make in chosen])

    def _read(self, minor: int) -> tuple[str, str, Any]:
        provider = f"/resource_providers/{self._provider()}"
        paths = [
            provider,
            *(f"{provider}/{rest}" for rest in ("inventories", "usages", "aggregates")),
            *(f"{provider}/{rest}" for rest in ("traits", "allocations")),
            f"{provider}/inventories/{self._pick([*CLASSES, 'CUSTOM_NOPE'])}",
            f"/allocations/{self._pick([*self.consumers, 'nonsense'])}",
            f"/resource_classes/{self._pick([*CLASSES, 'CUSTOM_NOPE'])}",
            self._pick(["/resource_classes", "/traits", "/"]),
        ]
        return "GET", self._pick(paths), None

    def _usages(self, minor: int) -> tuple[str, str, Any]:
        parameters = [("project_id", self._pick([*PROJECTS, "nobody"]))]
        if self._random.random() < 0.4:
            parameters.append(("user_id", self._pick(USERS)))
        if minor >= 38 and self._random.random() < 0.5:
            parameters.append(
                ("consumer_type", self._pick([*TYPES, "all", "unknown", "allx", "NONE"]))
            )
        return self._query("/usages", parameters)

    def _list_traits(self, minor: int) -> tuple[str, str, Any]:
        parameters = []
        if self._random.random() < 0.8:
            names = ",".join(self._some([*TRAITS, "CUSTOM_NOPE"], 3))
            parameters.append(("name", self._pick([f"in:{names}", "startswith:CUSTOM", "x:y"])))
        if self._random.random() < 0.5:
            parameters.append(("associated", self._pick(["true", "False"])))
        return self._query("/traits", parameters)

    def _candidates(self, minor: int) -> tuple[str, str, Any]:
        suffixes = [""]
        if minor >= 25 and self._random.random() < 0.6:
            suffixes = self._some(["", "1", "2"], 3, 1)
        if minor >= 33 and self._random.random() < 0.5:
            suffixes = self._some(["", "_A", "_B", "1"], 3, 1)
        parameters: list[tuple[str, str]] = []
        resourceless = []
        for suffix in suffixes:
            if minor >= 36 and suffix and self._random.random() < 0.1:
                resourceless.append(suffix)
            else:
                parameters.append((f"resources{suffix}", self._amounts()))
            if minor >= 17 and self._random.random() < 0.2:
                parameters.append((f"required{suffix}", self._required(minor)))
            if minor >= 21 and self._random.random() < 0.15:
                parameters.append((f"member_of{suffix}", self._member_of(minor)))
            if minor >= 31 and self._random.random() < 0.1:
                parameters.append((f"in_tree{suffix}", self._provider()))
        if minor >= 25 and (len([s for s in suffixes if s]) > 1 or self._random.random() < 0.2):
            parameters.append(("group_policy", self._pick(["none", "isolate"])))
        if minor >= 35 and self._random.random() < 0.1:
            parameters.append(("root_required", self._required(minor, any_of=False)))
        if minor >= 36 and (resourceless or self._random.random() < 0.1):
            tied = [suffix for suffix in suffixes if suffix] or ["_X"]
            parameters.append(("same_subtree", ",".join(tied)))
        if minor >= 16 and self._random.random() < 0.1:
            parameters.append(("limit", self._pick(["1", "1", "2", "3", "1000"])))
        self._random.shuffle(parameters)
        return self._query("/allocation_candidates", parameters)

    def _nowhere(self, minor: int) -> tuple[str, str, Any]:
        paths = [
            "/nowhere", "", "/resource_providers/", "//", f"/resource_providers/{PROVIDERS[0]}/x",
            "/allocations", "/reshaper", "/traits/%00", "/traits/%e2%98%83", "/allocations/%ff",
        ]  # fmt: skip
        return self._pick(["GET", "GET", "PUT", "POST", "DELETE"]), self._pick(paths), None
