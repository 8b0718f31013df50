"""A description of a domain, however damaged, is understood or refused: it never ends a pass."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from compute_agent.discovery.errors import FactMalformed
from compute_agent.discovery.libvirt.domain import parse
from compute_agent.virt.libvirt.holdings import holdings
from tests.unit.discovery.libvirt.domain_xml import (
    GUEST_ADDRESS,
    NOVA_PINNED,
    domain_xml,
    source_address,
)

WHOLE = domain_xml(
    *NOVA_PINNED,
    devices=f"<hostdev type='pci'>{source_address(0x82, 0x10, 3)}{GUEST_ADDRESS}</hostdev>"
    "<hostdev type='mdev'><source><address uuid='3627463d-b7f0-4fea-b468-f1da537d301b'/></source>"
    "</hostdev>",
    id=1,
)


@given(
    start=st.integers(0, len(WHOLE)),
    length=st.integers(0, 60),
    put=st.text("0123456789-x^,'<>/= abcMK\x00é", max_size=12),
)
def test_a_damaged_description_is_understood_or_refused(start: int, length: int, put: str) -> None:
    damaged = WHOLE[:start] + put + WHOLE[start + length :]
    try:
        guest = parse(damaged)
    except FactMalformed:
        return
    holdings(guest, online=range(16))
