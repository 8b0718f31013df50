"""Hostile and broken input: the documented error, and nothing in the store has changed."""

import io
import json
import time
from typing import Any

import pytest

from placement_server.negotiation import extensions
from tests.fixtures.allocations import claim_body

from .conftest import MakeApi
from .wsgi_client import Answer, Client

UUID = "4e8e5957-649f-477b-9e5b-f1f75b21c03c"
RP = f"/resource_providers/{UUID}"
CONSUMER = "aaaaaaaa-0000-4000-8000-0000000000cc"
TEN_MEGABYTES = 10_000_000


@pytest.fixture
def stocked(make_api: MakeApi) -> Client:
    """A server with one provider that has 8 VCPU, and that reads bodies of 20 MB."""
    api = make_api(placement_server__max_body_size=20_000_000)
    api.provider("host", uuid=UUID)
    api.inventory(RP, VCPU=8)
    return api


def everything(api: Client) -> list[Any]:
    paths = [
        *("/resource_providers", "/resource_classes", "/traits"),
        *(f"{RP}/{rest}" for rest in ("inventories", "usages", "traits", "aggregates")),
        *(f"{RP}/allocations", f"/allocations/{CONSUMER}"),
    ]
    return [api.get(path).json for path in paths]


WRITES = [
    ("POST", "/resource_providers"),
    ("PUT", RP),
    ("POST", f"{RP}/inventories"),
    ("PUT", f"{RP}/inventories"),
    ("PUT", f"{RP}/inventories/VCPU"),
    ("PUT", f"{RP}/aggregates"),
    ("PUT", f"{RP}/traits"),
    ("POST", "/resource_classes"),
    ("PUT", f"/allocations/{CONSUMER}"),
    ("POST", "/allocations"),
    ("POST", "/reshaper"),
]

BODIES = {
    "10 MB string": b'"' + b"x" * TEN_MEGABYTES + b'"',
    "10 MB name": b'{"name": "' + b"x" * TEN_MEGABYTES + b'"}',
    "10 MB of numbers": b"[" + b"0," * (TEN_MEGABYTES // 2) + b"0]",
    "10 MB of objects": b'{"allocations": [' + b'{"a":1},' * (TEN_MEGABYTES // 8) + b"1]}",
    "10 MB of brackets": b"<" * TEN_MEGABYTES,
    "deep array": b"[" * 100_000,
    "deep closed array": b"[" * 900 + b"]" * 900,
    "deep object": b'{"name":' * 50_000 + b"1" + b"}" * 50_000,
    "deep within": b'{"name": ' + b"[" * 400 + b"]" * 400 + b"}",
    "NaN": b'{"name": NaN}',
    "Infinity": b'{"total": Infinity, "resource_class": "VCPU"}',
    "invalid UTF-8": b'{"name": "\xff\xfe"}',
    "UTF-16": '{"name": "x"}'.encode("utf-16"),
    "byte order mark": b'\xef\xbb\xbf{"name": "x"}',
    "nothing": b"",
    "two documents": b"{} {}",
    "a lone surrogate": rb'{"name": "a\ud800b"}',
    "a lone surrogate in a key": rb'{"\udfff": 1}',
    "U+0000": rb'{"name": "a\u0000b"}',
    "a raw surrogate": b'{"name": "\xed\xa0\x80"}',
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_a_hostile_body_is_400_on_every_write_and_changes_nothing(
    stocked: Client, body: bytes
) -> None:
    before = everything(stocked)
    # Megabytes take a second each to parse: for those, a route of each shape of body is enough.
    for method, path in WRITES if len(body) < 1_000_000 else WRITES[0:6:5] + WRITES[-2:]:
        begun = time.process_time()
        answer = stocked(method, path, raw=body)
        assert answer.status == 400, (method, path)
        assert answer.detail.startswith(("Malformed JSON: ", "JSON does not validate: "))
        assert len(answer.body) < 200_000
        assert time.process_time() - begun < 10
    assert everything(stocked) == before


class CountedBody(io.BytesIO):
    """A body that knows how much of it was read."""

    taken = 0

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        self.taken += len(data)
        return data


def test_a_body_of_10_megabytes_is_400_by_default_and_nothing_of_it_is_read(api: Client) -> None:
    api.provider("host", uuid=UUID)
    body = CountedBody(b"x" * TEN_MEGABYTES)
    length = {"CONTENT_LENGTH": str(TEN_MEGABYTES), "wsgi.input": body}
    for method, path in WRITES[0:6:5] + WRITES[-2:]:
        answer = api(method, path, raw=b"", environ=length)
        assert answer.status == 400
        assert answer.detail == "Malformed JSON: the body is longer than 8388608 bytes"
    assert body.taken == 0


def test_of_a_body_in_chunks_one_byte_more_than_the_limit_is_read(make_api: MakeApi) -> None:
    api = make_api(placement_server__max_body_size=1024)
    body = CountedBody(b"x" * 5000)
    chunked = {"CONTENT_LENGTH": "", "wsgi.input": body, "wsgi.input_terminated": True}
    answer = api("POST", "/resource_providers", raw=b"", environ=chunked)
    assert answer.status == 400
    assert answer.detail == "Malformed JSON: the body is longer than 1024 bytes"
    assert body.taken == 1025


def test_a_body_of_just_the_limit_is_read(make_api: MakeApi) -> None:
    api = make_api(placement_server__max_body_size=1024)
    body = b'{"name": "x"' + b" " * (1024 - 13) + b"}"
    assert len(body) == 1024
    assert api.post("/resource_providers", raw=body + b" ").status == 400
    assert api.post("/resource_providers", raw=body).status == 200


def test_what_is_wrong_besides_the_length_of_a_body_is_told_as_ever(make_api: MakeApi) -> None:
    api = make_api(placement_server__max_body_size=1024)
    long = b"x" * 2000
    assert api.put(RP, raw=long).status == 404
    assert api.put(RP, raw=long, content_type="text/plain").status == 415
    assert api.put(RP, raw=long, token="user").status == 403
    assert api.put(RP, raw=long, token=None).status == 401
    # Of this route the body is never looked at.
    assert api.put("/traits/CUSTOM_X", raw=long).status == 201


def test_of_duplicate_keys_the_last_counts(api: Client) -> None:
    answer = api.post("/resource_providers", raw=b'{"name": "first", "name": "second"}')
    assert answer.json["name"] == "second"


def test_a_body_shorter_than_announced_is_400(stocked: Client) -> None:
    before = everything(stocked)
    for method, path in WRITES:
        answer = stocked(method, path, raw=b'{"name": "x"}', headers={"Content-Length": "1000"})
        assert answer.status == 400
        assert answer.detail == "Malformed JSON: the body ended after 13 of 1000 bytes"
    assert everything(stocked) == before


def test_of_a_body_longer_than_announced_the_rest_is_not_read(stocked: Client) -> None:
    answer = stocked.post(
        "/resource_providers", raw=b'{"name": "x"} trailing', headers={"Content-Length": "13"}
    )
    assert answer.status == 200


def test_a_negative_length_is_an_empty_body(stocked: Client) -> None:
    answer = stocked.post("/resource_providers", {"name": "x"}, headers={"Content-Length": "-5"})
    assert answer.detail == "Malformed JSON: Expecting value: line 1 column 1 (char 0)"


def test_a_byte_order_mark_is_named(stocked: Client) -> None:
    answer = stocked.post("/resource_providers", raw=b'\xef\xbb\xbf{"name": "x"}')
    assert answer.status == 400
    assert answer.detail.startswith("Malformed JSON: Unexpected UTF-8 BOM")


LONG = "x" * 100_000


@pytest.mark.parametrize(
    ("query", "status"),
    [
        (f"/resource_providers?name={LONG}", 200),
        (f"/resource_providers?{LONG}=1", 400),
        (f"/resource_providers?member_of={LONG}", 400),
        (f"/resource_providers?required=CUSTOM_{LONG}", 400),
        (f"/resource_providers?resources=VCPU:{'1' * 100_000}", 400),
        (f"/resource_providers?resources=VCPU:{'1' * 100}", 200),
        (f"/resource_providers?required={','.join(['HW_NUMA_ROOT'] * 7000)}", 200),
        (f"/allocation_candidates?resources=VCPU:{'9' * 4000}", 200),
        (f"/allocation_candidates?resources=VCPU:1&limit={'9' * 4000}", 200),
        (f"/allocation_candidates?resources=VCPU:1&limit={'9' * 100_000}", 200),
        (f"/allocation_candidates?resources{'x' * 65}=VCPU:1", 400),
        (f"/allocation_candidates?{'&'.join(['resources=VCPU:1'] * 6000)}", 200),
        (f"/usages?project_id={LONG}", 400),
        (f"/traits?name=in:{LONG}", 200),
        (f"/traits?name={'<' * 100_000}", 400),
    ],
)
def test_a_long_query_is_answered_in_the_usual_form(
    stocked: Client, query: str, status: int
) -> None:
    begun = time.process_time()
    answer = stocked.get(query)
    assert answer.status == status
    assert json.loads(answer.body)
    assert time.process_time() - begun < 10


INJECTIONS = [
    "'; DROP TABLE resource_providers; --",
    '" OR 1=1 --',
    "%' OR '1'='1",
    "100%_[a-z]",
    "\\'; --",
    "\N{SNOWMAN}\U0001f4a9",
    "a\tb\nc",
]


@pytest.mark.parametrize("name", INJECTIONS)
def test_sql_in_names_is_just_a_name(api: Client, name: str) -> None:
    from urllib.parse import quote

    provider = api.provider(name)
    assert api.get(provider).json["name"] == name
    quoted = quote(name, safe="")
    assert len(api.get(f"/resource_providers?name={quoted}").json["resource_providers"]) == 1
    other = quote(name + "x", safe="")
    assert api.get(f"/resource_providers?name={other}").json["resource_providers"] == []
    assert api.get(f"/traits?name=in:{quoted}").json == {"traits": []}
    assert api.get(f"/traits?name=startswith:{quoted}").json == {"traits": []}
    for path in (f"/traits/{quoted}", f"/resource_classes/{quoted}"):
        assert api.get(path).status == 404
        assert api.put(path).status == 400
        assert api.delete(path).status == 404
    assert api.get(f"/resource_providers/{quoted}").status == 404
    assert api.get(f"/allocations/{quoted}").json == {"allocations": {}}
    assert api.get(f"/usages?project_id={quoted}").json == {"usages": {}}


def test_a_nul_in_a_path_or_a_query_finds_nothing(stocked: Client) -> None:
    assert stocked.get("/resource_providers/%00").status == 404
    assert stocked.get("/traits/a%00").status == 404
    assert stocked.get("/allocations/%00").json == {"allocations": {}}
    assert stocked.get("/resource_providers?name=%00").json == {"resource_providers": []}
    assert stocked.get("/usages?project_id=%00").json == {"usages": {}}
    assert stocked.get("/traits?name=in:%00").json == {"traits": []}


def claim(stocked: Client, **more: Any) -> Answer:
    return stocked.put(f"/allocations/{CONSUMER}", claim_body({UUID: {"VCPU": 1}}, **more))


@pytest.mark.parametrize("field", ["total", "reserved", "step_size"])
@pytest.mark.parametrize("number", [10**400, -(10**400)], ids=["huge", "minus huge"])
def test_numbers_without_measure_under_a_name_that_no_class_has_are_400(
    stocked: Client, field: str, number: int
) -> None:
    stock = {
        "inventories": {"no class": {"total": 1, field: number}},
        "resource_provider_generation": 1,
    }
    assert stocked.put(f"{RP}/inventories", stock).status == 400
    assert (
        stocked.post("/reshaper", {"inventories": {UUID: stock}, "allocations": {}}).status == 400
    )


@pytest.mark.parametrize("number", [2**31, 2**63, 2**64, 10**30, -(2**31) - 1, -(10**30)])
def test_integers_out_of_range_are_refused_and_change_nothing(stocked: Client, number: int) -> None:
    before = everything(stocked)
    stock: dict[str, Any] = {
        "inventories": {"VCPU": {"total": 1}},
        "resource_provider_generation": number,
    }
    reshape = {"inventories": {UUID: stock}, "allocations": {}}
    refused = [
        stocked.put(f"{RP}/inventories", stock),
        stocked.put(
            f"{RP}/inventories/VCPU",
            {**stock["inventories"]["VCPU"], "resource_provider_generation": number},
        ),
        stocked.put(f"{RP}/traits", {"traits": [], "resource_provider_generation": number}),
        stocked.put(f"{RP}/aggregates", {"aggregates": [], "resource_provider_generation": number}),
        stocked.post("/reshaper", reshape),
        claim(stocked, generation=number),
        stocked.post("/allocations", {CONSUMER: claim_body({UUID: {"VCPU": 1}}, number)}),
    ]
    assert [answer.status for answer in refused] == [409] * len(refused)
    amount = stocked.put(f"/allocations/{CONSUMER}", claim_body({UUID: {"VCPU": number}}))
    assert amount.status == (409 if number > 0 else 400)
    for field in ("total", "reserved", "min_unit", "max_unit", "step_size"):
        record = {"total": 1, field: number}
        sent = {"inventories": {"VCPU": record}, "resource_provider_generation": 1}
        assert stocked.put(f"{RP}/inventories", sent).status == 400
    assert everything(stocked) == before


@pytest.mark.parametrize("ratio", ["1e400", "-1e400", "3.5e38", "-3.5e38", "NaN", "-Infinity"])
def test_a_ratio_beyond_single_precision_is_refused(stocked: Client, ratio: str) -> None:
    before = everything(stocked)
    record = f'{{"total": 8, "reserved": 8, "allocation_ratio": {ratio}}}'
    generation = '"resource_provider_generation": 1'
    bulk = f'{{"inventories": {{"VCPU": {record}}}, {generation}}}'
    for method, path, body in (
        ("PUT", f"{RP}/inventories", bulk),
        ("PUT", f"{RP}/inventories/VCPU", record.replace("{", f"{{{generation}, ")),
        ("POST", f"{RP}/inventories", record.replace("{", '{"resource_class": "DISK_GB", ')),
        ("POST", "/reshaper", f'{{"inventories": {{"{UUID}": {bulk}}}, "allocations": {{}}}}'),
    ):
        answer = stocked(method, path, raw=body.encode())
        assert answer.status == 400
        assert answer.detail.startswith(("Malformed JSON: ", "JSON does not validate: "))
    assert everything(stocked) == before


@pytest.mark.parametrize("ratio", [1e-45, 1e-300, 5e-324, 3.4e38])
def test_extreme_ratios_are_stored(stocked: Client, ratio: float) -> None:
    record = {"total": 2147483647, "allocation_ratio": ratio}
    sent = {"inventories": {"VCPU": record}, "resource_provider_generation": 1}
    assert stocked.put(f"{RP}/inventories", sent).status == 200
    assert stocked.get(f"{RP}/inventories").status == 200
    assert stocked.get("/allocation_candidates?resources=VCPU:1").status == 200
    assert claim(stocked).status in (204, 409)


def test_keys_with_a_line_break_at_their_end_are_no_uuids(stocked: Client) -> None:
    body = {f"{CONSUMER}\n": claim_body({UUID: {"VCPU": 1}})}
    assert stocked.post("/allocations", body).status == 400
    body = {CONSUMER: {**claim_body({}), "allocations": {f"{UUID}\n": {"resources": {"VCPU": 1}}}}}
    assert stocked.post("/allocations", body).status == 400
    body = {CONSUMER: claim_body({UUID: {"VCPU\n": 1}})}
    assert stocked.post("/allocations", body).status == 400


def test_long_identities_are_refused(stocked: Client) -> None:
    for field in ("project_id", "user_id", "consumer_type"):
        assert claim(stocked, **{field: "X" * 256}).status == 400
        assert claim(stocked, **{field: ""}).status == 400
    assert stocked.post("/resource_providers", {"name": "x" * 201}).status == 400
    widest = "\N{SNOWMAN}" * 200
    assert stocked.post("/resource_providers", {"name": widest}).json["name"] == widest


@pytest.mark.parametrize(
    "headers",
    [
        {"Accept": "," * 10_000},
        {"Accept": ";;;q=x"},
        {"Accept": "a" * 50_000},
        {"OpenStack-API-Version": "," * 50_000},
        {"OpenStack-API-Version": "placement " + "9" * 5000 + ".1"},
        {"OpenStack-API-Version": f"{extensions.SERVICE_TYPE} 1." + "9" * 5000},
        {"X-Roles": "," * 50_000},
        {"Content-Type": "\xff"},
        {"X-Auth-Token": ":" * 1000},
        {"X-Openstack-Request-Id": "req-" + "x" * 10_000},
    ],
)
def test_odd_headers_never_make_a_500(stocked: Client, headers: dict[str, str]) -> None:
    for method in ("GET", "POST"):
        answer = stocked(method, "/resource_providers", headers=headers)
        assert answer.status < 500
