"""Agents that report the same node."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import asdict, replace

from compute_agent import errors
from compute_agent.agent.rpc import Namesakes
from compute_agent.conf import new_config
from compute_agent.tracker import place
from compute_agent.tracker.place import UNKNOWN, Place

OWN = Place("10.0.0.1", "m", "boot1", "/var/lib/compute-agent")
CLONE = replace(OWN, address="10.0.0.2", boot_id="boot2")
ROOT = "5b1c8a3e-7d0f-4a55-9a51-2f5a8b1b7c11"


class Heard:
    """What an agent has heard, at a time that the test sets."""

    def __init__(self, own: Place = OWN) -> None:
        self.now = 0.0
        self.first_count = 0
        self.namesakes = Namesakes(own, 30.0, self.count, lambda: self.now)

    def count(self) -> None:
        self.first_count += 1

    def hear(self, place: Place, *roots: str) -> None:
        self.namesakes.hear({**asdict(place), "roots": list(roots)})


def test_a_cloned_machine_is_named_until_it_is_silent() -> None:
    heard = Heard()
    for _ in range(2):
        heard.hear(CLONE, ROOT)
    assert heard.first_count == 1
    with pytest.raises(errors.InvalidNodeConfiguration) as raised:
        heard.namesakes.check_alone(ROOT)
    assert str(OWN) in str(raised.value)
    assert str(CLONE) in str(raised.value)
    heard.namesakes.check_alone("another root")
    heard.now = 30.0
    heard.namesakes.check_alone(ROOT)


def test_this_agent_before_and_after_a_restart_is_no_other() -> None:
    heard = Heard()
    heard.hear(OWN, ROOT)
    heard.hear(replace(OWN, address="10.0.0.9"), ROOT)
    heard.namesakes.check_alone(ROOT)
    assert heard.first_count == 0


@pytest.mark.parametrize("field", Place.__struct_fields__)
def test_without_a_boot_id_only_what_is_equal_in_all_else_is_this_agent(field: str) -> None:
    heard = Heard(replace(OWN, boot_id=UNKNOWN))
    heard.hear(heard.namesakes.own, ROOT)
    heard.namesakes.check_alone(ROOT)
    heard.hear(replace(heard.namesakes.own, **{field: "another"}), ROOT)
    with pytest.raises(errors.InvalidNodeConfiguration, match="another"):
        heard.namesakes.check_alone(ROOT)


@pytest.mark.parametrize("content", ["", "\n", "uninitialized\n"])
def test_a_machine_id_that_no_machine_has_makes_no_two_machines_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    (tmp_path / "machine-id").write_text(content)
    monkeypatch.setattr(place, "MACHINE_ID", tmp_path / "machine-id")
    own = place.own_place(new_config([], default_config_dirs=[]))
    assert not own.is_same_machine(replace(own, boot_id="another"))


@pytest.mark.parametrize("message", [{}, {"roots": None}, [], {**asdict(CLONE), "roots": 1}])
def test_a_malformed_message_is_refused_and_changes_nothing(message: object) -> None:
    heard = Heard()
    with pytest.raises(ValueError, match=r"^(Key|Type|Attribute)Error"):
        heard.namesakes.hear(message)  # type: ignore[arg-type]
    heard.namesakes.check_alone(ROOT)
