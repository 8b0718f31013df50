"""Entries of `[pci]alias` and `[pci]device_spec` are read, matched and refused as nova does.

`NOVA_EXAMPLES` says how many are drawn.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from compute_agent.discovery.facts import PciAddress, PciDevice
from compute_agent.errors import InvalidConfiguration
from compute_agent.request.pci_aliases import pci_aliases, read_aliases
from compute_agent.virt.layout.device_spec import parse_device_specs
from tests.differential.nova.nova_process import SETTINGS, Nova

Entry = dict[str, Any]

_IDS: Final = ("8086", "10de", "808A", "0x8086", " 8086 ", "*", "808", "80866", "zz", 8086, None)
_YES_OR_NO: Final = ("true", "no", "T", "x", True, None)
_SHARED: Final[Mapping[str, tuple[Any, ...]]] = {
    "vendor_id": _IDS,
    "product_id": ("1572", *_IDS),
    "resource_class": ("gold", "", "b c", None),
    "traits": ("a, b", "", ["a"]),
    "live_migratable": _YES_OR_NO,
    "nothing": ("x",),
}
ALIAS: Final[Mapping[str, tuple[Any, ...]]] = {
    **_SHARED,
    "name": ("a", "a", "b", "", None),
    "device_type": ("type-PCI", "type-PF", "type-VF", "type-VDPA", "type-X", "", None),
    "numa_policy": ("legacy", "required", "preferred", "socket", "near", None),
    "capability_type": ("pci", "x"),
}
SPEC: Final[Mapping[str, tuple[Any, ...]]] = {
    **_SHARED,
    "address": (
        *("0000:81:00.0", "81:00.0", "00.0", "*:81:*", "*", "", "0000:81:00", "0:81:0.0", ":81:."),
        *("0000:81:00.8", "0000:81:20.0", "0000:100:00.0", "0000-81-00-0", "0000:8?:00.0", None),
        *({"bus": "8"}, {"bus": "81", "function": "[0-1]"}, {"bus": "(0"}, {"buss": "8"}),
        *({"bus": "100"}, {"bus": 81}, "0000:81:00.0.0", "1:0000:81:00.0"),
    ),
    "physical_network": ("p", "", None),
    "trusted": _YES_OR_NO,
    "managed": _YES_OR_NO,
    "one_time_use": _YES_OR_NO,
}
DEVICES: Final = (
    ("0000:81:00.0", "8086", "1572"),
    ("0000:81:00.1", "8086", "1572"),
    ("0000:05:1f.7", "10de", "1eb8"),
    ("0001:81:00.0", "808a", "8086"),
)


def entries(vocabulary: Mapping[str, tuple[Any, ...]], most: int) -> st.SearchStrategy[Entry]:
    pairs = [(name, value) for name, values in vocabulary.items() for value in values]
    return st.lists(st.sampled_from(pairs), min_size=1, max_size=most).map(dict)


Rule = Callable[[Entry], bool]
OURS_TAKES: Final[Mapping[str, Rule]] = {
    "vDPA functions": lambda entry: entry.get("device_type") == "type-VDPA",
    "an empty type as none": lambda entry: entry.get("device_type") == "",
    "JSON's true as well as yes": lambda entry: entry.get("live_migratable") is True,
    "null as absent": lambda entry: None in entry.values(),
    "a list of traits": lambda entry: isinstance(entry.get("traits"), list),
    "patterns within a part of an address": lambda entry: "?" in str(entry.get("address")),
}
"""Entries that nova refuses and we do not."""
OURS_REFUSES: Final[Mapping[str, Rule]] = {
    "ids that no device has": lambda entry: "808" in (entry.get("vendor_id"), entry["product_id"]),
    "parts that no address has": lambda entry: "buss" in (entry.get("address") or ()),
    "neither yes nor no": lambda entry: entry.get("trusted") == "x",
}
"""Entries that nova takes, and that match nothing or mean nothing; we refuse them by name."""


def is_listed(rules: Mapping[str, Rule], drawn: list[Entry]) -> bool:
    return any(rule({"product_id": None, **entry}) for entry in drawn for rule in rules.values())


def refusal(read: Callable[[list[str]], object], texts: list[str]) -> str:
    """Return why entries are refused; "" where they are not."""
    try:
        read(texts)
    except InvalidConfiguration as error:
        return str(error)
    return ""


@SETTINGS
@given(drawn=st.lists(entries(ALIAS, 6), min_size=1, max_size=2), in_placement=st.booleans())
def test_an_alias_that_cannot_be_is_refused(
    nova: Nova, drawn: list[Entry], in_placement: bool
) -> None:
    drawn = [{"name": "a", "vendor_id": "8086", "product_id": "1572", **entry} for entry in drawn]
    usable = {"name": "usable", "vendor_id": "8086", "product_id": "1572"}
    texts = [json.dumps(entry) for entry in (*drawn, usable)]
    theirs = nova("alias", entries=texts, in_placement=in_placement)
    reason, own = (
        theirs.get("refused", ""),
        refusal(pci_aliases if in_placement else read_aliases, texts),
    )
    assert reason or not own, own
    # nova looks up the type of alternatives, and finds none where they have none
    without_type = "'dev_type'" in reason
    # nova needs ids unless placement is asked; a class is enough here
    without_ids = "does not have vendor_id" in reason and not in_placement
    assert own or not reason or is_listed(OURS_TAKES, drawn) or without_type or without_ids, reason


@SETTINGS
@given(entry=entries(SPEC, 4), report=st.booleans())
def test_a_device_spec_matches_the_devices_that_it_matches_in_nova(
    nova: Nova, entry: Entry, report: bool
) -> None:
    text = json.dumps(entry)
    facts = [
        {"address": address, "vendor_id": vendor, "product_id": product}
        for address, vendor, product in DEVICES
    ]
    theirs = nova("device_spec", entry=text, devices=facts, report=report)
    if own := refusal(partial(parse_device_specs, report=report), [text]):
        assert "refused" in theirs or is_listed(OURS_REFUSES, [entry]), (theirs, own)
        return
    if "refused" in theirs:
        assert is_listed(OURS_TAKES, [entry]), theirs
        return
    (spec,) = parse_device_specs([text], report=report)
    devices = [PciDevice(PciAddress(a), v, p, "020000") for a, v, p in DEVICES]
    assert [spec.matches(device) for device in devices] == theirs["matches"]
