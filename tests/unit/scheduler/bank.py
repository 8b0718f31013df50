"""A placement in memory for tests: it hands out what its providers have and not more.

It answers every question with the candidates it was given, so that what a scheduler does with them
can be looked at; claims are checked against the capacity for real.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote

from compute_agent.errors import PlacementAPIConnectFailure
from compute_agent.placement.connection import Retries
from compute_agent.placement.transports.transport import Request, Response
from compute_agent.scheduler.placement.client import PlacementClient
from tests.fixtures.clocks import WaitingClock
from tests.unit.scheduler.trees import body

GENERATION = {"resource_provider_generation": 0}
CONFLICT = "consumer generation conflict"


class Bank:
    """A transport that answers as placement does, and the scheduler's client over it.

    :param candidates: offered to every question, in this order.
    :param summaries: the providers.
    """

    def __init__(
        self, candidates: list[dict[str, Any]], summaries: dict[str, dict[str, Any]]
    ) -> None:
        self.candidates = candidates
        self.summaries = summaries
        self.held: dict[str, dict[str, dict[str, int]]] = {}
        self.claims: list[str] = []
        self.queries: list[dict[str, str]] = []
        self.names: dict[str, str] = {}
        self.down = False
        self.before_claim: Callable[[str], None] = lambda _consumer: None
        self.after_claim: Callable[[str], None] = lambda _consumer: None
        self.unknown_name = ""
        self.client = PlacementClient(self, retries=Retries(WaitingClock()))

    def send(self, request: Request) -> Response:
        """Answer a request of the client."""
        self._reached()
        path, _, query = request.path.partition("?")
        match [request.method, *(unquote(part) for part in path.strip("/").split("/"))]:
            case ["GET", ""]:
                version = {"id": "v1.0", "min_version": "1.0", "max_version": "1.39"}
                return answer(200, {"versions": [version]})
            case ["GET", "allocation_candidates"] if self.unknown_name:
                return answer(400, error(f"No such {self.unknown_name}.", ""))
            case ["GET", "allocation_candidates"]:
                return answer(200, self.offer(parse_qsl(query)))
            case ["GET", "traits"]:
                prefix = dict(parse_qsl(query))["name"].partition(":")[2]
                traits = {trait for s in self.summaries.values() for trait in s["traits"]}
                return answer(200, {"traits": sorted(t for t in traits if t.startswith(prefix))})
            case ["GET", "allocations", consumer]:
                return answer(200, self._record(consumer))
            case ["GET", "resource_providers"]:
                found = self._listed(dict(parse_qsl(query)))
                return answer(200, {"resource_providers": [self._provider(u) for u in found]})
            case ["GET", "resource_providers", uuid, *aspect]:
                return answer(200, self._aspect(uuid, *aspect))
            case ["PUT", "allocations", consumer]:
                return self._write({consumer: request.json})
            case ["POST", "allocations"]:
                return self._write(request.json)
        raise NotImplementedError(f"{request} is tested with a real placement")

    def offer(self, parameters: list[tuple[str, str]]) -> dict[str, Any]:
        """The candidates for a question, and the summaries with what is held counted as used."""
        self.queries.append(dict(parameters))
        nested = any("NUMA0" in suffix for suffix, _ in parameters)
        offered = [
            candidate
            for candidate in self.candidates
            if ("_NUMA0" in candidate["mappings"]) == nested
        ]
        summaries = {
            uuid: {
                **summary,
                "resources": {
                    name: {
                        "capacity": count["capacity"],
                        "used": count["capacity"] - self.left(uuid, name),
                    }
                    for name, count in summary["resources"].items()
                },
            }
            for uuid, summary in self.summaries.items()
        }
        return body(offered, summaries)

    def shortage(self, consumer: str, wanted: Mapping[str, Mapping[str, int]]) -> str | None:
        """Why a consumer cannot have what it wants, `None` where it has it now."""
        for provider, amounts in wanted.items():
            for name, amount in amounts.items():
                if self.left(provider, name) < amount:
                    self.claims.append(f"{consumer} {provider} refused")
                    return (
                        f"Unable to create allocation for '{name}' on resource provider "
                        f"'{provider}'."
                    )
        self.held[consumer] = {uuid: dict(amounts) for uuid, amounts in wanted.items()}
        self.claims.append(f"{consumer} {' '.join(wanted)}")
        return None

    def left(self, provider: str, name: str) -> int:
        counted = self.summaries[provider]["resources"].get(name, {"capacity": 0, "used": 0})
        held = sum(holding.get(provider, {}).get(name, 0) for holding in self.held.values())
        return int(counted["capacity"] - counted["used"] - held)

    def _write(self, records: Any) -> Response:
        wanted = {
            consumer: {u: own["resources"] for u, own in record["allocations"].items()}
            for consumer, record in records.items()
        }
        claiming = [consumer for consumer, record in records.items() if record["allocations"]]
        for consumer in claiming:
            self.before_claim(consumer)
        self._reached()
        for consumer, record in records.items():
            if (record["consumer_generation"] is None) == (consumer in self.held):
                return answer(409, error(CONFLICT, "placement.concurrent_update"))
        before = dict(self.held)
        for consumer, amounts in wanted.items():
            self.held.pop(consumer, None)
            refusal = self.shortage(consumer, amounts) if amounts else None
            if refusal is not None:
                self.held = before
                return answer(409, error(refusal, "placement.undefined_code"))
        for consumer in claiming:
            self.after_claim(consumer)
        self._reached()
        return Response(204, {}, b"")

    def _record(self, consumer: str) -> dict[str, Any]:
        held = self.held.get(consumer, {})
        owner = {"project_id": "p", "user_id": "u", "consumer_type": "INSTANCE"}
        return {
            "allocations": {uuid: {"resources": dict(own)} for uuid, own in held.items()},
            **({**owner, "consumer_generation": 1} if held else {}),
        }

    def _provider(self, uuid: str) -> dict[str, Any]:
        summary = self.summaries[uuid]
        return {
            "uuid": uuid,
            "name": self.names.get(uuid, f"host-{uuid}"),
            "generation": 0,
            "parent_provider_uuid": summary["parent_provider_uuid"],
            "root_provider_uuid": summary["root_provider_uuid"],
        }

    def _listed(self, query: Mapping[str, str]) -> list[str]:
        def fits(uuid: str) -> bool:
            provider, traits = self._provider(uuid), self.summaries[uuid]["traits"]
            return (
                query.get("name") in (None, provider["name"])
                and query.get("in_tree") in (None, provider["root_provider_uuid"])
                and query.get("required") in (None, *traits)
            )

        return [uuid for uuid in self.summaries if fits(uuid)]

    def _aspect(self, uuid: str, aspect: str = "") -> dict[str, Any]:
        match aspect:
            case "traits":
                return {"traits": self.summaries[uuid]["traits"], **GENERATION}
            case "aggregates":
                return {"aggregates": self.summaries[uuid].get("aggregates", []), **GENERATION}
            case "allocations":
                holders = {
                    consumer: {"resources": holding[uuid], "consumer_generation": 1}
                    for consumer, holding in self.held.items()
                    if uuid in holding
                }
                return {"allocations": holders, **GENERATION}
        return self._provider(uuid)

    def _reached(self) -> None:
        if self.down:
            raise PlacementAPIConnectFailure("no answer from placement")


def answer(status: int, document: dict[str, Any]) -> Response:
    return Response(status, {}, json.dumps(document).encode())


def error(detail: str, code: str) -> dict[str, Any]:
    return {"errors": [{"status": 409, "title": "Conflict", "detail": detail, "code": code}]}
