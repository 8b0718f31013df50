"""Identity of a node: files that agree or do not, state that was lost, hosts taken over."""

import os
import stat

import pytest
from msgspec.structs import replace

from compute_agent import errors
from compute_agent.state import identity
from compute_agent.state.identity import IdentityDecision, Marker, Reporter, RootFacts

A = "6a2cd4b4-5c46-4f0a-a1a3-8e0a9a5ec0a0"
B = "11111111-5c46-4f0a-a1a3-8e0a9a5ec0a0"


def test_no_identity_file_means_none(tmp_path):
    assert identity.find([tmp_path, tmp_path / "missing"]) is None


@pytest.mark.parametrize("text", [A, f"{A}\n", f"  {A}\t\n", A.upper(), A.replace("-", "")])
def test_white_space_and_case_around_the_uuid_are_tolerated(tmp_path, text):
    (tmp_path / "compute_id").write_text(text)
    assert identity.find([tmp_path]) == A


@pytest.mark.parametrize("text", ["", "\n", "host1", A[:-1], A + "0" * 40, "\x00" * 36])
def test_a_file_without_a_uuid_is_refused_with_its_path(tmp_path, text):
    (tmp_path / "compute_id").write_text(text)
    with pytest.raises(errors.InvalidNodeConfiguration, match=str(tmp_path)):
        identity.find([tmp_path])


def test_files_in_several_places_must_agree(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / "compute_id").write_text(A)
    (tmp_path / "b" / "compute_id").write_text(A.upper())
    assert identity.find([tmp_path / "a", tmp_path / "b"]) == A
    (tmp_path / "b" / "compute_id").write_text(B)
    with pytest.raises(errors.InvalidNodeConfiguration, match="disagree") as caught:
        identity.find([tmp_path / "a", tmp_path / "b"])
    assert A in str(caught.value)
    assert B in str(caught.value)


def test_identity_is_looked_for_beside_every_configuration_file_and_in_the_state_path(tmp_path):
    places = identity.directories(
        [str(tmp_path / "etc" / "a.conf"), str(tmp_path / "etc" / "b.conf")], tmp_path / "state"
    )
    assert places == [tmp_path / "etc", tmp_path / "state"]


def test_a_new_identity_is_written_once_and_readable_by_all(tmp_path):
    identity.write_compute_id(tmp_path, A)
    assert identity.find([tmp_path]) == A
    assert stat.S_IMODE((tmp_path / "compute_id").stat().st_mode) == 0o644
    with pytest.raises(errors.InvalidNodeConfiguration, match="appeared"):
        identity.write_compute_id(tmp_path, B)
    assert identity.find([tmp_path]) == A


def test_an_identity_that_cannot_be_written_is_refused(tmp_path, monkeypatch):
    def denied(*args):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "link", denied)
    with pytest.raises(errors.InvalidNodeConfiguration, match="Permission denied"):
        identity.write_compute_id(tmp_path, A)
    assert list(tmp_path.iterdir()) == []


def test_a_marker_without_identity_refuses_and_says_how_to_restore(tmp_path):
    identity.write_marker(tmp_path, Marker(A, "host1", "m"))
    marker = identity.read_marker(tmp_path)
    assert marker == Marker(A, "host1", "m")
    with pytest.raises(errors.InvalidNodeConfiguration) as caught:
        identity.check_marker(None, marker, tmp_path)
    assert A in str(caught.value)
    assert "host1" in str(caught.value)


def test_another_nodes_identity_is_refused(tmp_path):
    with pytest.raises(errors.InvalidNodeConfiguration, match=B):
        identity.check_marker(B, Marker(A, "host1", "m"), tmp_path)


def test_the_first_start_and_an_ordinary_one_pass(tmp_path):
    assert identity.read_marker(tmp_path) is None
    identity.check_marker(None, None, tmp_path)
    identity.check_marker(A, None, tmp_path)
    identity.check_marker(A, Marker(A, "host1", "m"), tmp_path)


GUEST, OTHER_GUEST = frozenset({"guest"}), frozenset({"another guest"})
NOBODY: frozenset[str] = frozenset()


def root(*traits: str, consumers: frozenset[str] = NOBODY) -> RootFacts:
    return RootFacts(A, "host1", frozenset(traits), consumers=consumers)


HERE = Reporter("just now, from here", is_same_machine=True)
ELSEWHERE = Reporter("just now, from elsewhere", is_same_machine=False)
EMPTY, USED = root("COMPUTE_NODE"), root("COMPUTE_NODE", consumers=GUEST)


@pytest.mark.parametrize(
    ("facts", "guests", "reporter", "verdict"),
    [
        (None, NOBODY, None, IdentityDecision.CREATE),
        (None, GUEST, None, IdentityDecision.CREATE),
        (USED, GUEST, None, IdentityDecision.ADOPT),
        (root("OWNER_NOVA", consumers=GUEST), GUEST, None, IdentityDecision.ADOPT),
        (USED, GUEST, ELSEWHERE, IdentityDecision.ADOPT),
        (USED, OTHER_GUEST, None, IdentityDecision.REFUSE),
        (USED, NOBODY, None, IdentityDecision.REFUSE),
        (USED, None, None, IdentityDecision.REFUSE),
        (USED, None, HERE, IdentityDecision.ADOPT),
        (EMPTY, NOBODY, HERE, IdentityDecision.ADOPT),
        (EMPTY, NOBODY, ELSEWHERE, IdentityDecision.REFUSE),
        (EMPTY, NOBODY, None, IdentityDecision.REFUSE),
        (EMPTY, GUEST, None, IdentityDecision.REFUSE),
        (root("CUSTOM_SOMEBODYS"), GUEST, HERE, IdentityDecision.REFUSE),
    ],
)
def test_what_a_host_without_identity_does_with_a_provider_of_its_name(
    facts, guests, reporter, verdict
):
    decided = identity.decide_adoption(facts, guests=guests, reporter=reporter, adopt_asked=False)
    is_refused = verdict is IdentityDecision.REFUSE
    assert decided.verdict is verdict
    assert decided.uuid == (A if verdict is IdentityDecision.ADOPT else None)
    assert ("--adopt" in decided.reason) is is_refused
    assert ("does not know" in decided.reason) is (is_refused and guests is None)
    assert ("elsewhere" in decided.reason) is (is_refused and reporter is ELSEWHERE)
    confirmed = identity.decide_adoption(facts, guests=guests, reporter=reporter, adopt_asked=True)
    assert confirmed.uuid == (None if facts is None else A)


@pytest.mark.parametrize("adopt_asked", [False, True])
@pytest.mark.parametrize(
    ("facts", "why"),
    [
        (RootFacts(A, "host1", frozenset({"COMPUTE_NODE"}), parent_uuid=B), B),
        (root("COMPUTE_NODE", "MISC_SHARES_VIA_AGGREGATE"), "MISC_SHARES_VIA_AGGREGATE"),
        (root("OWNER_NOVA", "MISC_SHARES_VIA_AGGREGATE"), "MISC_SHARES_VIA_AGGREGATE"),
    ],
)
def test_a_provider_that_can_be_no_host_is_never_taken_over(facts, why, adopt_asked):
    decided = identity.decide_adoption(facts, guests=GUEST, reporter=HERE, adopt_asked=adopt_asked)
    assert decided.verdict is IdentityDecision.REFUSE
    assert decided.uuid is None
    assert A in decided.reason
    assert "'host1'" in decided.reason
    assert why in decided.reason
    assert "--adopt" not in decided.reason, "it would not help"


@pytest.mark.parametrize(
    "facts",
    [
        root(),
        root("CUSTOM_SOMEBODYS"),
        root("COMPUTE_NODE", "MISC_SHARES_VIA_AGGREGATE"),
    ],
    ids=["new", "unmarked", "a host that shares"],
)
def test_a_root_that_the_identity_file_names_is_believed(facts, tmp_path):
    identity.check_root(facts, tmp_path / "compute_id")
    with pytest.raises(errors.InvalidNodeConfiguration):
        identity.check_root(replace(facts, parent_uuid=B), tmp_path / "compute_id")


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        (RootFacts(A, "pci", frozenset({"COMPUTE_NODE"}), parent_uuid=B), B),
        (root("OWNER_NOVA", "MISC_SHARES_VIA_AGGREGATE"), "MISC_SHARES_VIA_AGGREGATE"),
    ],
    ids=["a child", "a shared pool"],
)
def test_what_can_be_no_host_is_not_believed_and_who_says_so_is_named(facts, why, tmp_path):
    file = tmp_path / "compute_id"
    with pytest.raises(errors.InvalidNodeConfiguration, match=why) as caught:
        identity.check_root(facts, file)
    for word in (str(file), A, repr(facts.name)):
        assert word in str(caught.value)
    with pytest.raises(errors.InvalidNodeConfiguration, match=why) as caught:
        identity.check_root(facts, None)
    assert "The driver has" in str(caught.value)
    assert "remove the file" not in str(caught.value)


def test_the_file_that_tells_the_identity_is_the_first_one_there_is(tmp_path):
    places = [tmp_path / "a", tmp_path / "b", tmp_path / "c"]
    for place in places:
        place.mkdir()
    assert identity.file_in(places) is None
    for place in places[1:]:
        (place / "compute_id").write_text(A)
    assert identity.file_in(places) == places[1] / "compute_id"


def test_a_new_host_name_is_followed_by_the_names_of_the_children_that_begin_with_it():
    names = {
        "r": "host1",
        "c": "host1_NUMA0",
        "g": "host1_pci_0000_84_00_0",
        "n": "host1:Open vSwitch agent",
        "o": "host10_NUMA0",
        "x": "switch",
    }
    assert identity.new_names(names, "host1", "host2") == {
        "r": "host2",
        "c": "host2_NUMA0",
        "g": "host2_pci_0000_84_00_0",
    }
