"""Reasons for which a host cannot give what is needed."""

from compute_agent.drift.healing.coverage import HostProvider, roomiest
from compute_agent.request.candidate_request import CandidateRequest, RequestGroup


def provider(uuid: str, *traits: str, **rooms: tuple[int, int]) -> HostProvider:
    """A provider of so much of each class, with so much used."""
    return HostProvider(
        uuid,
        f"name of {uuid}",
        frozenset(traits),
        {name: capacity for name, (capacity, _used) in rooms.items()},
        {name: used for name, (_capacity, used) in rooms.items()},
    )


def request(**groups: RequestGroup) -> CandidateRequest:
    return CandidateRequest(
        {name.removeprefix("unsuffixed"): group for name, group in groups.items()}
    )


def test_the_provider_with_the_most_left_is_taken_and_nothing_is_in_the_way() -> None:
    found = roomiest(
        request(unsuffixed=RequestGroup({"VCPU": 2}), _G=RequestGroup({"VGPU": 1})),
        [provider("a", VCPU=(4, 3)), provider("b", VCPU=(4, 1)), provider("c", VGPU=(1, 0))],
    )
    assert found.amounts == {"b": {"VCPU": 2}, "c": {"VGPU": 1}}
    assert found.mappings == {"_G": "c"}
    assert found.obstacles == ()
    assert found.complete


def test_a_full_provider_is_named_with_class_and_amounts() -> None:
    found = roomiest(request(unsuffixed=RequestGroup({"VCPU": 2})), [provider("a", VCPU=(4, 3))])
    assert found.obstacles == ("provider name of a (a) has 1 of 4 VCPU left, and 2 are needed",)
    assert found.complete


def test_two_groups_do_not_get_the_same_room() -> None:
    two = request(_A=RequestGroup({"VGPU": 1}), _B=RequestGroup({"VGPU": 1}))
    found = roomiest(two, [provider("a", VGPU=(1, 0))])
    assert found.obstacles == ("provider name of a (a) has 0 of 1 VGPU left, and 1 are needed",)
    assert roomiest(two, [provider("a", VGPU=(2, 0))]).obstacles == ()


def test_a_provider_that_is_overcommitted_has_nothing_left() -> None:
    found = roomiest(request(unsuffixed=RequestGroup({"VCPU": 2})), [provider("a", VCPU=(4, 9))])
    assert "has 0 of 4 VCPU left" in found.obstacles[0]


def test_a_class_that_no_provider_has_is_named() -> None:
    found = roomiest(request(_G=RequestGroup({"VGPU": 1})), [provider("a", VCPU=(4, 0))])
    assert found.obstacles == ("no provider of the host has VGPU",)
    assert not found.complete


def test_traits_that_no_provider_of_the_class_has_are_named() -> None:
    wanted = request(_G=RequestGroup({"VGPU": 1}).requiring("CUSTOM_A"))
    cards = [provider("a", VGPU=(1, 0)), provider("b", "CUSTOM_A", VGPU=(1, 0))]
    assert roomiest(wanted, cards).amounts == {"b": {"VGPU": 1}}
    assert roomiest(wanted, cards[:1]).obstacles == (
        "no provider that has VGPU has the traits CUSTOM_A",
    )
