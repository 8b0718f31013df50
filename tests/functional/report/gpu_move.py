"""A reshape that moves the GPUs of a host to providers of their own."""

from tests.functional.report.claims import claim, held_by
from tests.functional.report.layouts import add


def guests_of(host, other) -> list[str]:
    """Report a flat host, and claim for two guests that have a GPU and one that has none."""
    host.report(flat(host.name))
    with_gpu = [claim(other, host.root, {"VCPU": 1, "VGPU": 1}) for _ in range(2)]
    return [*with_gpu, claim(other, host.root, {"VCPU": 1})]


def flat(name):
    def lay_out(tree):
        tree.update_inventory(
            name, {"VCPU": {"total": 8}, "DISK_GB": {"total": 100}, "VGPU": {"total": 8}}
        )
        tree.add_traits(name, "OWNER_NOVA")

    return lay_out


def nested(name):
    def lay_out(tree):
        tree.update_inventory(name, {"VCPU": {"total": 8}, "DISK_GB": {"total": 100}})
        tree.add_traits(name, "OWNER_NOVA")
        for number in range(2):
            add(tree, f"{name}_GPU{number}", name, {"VGPU": {"total": 4}})

    return lay_out


def reshape(host, guests, *, edit=None, lay_out=None):
    """One startup pass that finds the flat layout and moves the GPUs of the first two guests."""
    client = host.client
    host.transport.clear()
    with client.tracing() as host.tally:
        base = client.get_provider_tree_and_ensure_root(host.root, host.name, fresh=True)
        allocations = client.get_allocations_for_provider_tree(host.root)
        new = base.snapshot()
        (lay_out or nested(host.name))(new)
        for number, consumer in enumerate(guests[:2]):
            held = allocations[consumer]["allocations"]
            del held[host.root]["resources"]["VGPU"]
            gpu = new.data(f"{host.name}_GPU{number}").uuid
            held[gpu] = {"resources": {"VGPU": 1}}
        if edit:
            edit(allocations, new)
        return client.update_from_provider_tree(base, new, allocations=allocations)


def assert_done(host, other, guests):
    tree = other.get_provider_tree(host.root, fresh=True)
    assert set(tree.data(host.root).inventory) == {"VCPU", "DISK_GB"}
    for number, consumer in enumerate(guests[:2]):
        gpu = tree.data(f"{host.name}_GPU{number}")
        assert gpu.inventory["VGPU"]["total"] == 4
        assert held_by(other, consumer) == {host.root: {"VCPU": 1}, gpu.uuid: {"VGPU": 1}}
    assert held_by(other, guests[2]) == {host.root: {"VCPU": 1}}
    host.report(nested(host.name))
    assert host.tally.requests == 1
