"""Holdings by consumer, by host and by project, for people and programs that ask."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from compute_agent.placement.allocations.amounts import Amounts
from compute_agent.placement.candidates import Candidates
from compute_agent.placement.consumers import Consumer, Consumers
from compute_agent.request.errors import InvalidRequest


class ConsumerHoldings(Struct, frozen=True):
    """What one consumer holds.

    :param hosts: names of the hosts that it is on; none where it holds shared providers only.
    :param names: name of each provider.
    :param age: seconds since it was last written, `None` where placement does not report it.
    """

    consumer: str
    type: str
    project_id: str
    user_id: str
    hosts: tuple[str, ...]
    resources: Amounts
    names: dict[str, str]
    age: float | None

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "consumer": self.consumer,
            "type": self.type,
            "project_id": self.project_id,
            "user_id": self.user_id,
            "hosts": list(self.hosts),
            "allocations": {
                uuid: {"name": self.names.get(uuid, uuid), "resources": dict(amounts)}
                for uuid, amounts in self.resources.items()
            },
            "age": self.age,
        }


class HoldingsReader:
    """Reads who holds what."""

    def __init__(self, consumers: Consumers) -> None:
        self._consumers = consumers
        self._providers = consumers.placement.providers
        self._known_providers: dict[str, tuple[str, str]] = {}

    def of_consumers(self, uuids: Iterable[str]) -> list[ConsumerHoldings]:
        """Return what these consumers hold, without those that hold nothing.

        :raises PlacementError: it cannot be read.
        """
        return [self._holding_of(consumer) for consumer in self._consumers.read(uuids)]

    def on_host(self, name: str) -> list[ConsumerHoldings]:
        """Return the consumers of a host, with all that each holds anywhere.

        :raises InvalidRequest: placement knows no such host.
        :raises PlacementError: it cannot be read.
        """
        root = self._providers.by_name(name)
        if root is None:
            raise InvalidRequest("--host", name, "the name of a host that placement has")
        tree = self._providers.in_tree(root["uuid"])
        for provider in tree:
            self._known_providers[provider["uuid"]] = (provider["name"], root["uuid"])
        return self.of_consumers(self._consumers.on([provider["uuid"] for provider in tree]))

    def of_project(self, project: str) -> dict[str, dict[str, int]]:
        """Return the sums of what a project holds, by type of consumer and class.

        The key `consumer_count` has the number of consumers of a type.

        :raises PlacementError: it cannot be read.
        """
        usages: dict[str, Any] = Candidates(self._consumers.placement.connection).get_usages(
            project
        )
        has_types = all(isinstance(amounts, dict) for amounts in usages.values())
        return usages if has_types else {"all": usages}

    def _holding_of(self, consumer: Consumer) -> ConsumerHoldings:
        known = self._known_providers
        for uuid in consumer.resources:
            self._learn(uuid)
        roots = {known[uuid][1] for uuid in consumer.resources if uuid in known}
        for root in roots:
            self._learn(root)
        return ConsumerHoldings(
            consumer=consumer.uuid,
            type=consumer.type or "",
            project_id=str(consumer.record.get("project_id", "")),
            user_id=str(consumer.record.get("user_id", "")),
            hosts=tuple(sorted(known[root][0] if root in known else root for root in roots)),
            resources=consumer.resources,
            names={uuid: known[uuid][0] for uuid in consumer.resources if uuid in known},
            age=consumer.age,
        )

    def _learn(self, uuid: str) -> None:
        if uuid not in self._known_providers:
            provider = self._providers.get(uuid)
            if provider is not None:
                root = dict(provider).get("root_provider_uuid") or uuid
                self._known_providers[uuid] = (provider["name"], str(root))
