"""Message buses as a log names them."""

import pytest

from compute_agent import conf as agent_conf
from compute_agent.daemon.message_bus import shown_address


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (None, "none"),
        ("fake://", "fake"),
        ("rabbit://user:secret@one:5672//", "rabbit at one:5672"),
        (
            "rabbit://user:secret@one:5672,user:secret@two:5672/cloud",
            "rabbit at one:5672, two:5672",
        ),
        ("rabbit://user:sec,ret@one//", "rabbit at one"),
        ("rabbit://user:sec@ret@one//", "rabbit at one"),
        ("rabbit://user:sec/ret@one//", "rabbit"),
        ("rabbit://user:sec#ret@one//", "rabbit"),
        ("rabbit://user:secret@[::1//", "at a URL that cannot be read"),
    ],
)
def test_a_bus_is_named_without_users_and_passwords(url: str | None, shown: str) -> None:
    conf = agent_conf.new_config(default_config_files=[])
    conf.set_override("transport_url", url)
    assert shown_address(conf) == shown
