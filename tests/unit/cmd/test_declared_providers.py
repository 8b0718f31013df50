"""Plans of declared providers: order, and trees of any depth."""

from compute_agent.cmd.placement.declared import plan

DEPTH = 3000


def test_a_long_chain_is_created_from_its_root_down() -> None:
    declared = [{"name": f"p{i}", "parent": f"p{i - 1}" if i else None} for i in range(DEPTH)]
    steps = plan(declared[::-1], [], {})
    assert [step.text.split()[1] for step in steps] == [f"p{i}" for i in range(DEPTH)]


def test_a_long_chain_is_deleted_from_its_leaf_up() -> None:
    absent = [
        {"name": f"p{i}", "uuid": f"u{i}", "parent_provider_uuid": f"u{i - 1}" if i else None}
        for i in range(DEPTH)
    ]
    steps = plan([], absent, {})
    assert [step.text for step in steps] == [f"delete p{i}" for i in reversed(range(DEPTH))]
