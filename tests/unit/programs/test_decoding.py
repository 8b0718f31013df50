"""Documents that do not fit their types: the error names place, value and expectation."""

from __future__ import annotations

import json
import subprocess
import sys
from enum import StrEnum
from typing import Annotated, Any, Literal, TypedDict

import pytest
from msgspec import Raw, Struct, field

from compute_agent.programs.decoding import Count, Misfit, Number, Whole, convert, decode, matching


class Record(Struct):
    total: Whole

    def __post_init__(self) -> None:
        if self.total == 7:
            raise ValueError("seven is reserved")


class Level(StrEnum):
    LOW = "low"
    HIGH = "high"


class ColdStep(Struct, tag="cold", tag_field="op"):
    level: Level


class LiveStep(Struct, tag="live", tag_field="op"):
    speed: int = 1


class Entry(TypedDict):
    level: Level


class Document(Struct, forbid_unknown_fields=True):
    amount: Whole = 0
    count: Count = 0
    ratios: dict[Annotated[str, matching("CUSTOM_.*", "a custom name")], Number] = {}
    lists: dict[str, list[int]] = {}
    records: dict[str, dict[str, Record]] = {}
    word: Literal["cold", "live"] = "cold"
    words: list[dict[Literal["a", "c"], Level]] = []
    pair: tuple[str, str] = ("", "")
    pairs: tuple[tuple[Literal["a", "c"], int], ...] = ()
    steps: list[LiveStep | ColdStep] = []
    entries: list[Entry] = []
    parent: str | None = None
    wrapped: Record | None = field(default=None, name="data.of.it")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("[1]", "it is [1], not an object"),
        ('{"amount": null}', "amount is null, not a whole number"),
        ('{"amount": true}', "amount is true, not a whole number"),
        ('{"amount": 1e99}', "amount is 1e+99, not a whole number"),
        ('{"count": -1}', "count is -1, not a whole number >= 0"),
        ('{"count": 1e999}', "count is Infinity, not a whole number"),
        ('{"ratios": {"CUSTOM_A": 1, "B": 1}}', 'ratios: the key is "B", not a custom name'),
        ('{"ratios": {"CUSTOM_A": 1e999}}', "ratios.CUSTOM_A is Infinity, not a number <= "),
        ('{"ratios": {"CUSTOM_A": NaN}}', "ratios.CUSTOM_A is NaN, not a number >= "),
        ('{"lists": {"a": [], "b": [1, "x"]}}', 'lists.b[1] is "x", not a whole number'),
        ('{"records": {"b": {"c": {"total": 1}, "d": {}}}}', "records.b.d.total is missing"),
        ('{"records": {"a b": {"c": {"total": 7}}}}', 'records["a b"].c is {"total": 7}: seven is'),
        ('{"word": "warm"}', 'word is "warm", not one of cold, live'),
        ('{"words": [{"a": "low"}, {"a": "warm"}]}', 'words[1].a is "warm", not one of low, high'),
        ('{"words": [{"b": "low"}]}', 'words[0]: the key is "b", not one of a, c'),
        ('{"pairs": [["a", 1], ["b", 1]]}', 'pairs[1][0] is "b", not one of a, c'),
        ('{"steps": [{"op": "cold", "level": 1}]}', "steps[0].level is 1, not text"),
        ('{"steps": [{"op": "cold", "level": "a"}]}', 'steps[0].level is "a", not one of low, h'),
        ('{"entries": [{"level": "a"}]}', 'entries[0].level is "a", not one of low, high'),
        ('{"pair": ["a"]}', 'pair is ["a"], not a list of length 2'),
        ('{"parent": 1}', "parent is 1, not text or null"),
        ('{"data.of.it": {"total": "1"}}', 'data.of.it.total is "1", not a whole number'),
        ('{"other": 1}', "other is not known"),
        ('{"a - at `$.b": 1}', "Object contains unknown field `a - at `$.b`"),
        (f'{{"parent": ["{"x" * 100}"]}}', f'parent is ["{"x" * 58}..., not text or null'),
    ],
)
def test_the_first_place_that_does_not_fit_is_named_with_its_value(
    content: str, sentence: str
) -> None:
    with pytest.raises(Misfit) as caught:
        decode(content.encode(), Document)
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        ({1: 2}, "it: the key is 1, not text"),
        ({"lists": {1: [2]}}, "lists: the key is 1, not text"),
        ({"amount": object}, "amount is \"<class 'object'>\", not a whole number"),
    ],
)
def test_values_that_json_lacks_are_named(document: Any, sentence: str) -> None:
    with pytest.raises(Misfit) as caught:
        convert(document, Document)
    assert str(caught.value) == sentence


def test_half_a_character_is_a_misfit() -> None:
    with pytest.raises(Misfit, match="it has half a character"):
        decode(rb'{"parent": "\ud800"}', Document)


@pytest.mark.parametrize(
    "content",
    [
        '{"amount": 1}'.encode("utf-8-sig"),
        '{"amount": 1}'.encode("utf-16"),
        b'{"amount": "earlier", "amount": 1}',
    ],
)
def test_all_that_python_reads_as_json_is_read(content: bytes) -> None:
    assert decode(content, Document) == Document(1)


class Kept(Struct):
    part: Raw
    amounts: dict[str, dict[str, Whole]]


def test_a_place_beside_parts_that_stay_json_is_named_among_many() -> None:
    amounts = {f"p{number}": {"VCPU": number} for number in range(1000)}
    wrong = json.dumps({"part": [1], "amounts": amounts | {"p700": {"VCPU": None}}})
    with pytest.raises(Misfit, match=r"^amounts\.p700\.VCPU is null, not a whole number$"):
        decode(wrong.encode(), Kept)


RACE = """
import sys, threading
from typing import TypedDict
from msgspec import Struct
from compute_agent.programs.decoding import convert, decode
sys.setswitchinterval(1e-6)
for number in range(60):
    inner = type("Inner", (Struct,), {"__annotations__": {"a": int}})
    kind = TypedDict("Kind", {f"key{place}": inner for place in range(30)})
    document = {key: {"a": 1} for key in kind.__annotations__}
    content = repr(document).replace("'", '"').encode()
    start = threading.Barrier(4)
    def read(read_one, given):
        start.wait()
        read_one(given, kind)
    calls = [(decode, content), (convert, document)] * 2
    threads = [threading.Thread(target=read, args=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


def test_threads_that_decode_a_type_for_the_first_time_at_once_all_get_it() -> None:
    assert subprocess.run([sys.executable, "-c", RACE], check=False).returncode == 0
