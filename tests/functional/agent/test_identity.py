"""Which providers are a host's own: after a new name, and where another agent left them."""

import uuid

from tests.functional.agent.processes import claim, running


def test_a_renamed_host_keeps_its_providers_under_new_names(placement, new_agent, node):
    agent = new_agent(placement.url)
    children = {"NUMA0": {"VCPU": {"total": 4}}}
    agent.script(nodes=[node], children=children)
    with running(agent):
        agent.stop()
    before = {provider["uuid"] for provider in placement.tree(node).values()}
    agent.script(nodes=[f"{node}-new"], children=children)
    with running(agent):
        tree = placement.tree(f"{node}-new")
        assert set(tree) == {f"{node}-new", f"{node}-new_NUMA0"}
        assert {provider["uuid"] for provider in tree.values()} == before
        assert placement.root(node) is None


def nova_root(placement, node, *, allocated: bool = False) -> str:
    """A root as another agent left it in placement."""
    root = str(uuid.uuid4())
    for method, path, body in (
        ("PUT", "/traits/CUSTOM_OPERATORS", None),
        ("POST", "/resource_providers", {"uuid": root, "name": node}),
        (
            "PUT",
            f"/resource_providers/{root}/traits",
            {"resource_provider_generation": 0, "traits": ["COMPUTE_NODE", "CUSTOM_OPERATORS"]},
        ),
        (
            "PUT",
            f"/resource_providers/{root}/inventories",
            {"resource_provider_generation": 1, "inventories": {"VCPU": {"total": 8}}},
        ),
    ):
        assert placement.request(method, path, json=body).ok
    if allocated:
        claim(placement, root, {"VCPU": 1})
    return root


def test_a_host_of_another_agent_is_taken_over_without_a_new_provider(placement, new_agent, node):
    root = nova_root(placement, node, allocated=True)
    agent = new_agent(placement.url)
    agent.script(nodes=[node], instances=[str(uuid.uuid4())])
    with running(agent):
        assert (agent.state / "compute_id").read_text().strip() == root
        (provider,) = placement.tree(node).values()
        assert provider["uuid"] == root
        assert "CUSTOM_OPERATORS" in provider["traits"]


def test_a_name_with_allocations_but_no_instances_is_taken_over_only_when_confirmed(
    placement, new_agent, node
):
    root = nova_root(placement, node, allocated=True)
    agent = new_agent(placement.url)
    agent.start()
    assert agent.ended() == 5
    assert "--adopt" in agent.logged()
    assert not (agent.state / "compute_id").exists()
    agent.start("--adopt")
    agent.started()
    assert (agent.state / "compute_id").read_text().strip() == root
