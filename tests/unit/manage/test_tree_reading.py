"""Trees that are displayed, where placement answers them at once."""

import json

import pytest

from compute_agent import errors
from compute_agent.manage import fleet
from compute_agent.manage.tree_reading import InventoryLine, ProviderLines, existing_tree, read_tree
from compute_agent.placement.api import PlacementApi
from compute_agent.placement.connection import Connection
from compute_agent.placement.transports.transport import Request, Response, make_response

PRESENT, GONE = "00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002"
ROOT = {"uuid": PRESENT, "name": "host", "parent_provider_uuid": None, "generation": 1}
PARTS = {"inventories": {}, "traits": [], "aggregates": [], "usages": {}}


class Answers:
    """A placement with whole trees that has one of two hosts."""

    def __init__(self, status: int = 200, body: object = None) -> None:
        self._status = status
        self._body = body if body is not None else {"providers": [ROOT | PARTS]}

    def send(self, request: Request) -> Response:
        if request.path == "/":
            version = {"id": "v1.0", "min_version": "1.0", "max_version": "1.39"}
            extension = {"id": "placement-ext", "min_version": "1.0", "max_version": "1.1"}
            return _json(200, {"versions": [version], "extensions": [extension]})
        if GONE in request.path:
            return _json(404, {"errors": [{"status": 404, "title": "x", "detail": "no such"}]})
        return _json(self._status, self._body)


def _json(status: int, body: object) -> Response:
    versions = ("OpenStack-API-Version", "placement 1.39, placement-ext 1.1")
    return make_response(status, [versions, ("ETag", '"1"')], json.dumps(body))


def connection_to(transport: Answers) -> Connection:
    connection = Connection(transport, use_extensions=True)
    connection.versions()
    return connection


def test_a_host_deleted_in_between_does_not_end_the_list_of_hosts() -> None:
    placement = PlacementApi(connection_to(Answers()))
    trees = list(fleet.trees(placement, [GONE, PRESENT]))
    assert [tree[0].name for tree in trees] == ["host"]


def test_a_tree_that_is_gone_is_an_error_where_it_has_to_be_there() -> None:
    with pytest.raises(errors.ResourceProviderNotFound, match=GONE):
        existing_tree(connection_to(Answers()), GONE)


@pytest.mark.parametrize(
    "body",
    ["<html>", [], {"providers": 5}, {"providers": [ROOT]}, {"providers": [ROOT | {"usages": 1}]}],
)
def test_an_answer_that_is_no_tree_is_an_error_of_placement(body: object) -> None:
    with pytest.raises(errors.ResourceProviderRetrievalFailed):
        read_tree(connection_to(Answers(body=body)), PRESENT)


def test_a_refused_question_does_not_read_as_a_missing_provider() -> None:
    refusal = {"errors": [{"status": 400, "title": "x", "detail": "malformed"}]}
    with pytest.raises(errors.ResourceProviderRetrievalFailed, match="malformed"):
        read_tree(connection_to(Answers(400, refusal)), PRESENT)


def test_what_options_name_in_vain_is_trouble_of_the_host() -> None:
    node = {"service": "host", "caveats": ["[pci]device_spec has an entry without effect"]}
    agents = fleet.HeardAgents({PRESENT: node})
    host = fleet.describe([ProviderLines(PRESENT, "host", None)], agents)
    assert host.trouble == ("[pci]device_spec has an entry without effect",)


def test_a_device_that_is_gone_is_trouble_with_who_holds_it_and_not_over_capacity() -> None:
    inventory = {"VGPU": InventoryLine(total=1, reserved=1, allocation_ratio=1.0, used=1)}
    device = ProviderLines(
        GONE, "gpu", PRESENT, inventory, ("CUSTOM_DEVICE_MISSING",), holders=("a",)
    )
    host = fleet.describe([ProviderLines(PRESENT, "host", None), device], None)
    assert host.trouble == ("gpu is gone, held by a",)
