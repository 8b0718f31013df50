"""Documents of libvirt with damages: each is read, or refused as malformed."""

from __future__ import annotations

from contextlib import suppress

import hypothesis
import hypothesis.strategies as st

from compute_agent.discovery.errors import DiscoveryError
from compute_agent.discovery.libvirt import guest_abilities, source
from tests.fixtures.libvirt_documents import (
    LXC_CAPABILITIES,
    Q35_DOMAIN_CAPABILITIES,
    SEV_DOMAIN_CAPABILITIES,
    X86_CAPABILITIES,
)

FRAGMENTS = st.one_of(
    st.text(max_size=5),
    st.sampled_from(["<cell/>", "<cpu/>", "<feature/>", "<enum name='bus'/>", "</host>", "&#0;"]),
    st.integers().map(str),
)


@st.composite
def damaged(draw: st.DrawFn, documents: list[str]) -> str:
    """Return a document of which some stretches were replaced."""
    text = draw(st.sampled_from(documents))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        length = draw(st.integers(0, 40))
        text = text[:start] + draw(FRAGMENTS) + text[start + length :]
    return text


@hypothesis.given(text=damaged([X86_CAPABILITIES, LXC_CAPABILITIES]))
def test_damaged_capabilities_are_read_or_refused(text: str) -> None:
    with suppress(DiscoveryError):
        facts = source.parse_capabilities(text)
        assert len({cpu.id for cpu in facts.cpus}) == sum(len(cell.cpus) for cell in facts.cells)
        assert [cell.id for cell in facts.cells] == sorted({cell.id for cell in facts.cells})


@hypothesis.given(text=damaged([Q35_DOMAIN_CAPABILITIES, SEV_DOMAIN_CAPABILITIES]))
def test_damaged_domain_capabilities_are_read_or_refused(text: str) -> None:
    with suppress(DiscoveryError):
        facts = guest_abilities.parse_domain_capabilities(text)
        assert facts.sev_guests is None or facts.sev_guests >= 0
