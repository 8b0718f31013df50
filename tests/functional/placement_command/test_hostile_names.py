"""Names are data: what a terminal would take for an order is shown, and not obeyed."""

from __future__ import annotations

import pytest

from tests.fixtures.terminal import IS_ORDER, ORDERS

from .conftest import Run


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
