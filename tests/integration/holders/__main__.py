"""The command line of the histories of hosts."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import libvirt

from compute_agent.errors import ComputeAgentError
from tests.fixtures.databases import postgresql_missing
from tests.fixtures.emulated_host import OUTSIDE, EmulatedHost
from tests.fixtures.libvirtd import libvirtd_missing
from tests.fixtures.private_databases import fleet_parts, print_wrong
from tests.fixtures.rabbitmq import rabbitmq_missing
from tests.functional.agent.processes import AgentProcess
from tests.functional.emulated_host.agent_and_relay import PID_FILE
from tests.functional.emulated_host.relay import START_LIBVIRTD, Relay, new_host
from tests.integration.burst.shapes import Shape
from tests.integration.holders.cloud import captured_machines, running_cloud
from tests.integration.holders.contents import SMALL_PAGES
from tests.integration.holders.machines import DEDICATED, PAGES, Machine, xml_of
from tests.integration.holders.model import Content
from tests.integration.holders.run import run

_CELL_MIB: Final = 1024
_PAGES_MIB: Final = (64, 128)
"""In huge pages of 2 MiB, by cell."""
_PREPARE: Final = (
    "echo 4 >/sys/bus/pci/devices/0000:81:00.0/sriov_numvfs",
    *(
        f"echo {mib // 2} >/sys/devices/system/node/node{cell}/hugepages/"
        "hugepages-2048kB/nr_hugepages"
        for cell, mib in enumerate(_PAGES_MIB)
    ),
)
_CONNECT: Final = "import json, libvirt\nhypervisor = libvirt.open('qemu:///system')\n"
_UNDEFINE: Final = """
for guest in hypervisor.listAllDomains():
    if guest.UUIDString() == {uuid!r}:
        if guest.isActive():
            guest.destroy()
        guest.undefine()
"""
# paused: it has its pages, CPUs and functions, and firmware emulated twice takes no time
_START: Final = """
hypervisor.defineXML({xml!r}).createWithFlags(libvirt.VIR_DOMAIN_START_PAUSED)
"""
_DESCRIBE: Final = """
described = {guest.UUIDString(): guest.XMLDesc() for guest in hypervisor.listAllDomains()}
with open("/run/outside/described.json", "w") as file:
    json.dump(described, file)
"""


class EmulatedAgent(AgentProcess):
    """The agent on an emulated host, which is on."""

    def __init__(self, relay: Relay, directory: Path, url: str, **options: Any) -> None:
        super().__init__(directory, url, **options)
        self._relay = relay
        self._is_installed = False

    def start(self, *_arguments: str, **_environment: str) -> None:
        text = self.config.read_text().replace("127.0.0.1", OUTSIDE)
        (self._relay.host.shared / "agent.conf").write_text(text)
        if self._is_installed:
            self._relay.run_python("import __main__\n__main__.start_agent()")
        else:
            self._relay.install(*_PREPARE)
        self._is_installed = True

    def status(self) -> dict[str, Any] | None:
        with contextlib.suppress(ComputeAgentError):
            document: dict[str, Any] = self.ask("status")
            return document
        return None

    def ask(self, command: str, **arguments: Any) -> Any:
        answer = self._relay.hand_over({"command": command, **arguments}, command)
        if "result" not in answer:
            raise ComputeAgentError(answer.get("error", "the agent does not answer"))
        return answer["result"]

    def cleanup(self) -> None:
        self._relay.host.run(f"kill -9 $(cat {PID_FILE}) || true")


class EmulatedMachine(Machine):
    """The host that `EmulatedHost` describes, with two CPUs and half of its pages to give."""

    shapes = (
        Shape("floats", 1, 32),
        Shape("pinned", 1, 32, nodes=1, extra_specs=DEDICATED),
        Shape("two nodes", 2, 64, nodes=2, extra_specs=DEDICATED),
        Shape("pages", 1, 32, nodes=1, extra_specs=PAGES),
        Shape("pinned with pages", 1, 64, nodes=1, extra_specs={**DEDICATED, **PAGES}),
        Shape("function", 1, 32, nodes=1, devices={"CUSTOM_NVME": 1}),
    )
    shared = (0, 2)
    dedicated = (1, 3)
    function_class = "CUSTOM_NVME"

    def __init__(self, name: str, host: EmulatedHost) -> None:
        super().__init__(name, host.shared / "instances")
        self._relay = Relay(host)

    def new_agent(self, directory: Path, url: str, **options: Any) -> AgentProcess:
        return EmulatedAgent(self._relay, directory, url, **options)

    def options(self) -> dict[str, dict[str, Any]]:
        options = super().options()
        options["DEFAULT"] |= {
            "state_path": "/disk/agent",
            "instances_path": "/disk/instances",
            "report_interval": 4,
            "update_resources_interval": 20,
        }
        options["compute_agent"]["instance_file"] = "/run/outside/instances"
        device = {"address": "0000:81:00.[1-4]", "resource_class": self.function_class}
        options["pci"] = {"report_in_placement": True, "device_spec": json.dumps(device)}
        return options

    def totals(self) -> Content:
        totals = {}
        for cell, mib in enumerate(_PAGES_MIB):
            totals[f"VCPU of cell {cell}"] = 1
            totals[f"MiB of cell {cell} in pages of 2048 KiB"] = mib
            totals[f"MiB of cell {cell} in pages of {SMALL_PAGES} KiB"] = _CELL_MIB - mib
        return totals

    def define(self, instance: str, claim: Mapping[str, Any]) -> None:
        start = _START.format(xml=xml_of(instance, claim))
        self._relay.run_python(_CONNECT + _UNDEFINE.format(uuid=instance) + start)

    def undefine(self, instance: str) -> None:
        self._relay.run_python(_CONNECT + _UNDEFINE.format(uuid=instance))

    def described(self) -> dict[str, str]:
        self._relay.run_python(_CONNECT + _DESCRIBE)
        described = (self._relay.host.shared / "described.json").read_text()
        return dict(json.loads(described))

    def kill_libvirt(self) -> None:
        self._relay.host.run(f"kill -9 $(cat /run/libvirtd.pid)\n{START_LIBVIRTD}")


@contextlib.contextmanager
def emulated_machines(directory: Path) -> Iterator[Sequence[Machine]]:
    """Run one emulated host.

    :raises NoHost: something for it is not installed.
    """
    host = new_host(directory / "emulated", "host0")
    host.turn_on()
    try:
        yield [EmulatedMachine("host0", host)]
    finally:
        host.turn_off()


def main() -> int:
    """Record one history and print what came of it; 1 when anything is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.integration.holders")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--pause", type=float, default=3.0, help="seconds between two kills")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--emulated", action="store_true", help="on a host that QEMU emulates")
    options = parser.parse_args()
    # of a daemon that is killed
    libvirt.registerErrorHandler(lambda *_: None, None)
    for missing in (postgresql_missing(), rabbitmq_missing(), libvirtd_missing()):
        if missing:
            parser.error(missing)
    with fleet_parts("holders") as parts, ExitStack() as ends:
        machines = ends.enter_context(
            emulated_machines(parts.directory)
            if options.emulated
            else captured_machines(parts.directory, parts.directory)
        )
        cloud = ends.enter_context(running_cloud(*parts, machines))
        over = time.monotonic() + options.seconds
        done = run(
            cloud,
            lambda _done: time.monotonic() > over,
            seed=options.seed,
            clients=options.clients,
            pause=options.pause,
        )
    sys.stdout.write(f"{dict(sorted(done.items()))}, in {options.seconds:.0f} s\n")
    print_wrong(cloud.wrong)
    return bool(cloud.wrong)


if __name__ == "__main__":
    sys.exit(main())
