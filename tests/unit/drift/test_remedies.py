"""Consumers that the agent of one root may take for gone, and suspects to ask nobody about."""

import pytest

from compute_agent.drift.healing.remedies import judgement_from
from compute_agent.drift.instances.instance import Listing
from compute_agent.drift.orphans import Verdict, judge_alone
from compute_agent.placement.consumers import Consumer
from compute_agent.placement.provider_directory import ListedProvider, ProviderDirectory

ROOTS = ("mine", "other", "pool")
DIRECTORY = ProviderDirectory(
    {uuid: ListedProvider(uuid, f"name of {uuid}", uuid) for uuid in ROOTS},
    sharing=frozenset({"pool"}),
    hosts=frozenset({"mine", "other"}),
)
ALL = Listing(frozenset(), complete=True, knows_migrations=True)
HEARD = Listing(frozenset(), roots={"a": frozenset({"mine"}), "b": frozenset({"other"})})
ALONE = Listing(frozenset(), roots={"a": frozenset({"mine"})}, silent=frozenset({"other"}))


def consumer(*providers, kind="INSTANCE", age=1000.0, uuid="c"):
    return Consumer(uuid, kind, {provider: {"VCPU": 1} for provider in providers}, age, {})


@pytest.mark.parametrize(
    ("providers", "listing", "verdict"),
    [
        (["mine"], ALL, Verdict.ORPHAN),
        (["mine", "pool"], ALL, Verdict.ORPHAN),
        (["mine", "other"], ALL, Verdict.UNKNOWN),
        (["mine"], HEARD, Verdict.ORPHAN),
        (["mine", "other"], HEARD, Verdict.ORPHAN),
        (["mine"], ALONE, Verdict.ORPHAN),
        (["mine", "other"], ALONE, Verdict.UNKNOWN),
        (["mine"], Listing(frozenset()), Verdict.UNKNOWN),
        (["mine"], Listing(frozenset({"c"}), complete=True), Verdict.EXISTS),
    ],
)
def test_what_is_on_a_tree_whose_agent_is_silent_is_never_gone(providers, listing, verdict):
    found = judgement_from("mine", consumer(*providers), listing, DIRECTORY, 300.0)
    assert found.verdict is verdict


def test_a_host_that_others_call_down_judges_what_is_on_it_all_the_same():
    down = Listing(frozenset(), complete=True, silent=frozenset({"mine"}))
    assert judgement_from("mine", consumer("mine"), down, DIRECTORY, 0.0).verdict is Verdict.ORPHAN


@pytest.mark.parametrize(
    "suspect",
    [
        consumer("mine", age=299.0),
        consumer("mine", age=None),
        consumer("mine", kind="VOLUME"),
        consumer("mine", kind="MIGRATION"),
        consumer("mine", kind=None),
    ],
)
def test_nobody_is_asked_about_what_could_not_be_judged(suspect):
    assert judge_alone(suspect, 300.0, knows_migrations=False) is not None
