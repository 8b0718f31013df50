"""Descriptions of domains as libvirt writes them, made of the elements a test is about."""

from __future__ import annotations

UUID = "6b5ea0a1-7a4d-4c7d-9e0f-0a3d5c1b2e4f"


def domain_xml(
    *elements: str, devices: str = "", vcpu: str = "<vcpu placement='static'>4</vcpu>", id: int = 0
) -> str:
    """Describe a domain.

    :param elements: children of `domain` beside name, uuid, memory, vcpu and devices.
    :param id: of a running domain; 0 = shut off.
    """
    attribute = f" id='{id}'" if id else ""
    return f"""
        <domain type='kvm'{attribute}>
          <name>a-guest</name>
          <uuid>{UUID}</uuid>
          <memory unit='KiB'>4194304</memory>
          <currentMemory unit='KiB'>4194304</currentMemory>
          {vcpu}
          {"".join(elements)}
          <devices>{devices}</devices>
        </domain>"""


def source_address(bus: int, slot: int = 0, function: int = 0, *, domain: int = 0) -> str:
    """The address of a host function in `source`."""
    return (
        f"<source><address type='pci' domain='0x{domain:04x}' bus='0x{bus:02x}' "
        f"slot='0x{slot:02x}' function='0x{function:x}'/></source>"
    )


GUEST_ADDRESS = "<address type='pci' domain='0x0000' bus='0x05' slot='0x00' function='0x0'/>"

NOVA_PINNED = (
    """<cputune>
      <vcpupin vcpu='0' cpuset='5'/><vcpupin vcpu='1' cpuset='13'/>
      <vcpupin vcpu='2' cpuset='6'/><vcpupin vcpu='3' cpuset='14'/>
      <emulatorpin cpuset='5-6,13-14'/>
    </cputune>""",
    """<numatune>
      <memory mode='strict' nodeset='1'/><memnode cellid='0' mode='strict' nodeset='1'/>
    </numatune>""",
    "<cpu><numa><cell id='0' cpus='0-3' memory='4194304' unit='KiB'/></numa></cpu>",
    """<memoryBacking><hugepages>
      <page size='1048576' unit='KiB' nodeset='0'/>
    </hugepages></memoryBacking>""",
)
"""Elements of a guest that Nova pins and puts in huge pages."""
