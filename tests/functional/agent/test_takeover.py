"""A host that another compute agent reported is taken over provider by provider, guests included.

The names, classes and traits are those that operators know from OpenStack's own agent: see the
admin guides on vGPU and on PCI tracking in placement.
"""

import pytest

from tests.fixtures.plain_trees import make_provider
from tests.functional.agent.processes import REPOSITORY, claim
from tests.functional.documentation.shell_blocks import BlocksToRun, commands_of

pytestmark = pytest.mark.waiting

GPUS = ("0000:17:00.0", "0000:84:00.0")
CAPABILITIES = {
    "COMPUTE_TRUSTED_CERTS",
    "COMPUTE_VOLUME_MULTI_ATTACH",
    "COMPUTE_IMAGE_TYPE_RAW",
    "COMPUTE_NET_ATTACH_INTERFACE",
    "COMPUTE_SECURITY_UEFI_SECURE_BOOT",
}
MACHINE = REPOSITORY / "tests" / "data" / "two-cells"


@pytest.fixture
def left_behind(placement, node):
    """What placement holds of the host: uuid by name."""
    made: dict[str, str] = {}

    def provider(name, parent, inventories, *traits):
        above = made.get(parent)
        made[name] = make_provider(placement.send, name, inventories, traits, parent=above)

    provider(
        node,
        None,
        {
            "VCPU": {"total": 16, "max_unit": 16, "allocation_ratio": 8.0},
            "MEMORY_MB": {"total": 128608, "max_unit": 128608, "reserved": 512},
            "DISK_GB": {"total": 2048, "max_unit": 2048},
        },
        *("COMPUTE_NODE", "HW_CPU_X86_AVX2", "CUSTOM_RACK_7", *CAPABILITIES),
    )
    for address in GPUS:
        name = f"{node}_pci_{address.replace(':', '_').replace('.', '_')}"
        provider(name, node, {"VGPU": {"total": 16, "max_unit": 16}}, "CUSTOM_GPU_POOL_A")
    provider(
        f"{node}_0000:18:00.0",
        node,
        {"CUSTOM_PCI_8086_1889": {"total": 8, "max_unit": 8}},
        *("OWNER_NOVA", "COMPUTE_MANAGED_PCI_DEVICE"),
    )
    provider(f"{node}:Open vSwitch agent", node, {})
    return made


def test_another_agents_tree_is_taken_over_without_a_new_provider_or_a_lost_allocation(
    placement, new_agent, node, left_behind
):
    gpu = f"{node}_pci_0000_84_00_0"
    functions = f"{node}_0000:18:00.0"
    guests = {
        claim(placement, left_behind[node], {"VCPU": 4, "MEMORY_MB": 4096}): node,
        claim(placement, left_behind[gpu], {"VGPU": 1}): gpu,
        claim(placement, left_behind[functions], {"CUSTOM_PCI_8086_1889": 2}): functions,
    }
    agent = new_agent(
        placement.url,
        DEFAULT={"compute_driver": "host.HostDriver", "host": node, "instances_path": "/tmp"},
        host={"sysfs_root": MACHINE / "sys", "procfs_root": MACHINE / "proc"},
        devices={"enabled_mdev_types": "nvidia-222"},
        pci={
            "report_in_placement": True,
            "device_spec": '{"vendor_id": "8086", "product_id": "1889", "address": "0000:18:*.*"}',
        },
    )
    agent.start()
    assert agent.ended() == 5, (
        "nothing of it runs here, so a person has to say that it is this host"
    )
    assert "--adopt" in agent.logged()
    assert not (agent.state / "compute_id").exists()
    blocks = BlocksToRun("with a host that Nova reported")
    ((*as_its_user, run, adopt),) = commands_of(blocks.next_of("do/openstack-placement"))
    assert not blocks.left
    assert (as_its_user, run) == (["sudo", "-u", "compute-agent", "compute-agent"], "run")
    agent.start(adopt)
    agent.started()
    assert agent.stop() == 0

    tree = placement.tree(node)
    assert {name: provider["uuid"] for name, provider in tree.items()} == left_behind
    assert (agent.state / "compute_id").read_text().strip() == left_behind[node]
    for guest, where in guests.items():
        assert set(placement.get(f"/allocations/{guest}")["allocations"]) == {left_behind[where]}
    assert tree[node]["inventories"]["VCPU"]["allocation_ratio"] == 8.0, "set by an operator"
    assert "CUSTOM_RACK_7" in tree[node]["traits"]
    assert set(tree[node]["traits"]) >= CAPABILITIES, "the host driver cannot deny them"
    assert "CUSTOM_GPU_POOL_A" in tree[gpu]["traits"]
    assert tree[gpu]["inventories"]["VGPU"]["total"] == 16
    assert tree[f"{node}:Open vSwitch agent"]["traits"] == []
    assert agent.run("plan").returncode == 0, "nothing is left to change"
