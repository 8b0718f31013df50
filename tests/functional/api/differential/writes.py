"""Random requests that change something."""

from __future__ import annotations

from typing import Any

from .draw import Draw
from .vocabulary import (
    AGGREGATES,
    CLASSES,
    CONSUMERS,
    NAMES,
    PROJECTS,
    PROVIDERS,
    TRAITS,
    TYPES,
    USERS,
)


class Writes:
    """Makes writes: each maker is given the minor version, and returns method, URL and body."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw

    def create_provider(self, minor: int) -> tuple[str, str, Any]:
        # Each provider mostly has a name of its own, or names would always be taken.
        place = self._draw.random.randrange(len(PROVIDERS))
        name = NAMES[place] if self._draw.chance() < 0.8 else self._draw.pick([*NAMES, ""])
        body: dict[str, Any] = {"name": name, "uuid": PROVIDERS[place]}
        if minor >= 14 and self._draw.chance() < 0.6:
            body["parent_provider_uuid"] = self._draw.pick([None, *PROVIDERS, CONSUMERS[0]])
        return "POST", "/resource_providers", body

    def update_provider(self, minor: int) -> tuple[str, str, Any]:
        provider = self._draw.provider()
        body: dict[str, Any] = {"name": self._draw.pick([*NAMES, "moved", "renamed", ""])}
        if minor >= 14 and self._draw.chance() < 0.7:
            body["parent_provider_uuid"] = self._draw.pick([None, *PROVIDERS, CONSUMERS[0]])
        return "PUT", f"/resource_providers/{provider}", body

    def delete_provider(self, minor: int) -> tuple[str, str, Any]:
        return "DELETE", f"/resource_providers/{self._draw.provider()}", None

    def _record(self) -> dict[str, Any]:
        record: dict[str, Any] = {"total": self._draw.pick([1, 4, 8, 100])}
        for name, values in (
            ("reserved", [0, 1, 4, 200]),
            ("min_unit", [1, 2]),
            ("max_unit", [1, 4, 1000]),
            ("step_size", [1, 2]),
            ("allocation_ratio", [1.0, 2, 16.5, 0.5, 0.1, 0, -1.0]),
        ):
            if self._draw.chance() < 0.25:
                record[name] = self._draw.pick(values)
        if self._draw.chance() < 0.05:
            record["resource_provider_generation"] = 7
        return record

    def _inventories(self) -> dict[str, Any]:
        classes = self._draw.some(CLASSES, 4, self._draw.pick([0, 2, 2]))
        if self._draw.chance() < 0.05:
            classes.append(self._draw.pick(["CUSTOM_NOPE", "NOPE"]))
        return {name: self._record() for name in classes}

    def replace_inventories(self, minor: int) -> tuple[str, str, Any]:
        provider = self._draw.provider()
        body = {
            "resource_provider_generation": self._draw.generation(provider),
            "inventories": self._inventories(),
        }
        return "PUT", f"/resource_providers/{provider}/inventories", body

    def create_inventory(self, minor: int) -> tuple[str, str, Any]:
        body = {**self._record(), "resource_class": self._draw.pick([*CLASSES, "CUSTOM_NOPE"])}
        return "POST", f"/resource_providers/{self._draw.provider()}/inventories", body

    def update_inventory(self, minor: int) -> tuple[str, str, Any]:
        provider = self._draw.provider()
        body = {**self._record(), "resource_provider_generation": self._draw.generation(provider)}
        name = self._draw.pick([*CLASSES, "CUSTOM_NOPE"])
        return "PUT", f"/resource_providers/{provider}/inventories/{name}", body

    def delete_inventory(self, minor: int) -> tuple[str, str, Any]:
        url = f"/resource_providers/{self._draw.provider()}/inventories"
        if self._draw.chance() < 0.7:
            url += f"/{self._draw.pick([*CLASSES, 'CUSTOM_NOPE'])}"
        return "DELETE", url, None

    def replace_aggregates(self, minor: int) -> tuple[str, str, Any]:
        provider = self._draw.provider()
        aggregates = self._draw.some(AGGREGATES)
        body: Any = aggregates
        if minor >= 19:
            body = {
                "aggregates": aggregates,
                "resource_provider_generation": self._draw.generation(provider),
            }
        return "PUT", f"/resource_providers/{provider}/aggregates", body

    def replace_traits(self, minor: int) -> tuple[str, str, Any]:
        provider = self._draw.provider()
        if self._draw.chance() < 0.15:
            return "DELETE", f"/resource_providers/{provider}/traits", None
        traits = self._draw.some(TRAITS)
        if self._draw.chance() < 0.05:
            traits.append("CUSTOM_NOPE")
        body = {"traits": traits, "resource_provider_generation": self._draw.generation(provider)}
        return "PUT", f"/resource_providers/{provider}/traits", body

    def trait(self, minor: int) -> tuple[str, str, Any]:
        name = self._draw.pick(
            [*TRAITS, "CUSTOM_FAST", "CUSTOM_COLD", "custom_x", "CUSTOM_", "X" * 256]
        )
        return (
            self._draw.pick(["PUT", "PUT", "PUT", "PUT", "PUT", "DELETE", "GET"]),
            f"/traits/{name}",
            None,
        )

    def resource_class(self, minor: int) -> tuple[str, str, Any]:
        name = self._draw.pick([*CLASSES, "CUSTOM_GOLD", "CUSTOM_IRON", "CUSTOM_", "custom_x"])
        method = self._draw.pick(["PUT", "PUT", "POST", "DELETE", "GET"])
        if method == "POST":
            return method, "/resource_classes", {"name": name}
        body = {"name": self._draw.pick(CLASSES)} if method == "PUT" and minor < 7 else None
        return method, f"/resource_classes/{name}", body

    def _held(self, minor: int, *, may_be_empty: bool) -> dict[str, Any]:
        if may_be_empty and self._draw.chance() < 0.15:
            return {}
        held: dict[str, Any] = {}
        for provider in self._draw.some(PROVIDERS, 2, 1):
            stocked = self._draw.ours.get(f"/resource_providers/{provider}/inventories")
            resources = self._draw.resources()
            if stocked.status == 200 and stocked.json["inventories"] and self._draw.chance() < 0.8:
                names = self._draw.some(list(stocked.json["inventories"]), 2, 1)
                resources = {name: self._draw.pick([1, 1, 1, 2, 4]) for name in names}
            held[provider] = {"resources": resources}
            if minor >= 12 and self._draw.chance() < 0.1:
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
            body["project_id"] = self._draw.pick(PROJECTS)
            body["user_id"] = self._draw.pick(USERS)
        if minor >= 28:
            body["consumer_generation"] = self._draw.consumer_generation(consumer)
        if minor >= 34 and self._draw.chance() < 0.3:
            body["mappings"] = self._draw.pick([{"": PROVIDERS[:1]}, {"_A": PROVIDERS[:2]}, {}])
        if minor >= 38:
            body["consumer_type"] = self._draw.pick(TYPES)
        return body

    def claim(self, minor: int) -> tuple[str, str, Any]:
        consumer = self._draw.pick(self._draw.consumers)
        body = self._consumer_body(minor, consumer, many=False)
        if self._draw.chance() < 0.03:
            consumer = self._draw.pick(["nonsense", consumer.replace("-", ""), consumer.upper()])
        return "PUT", f"/allocations/{consumer}", body

    def claim_many(self, minor: int) -> tuple[str, str, Any]:
        consumers = self._draw.some(self._draw.consumers, 3, 1)
        minor = max(minor, 13)
        body = {consumer: self._consumer_body(minor, consumer, many=True) for consumer in consumers}
        return "POST", "/allocations", body

    def delete_claim(self, minor: int) -> tuple[str, str, Any]:
        return (
            "DELETE",
            f"/allocations/{self._draw.pick([*self._draw.consumers, 'nonsense'])}",
            None,
        )

    def reshape(self, minor: int) -> tuple[str, str, Any]:
        minor = max(minor, 30)
        body = {
            "inventories": {
                provider: {
                    "resource_provider_generation": self._draw.generation(provider),
                    "inventories": {**self._draw.stock(provider), **self._inventories()},
                }
                for provider in self._draw.some(PROVIDERS, 2, 1)
            },
            "allocations": {
                consumer: self._consumer_body(minor, consumer, many=True)
                for consumer in self._draw.some(self._draw.consumers, 2)
            },
        }
        return "POST", "/reshaper", body
