"""Consumers that are taken for gone."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from compute_agent.drift.instances.instance import Listing
from compute_agent.drift.orphans import Verdict, delete, judge
from compute_agent.placement.consumers import Consumer
from compute_agent.placement.provider_directory import ListedProvider, ProviderDirectory

HOSTS = ("h1", "h2", "h3")
DIRECTORY = ProviderDirectory(
    providers={
        **{host: ListedProvider(host, host.upper(), host) for host in HOSTS},
        "h1-gpu": ListedProvider("h1-gpu", "H1-GPU", "h1"),
        "pool": ListedProvider("pool", "POOL", "pool"),
        "foreign": ListedProvider("foreign", "FOREIGN", "foreign"),
    },
    sharing=frozenset({"pool"}),
    hosts=frozenset(HOSTS),
)


def consumer(*providers: str, kind: str | None = "INSTANCE", age: float | None = 7200) -> Consumer:
    return Consumer("c", kind, {provider: {"VCPU": 1} for provider in providers}, age, {})


def agents(*answering: str, known: frozenset[str] = frozenset()) -> Listing:
    """What agents tell: each answers for the root of its own name."""
    roots = set(DIRECTORY.hosts | {"foreign"})
    return Listing(
        known,
        by_host={host: frozenset() for host in answering},
        roots={host: frozenset({host}) for host in answering},
        silent=frozenset(roots - set(answering)),
    )


FILE = Listing(frozenset({"other"}), complete=True, knows_migrations=True)
ALL = (*HOSTS, "foreign")


@pytest.mark.parametrize(
    ("what", "listing", "verdict"),
    [
        (consumer("h1"), FILE, Verdict.ORPHAN),
        (consumer("h1", kind="MIGRATION"), FILE, Verdict.ORPHAN),
        (consumer("h1", kind=None), FILE, Verdict.ORPHAN),
        (consumer("h1", kind="VOLUME"), FILE, Verdict.OTHER),
        (consumer("h1", age=3599), FILE, Verdict.YOUNG),
        (consumer("h1", age=3600), FILE, Verdict.ORPHAN),
        (consumer("h1", age=-5), FILE, Verdict.YOUNG),
        (consumer("h1", age=None), FILE, Verdict.UNKNOWN),
        (consumer("h1", age=1), agents("h1", known=frozenset({"c"})), Verdict.EXISTS),
        (consumer("h1"), agents("h1"), Verdict.ORPHAN),
        (consumer("h1-gpu"), agents("h1"), Verdict.ORPHAN),
        (consumer("h1-gpu"), agents("h2", "h3"), Verdict.UNKNOWN),
        (consumer("h1", "h2"), agents("h1"), Verdict.UNKNOWN),
        (consumer("h1", "pool"), agents("h1"), Verdict.ORPHAN),
        (consumer("pool"), agents(*ALL), Verdict.ORPHAN),
        (consumer("pool"), agents("h1", "h2"), Verdict.UNKNOWN),
        (consumer("pool"), agents(), Verdict.UNKNOWN),
        (consumer("pool"), Listing(frozenset()), Verdict.UNKNOWN),
        (consumer("foreign"), agents(*HOSTS), Verdict.UNKNOWN),
        (consumer("never listed"), agents(*ALL), Verdict.UNKNOWN),
        (consumer("h1", kind="MIGRATION"), agents(*ALL), Verdict.UNKNOWN),
    ],
)
def test_a_consumer_is_judged_by_who_answers_for_what_it_holds(
    what: Consumer, listing: Listing, verdict: Verdict
) -> None:
    assert judge(what, listing, DIRECTORY, 3600).verdict is verdict


def test_hosts_without_an_agent_and_those_that_do_not_list_instances_are_named() -> None:
    listing = replace(agents("h1"), untold={"h3": "it is ill"})
    judgement = judge(consumer(*HOSTS), listing, DIRECTORY, 3600)
    assert judgement.reason == (
        "no agent answers for H2; the agent of H3 does not list what runs there: it is ill"
    )


@given(
    held=st.sets(st.sampled_from(sorted(DIRECTORY.providers)), min_size=1),
    answering=st.sets(st.sampled_from(ALL)),
    kind=st.sampled_from(["INSTANCE", "MIGRATION", None, "VOLUME"]),
    age=st.none() | st.floats(-10, 10000),
)
def test_nothing_on_a_silent_host_is_ever_an_orphan(
    held: set[str], answering: set[str], kind: str | None, age: float | None
) -> None:
    verdict = judge(consumer(*held, kind=kind, age=age), agents(*answering), DIRECTORY, 3600)
    silent = {DIRECTORY.root(holding) for holding in held if holding != "pool"} - answering
    if silent or not answering:
        assert verdict.verdict is not Verdict.ORPHAN


@pytest.mark.parametrize(
    ("kind", "listing", "certain"),
    [("INSTANCE", agents("h1"), True), (None, agents("h1"), False), (None, FILE, True)],
)
def test_without_a_type_only_who_knows_migrations_is_certain(
    kind: str | None, listing: Listing, certain: bool
) -> None:
    deleted: list[Consumer] = []
    orphan = consumer("h1", kind=kind)
    reason = delete(SimpleNamespace(delete=deleted.append), orphan, listing)  # type: ignore[arg-type]
    assert (deleted, reason == "") == (([orphan], True) if certain else ([], False))


def test_a_sharing_provider_in_a_hosts_tree_belongs_to_that_host() -> None:
    providers: Mapping[str, Any] = {
        **DIRECTORY.providers,
        "h1-pool": ListedProvider("h1-pool", "H1-POOL", "h1"),
    }
    directory = ProviderDirectory(providers, frozenset({"h1-pool"}), DIRECTORY.hosts)
    assert judge(consumer("h1-pool"), agents("h2", "h3"), directory, 0).verdict is Verdict.UNKNOWN
