"""The explanation at placement-ext 1.1: the closest changes, and the providers that are short."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import jsonschema
import pytest

from compute_agent.placement.candidates import Candidates
from compute_agent.placement.connection import Connection
from compute_agent.placement.transports.in_process import InProcessTransport
from placement_server.api.extensions.candidate_explanation import EXPLANATION_WITH_CLOSEST

from .conftest import MakeApi
from .short_fleet import QUERY, UUID, build_fleet, guest, hold, path_of
from .wsgi_client import Client

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "closest-changes.md"


@pytest.fixture
def fleet(make_api: MakeApi) -> Client:
    return make_api(filled_by=build_fleet)


def explain(api: Client, query: str, extension: str = "1.1") -> dict[str, Any]:
    answer = api.get(
        f"/candidate_explanation?{query}",
        version=None,
        headers={"OpenStack-API-Version": f"placement 1.39, placement-ext {extension}"},
    )
    assert answer.status == 200, answer.body
    told: dict[str, Any] = answer.json
    return told


def closest(api: Client, query: str) -> dict[str, Any]:
    told = explain(api, query)
    jsonschema.validate(told, EXPLANATION_WITH_CLOSEST)
    return told


def test_the_example_of_the_page_is_what_the_server_answers(fleet: Client) -> None:
    told = closest(fleet, QUERY)
    shown = PAGE.read_text().partition("    200 OK\n")[2]
    example = json.loads(shown.partition("\n\n")[0])
    sentences = example.pop("sentences")
    assert told["sentences"][: len(sentences)] == sentences
    assert {key: told[key] for key in example} == example


def causes() -> list[tuple[str, str]]:
    """The queries of the page's table of causes, each with the first sentence of its answer."""
    table = PAGE.read_text().partition("| cause | query | answer |\n")[2].partition("\n\n")[0]
    rows = [row.strip("| ").split(" | ") for row in table.splitlines()[1:]]
    return [(query.strip("`"), answer) for _cause, query, answer in rows]


def test_each_of_the_twelve_causes_of_the_page_is_named_first(fleet: Client) -> None:
    meant = {"GPU-02": UUID["gpu-02"], "ZONE": "f3f3a5b4-4a3c-4f0a-9e2b-3f4d0c9a7e51"}
    told = []
    for query, _answer in causes():
        for name, uuid in meant.items():
            query = query.replace(name, uuid)
        sentence = closest(fleet, query)["sentences"][0]
        for name, uuid in meant.items():
            sentence = sentence.replace(uuid, name)
        told.append(sentence)
    assert told == [answer for _query, answer in causes()]
    assert len(told) == 12


def test_at_1_0_the_answer_is_what_it_was(fleet: Client) -> None:
    told = explain(fleet, QUERY, "1.0")
    assert set(told) == {"trees", "steps", "trees_left", "trees_failed", "sentences"}
    later = explain(fleet, QUERY)
    assert {key: later[key] for key in told if key != "sentences"} == {
        key: told[key] for key in told if key != "sentences"
    }
    assert later["sentences"][-len(told["sentences"]) :] == told["sentences"]


def test_what_has_candidates_needs_no_change(fleet: Client) -> None:
    told = closest(fleet, "resources=VCPU:1")
    assert (told["closest"], told["short"], told["complete"]) == ([], [], True)
    assert told["sentences"][0] == "4 of 4 trees have candidates."


def test_the_client_reads_what_the_server_answers(fleet: Client) -> None:
    connection = Connection(InProcessTransport(fleet.application), use_extensions=True)
    explanation = Candidates(connection).explain(parse_qsl(QUERY))
    told = closest(fleet, QUERY)
    assert explanation == told


def test_the_limit_is_that_of_the_sets_of_changes(fleet: Client) -> None:
    assert len(closest(fleet, QUERY)["closest"]) == 2
    (first,) = closest(fleet, f"{QUERY}&limit=1")["closest"]
    assert first == closest(fleet, QUERY)["closest"][0]


def test_two_changes_are_named_where_one_is_not_enough(fleet: Client) -> None:
    told = closest(fleet, "resources=VCPU:65,MEMORY_MB:300000")
    (only,) = told["closest"]
    assert only == {
        "changes": [
            {"group": "", "resource_class": "VCPU", "from": 65, "to": 64},
            {"group": "", "resource_class": "MEMORY_MB", "from": 300000, "to": 262144},
        ],
        "trees": 1,
        "example": UUID["compute-01"],
    }
    assert told["sentences"][0] == (
        "1 tree would fit with VCPU:64 instead of 65 and with MEMORY_MB:262144 instead of 300000: "
        "compute-01."
    )


def test_it_is_said_when_two_changes_are_not_enough(fleet: Client) -> None:
    query = "resources=VCPU:65,MEMORY_MB:300000&resources_GPU=VGPU:5&group_policy=none"
    told = closest(fleet, query)
    assert (told["closest"], told["complete"]) == ([], True)
    assert "one or two changes" in told["sentences"][0]


def test_consumers_are_counted_and_not_what_they_hold(fleet: Client) -> None:
    hold(fleet, guest("compute-01", 0), {"compute-01": {"VCPU": 60}})
    told = closest(fleet, "resources=VCPU:60&in_tree=" + UUID["compute-01"])
    (short,) = told["short"]
    assert short == {
        "group": "",
        "provider": UUID["compute-01"],
        "name": "compute-01",
        "resource_class": "VCPU",
        "asked": 60,
        "free": 4,
        "capacity": 64,
        "held_by": 1,
    }
    assert (
        "compute-01 has 4 of 64 VCPU free, 1 consumer holds some; 60 asked for."
        in (told["sentences"])
    )


@pytest.mark.parametrize(
    ("units", "asked", "field", "sentence"),
    [
        ({"max_unit": 4}, 6, "max_unit", "gives at most 4 VCPU at a time (max_unit)"),
        ({"min_unit": 2}, 1, "min_unit", "gives at least 2 VCPU at a time (min_unit)"),
        ({"step_size": 2}, 3, "step_size", "gives VCPU in multiples of 2 (step_size)"),
    ],
)
def test_a_unit_that_is_in_the_way_is_shown(
    fleet: Client, units: dict[str, int], asked: int, field: str, sentence: str
) -> None:
    fleet.inventory(path_of("compute-01"), VCPU={"total": 64, **units})
    told = closest(fleet, f"resources=VCPU:{asked}&in_tree={UUID['compute-01']}")
    (short,) = told["short"]
    assert short[field] == units[field]
    assert short["free"] == 64
    assert any(f"compute-01 {sentence}; {asked} asked for." in line for line in told["sentences"])


def test_past_the_deadline_it_is_said_that_not_all_changes_were_tried(make_api: MakeApi) -> None:
    """Fourteen groups and thirteen GPUs, each with room for any one group and for no two.

    No GPU has the trait, so the query fails at once; without it the groups are tried in every
    order, which nobody waits for.
    """
    api = make_api(placement_server__search_deadline=0.2)
    host = api.provider("host").rpartition("/")[2]
    for number in range(13):
        gpu = api.provider(f"gpu{number}", parent_provider_uuid=host)
        api.inventory(gpu, VGPU=70 + number)
    assert api.put("/traits/CUSTOM_NOWHERE").status == 201
    groups = "&".join(f"resources_{number}=VGPU:{50 + number}" for number in range(1, 15))
    told = closest(api, f"{groups}&required_1=CUSTOM_NOWHERE&group_policy=none")
    assert told["complete"] is False
    assert any("Not every change was tried" in line for line in told["sentences"])
