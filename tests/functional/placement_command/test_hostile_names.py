"""Names are data: what a terminal would take for an order is shown, and not obeyed."""

from __future__ import annotations

import re

import pytest

from .conftest import Run

ORDERS = "\x1b]0;title\x07\x1b[31m\r\x9b2J\u202e\u2066\x7f"
IS_ORDER = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@pytest.mark.parametrize(
    "command",
    [
        ("provider", "list"),
        ("provider", "list", "-f", "value"),
        ("provider", "show", "NAME"),
        ("provider", "show", "NAME", "-f", "value"),
        ("provider", "show", "NAME", "-f", "json"),
        ("tree", "NAME"),
        ("tree", "NAME", "--full"),
        ("provider", "delete", "NAME of none"),
    ],
)
def test_no_name_gives_orders_to_the_terminal(run_ours: Run, command: tuple[str, ...]) -> None:
    name = f"orders{ORDERS}{'-'.join(command)}"
    assert run_ours("provider", "create", name).status == 0
    ended = run_ours(*(word.replace("NAME", name) for word in command))
    assert "invalid choice" not in ended.err
    assert "orders" in ended.out + ended.err
    assert IS_ORDER.findall(ended.out + ended.err) == []
