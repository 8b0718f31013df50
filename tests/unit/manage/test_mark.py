"""Marking of a host in placement while claims raise the generation of its root."""

import json

from compute_agent.manage import fleet
from compute_agent.placement.api import PlacementApi
from compute_agent.placement.connection import Connection
from compute_agent.placement.transports.transport import Request, Response, make_response
from compute_agent.provider_tree.trait_names import COMPUTE_STATUS_DISABLED


class BusyProvider:
    """A provider with traits whose generation another writer raises behind the first read."""

    def __init__(self) -> None:
        self.generation = 7
        self.traits = ["COMPUTE_NODE"]
        self._claims = 1

    def send(self, request: Request) -> Response:
        if request.method == "PUT":
            body = request.json
            assert isinstance(body, dict)
            if body["resource_provider_generation"] != self.generation:
                conflict = {"status": 409, "title": "x", "detail": "generation conflict"}
                return _json(409, {"errors": [conflict | {"code": "placement.concurrent_update"}]})
            self.generation += 1
            self.traits = body["traits"]
            return _json(200, self._document())
        document = self._document()
        self.generation += self._claims
        self._claims = 0
        return _json(200, document)

    def _document(self) -> dict[str, object]:
        return {"traits": self.traits, "resource_provider_generation": self.generation}


def _json(status: int, body: object) -> Response:
    return make_response(status, (), json.dumps(body))


def test_a_claim_in_between_does_not_stop_it() -> None:
    provider = BusyProvider()
    placement = PlacementApi(Connection(provider))
    fleet.HostSwitch(placement, None, ("u", "host"), None).set(is_enabled=False)
    assert sorted(provider.traits) == ["COMPUTE_NODE", COMPUTE_STATUS_DISABLED]
