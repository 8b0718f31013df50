"""An emulated host with libvirtd and an agent, and the relay through which both are asked."""

from __future__ import annotations

import compileall
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Final

import compute_agent
from tests.fixtures.emulated_host import PATIENCE, EmulatedHost, emulated_host_missing
from tests.fixtures.emulated_host.boot_files import NoKernel, boot_files
from tests.functional.emulated_host import agent_and_relay

# What is installed on a host, on a disk that keeps definitions of guests. Without the second
# emulator of the package, which libvirtd would ask for its capabilities as well, and without the
# drivers that the agent asks nothing of: libvirtd as modern hosts have it, as virtqemud and
# virtnodedevd.
INSTALL: Final = """
mkdir -p /disk/agent /disk/instances /var/log/libvirt
for directory in /etc/libvirt /var/lib/libvirt /var/cache/libvirt; do
    mkdir -p /disk$directory $directory
    mount --bind /disk$directory $directory
done
if ! grep -q ^libvirt-qemu: /etc/passwd; then
    echo libvirt-qemu:x:64055:64055::/nonexistent:/usr/sbin/nologin >>/etc/passwd
    echo libvirt-qemu:x:64055: >>/etc/group
fi
cat >/etc/libvirt/qemu.conf <<END
user = "root"
group = "root"
dynamic_ownership = 0
security_driver = "none"
stdio_handler = "file"
namespaces = []
END
rm -f /usr/bin/qemu-system-i386
cd /usr/lib/*/libvirt/connection-driver
rm -f libvirt_driver_interface.so libvirt_driver_lxc.so libvirt_driver_network.so \
    libvirt_driver_nwfilter.so libvirt_driver_secret.so libvirt_driver_storage.so
cd /
"""
START_LIBVIRTD: Final = "libvirtd --daemon"
_AGENT_AND_RELAY: Final = (sys.executable, agent_and_relay.__file__)


class NoHost(Exception):
    """There can be no such host here; the message says why."""


def new_host(directory: Path, name: str) -> EmulatedHost:
    """Return a host that is off, for which all is prepared that takes long there.

    :raises NoHost: something for it is not installed.
    """
    missing = emulated_host_missing()
    if missing is None and not Path("/usr/sbin/libvirtd").exists():
        missing = "no libvirtd for the emulated host (Debian package: libvirt-daemon)"
    if missing:
        raise NoHost(missing)
    try:
        host = EmulatedHost(boot_files(), directory, hostname=name)
    except NoKernel as error:
        raise NoHost(f"no kernel for the emulated host: {error}") from error
    # both take seconds there
    compileall.compile_dir(compute_agent.__path__[0], quiet=1)
    environment = {**os.environ, "XDG_CACHE_HOME": str(_cache_of(host))}
    subprocess.run([*_AGENT_AND_RELAY, "entry-points"], env=environment, check=True)
    return host


def _cache_of(host: EmulatedHost) -> Path:
    """Return the directory of a cache that is filled outside and read on the host."""
    return host.directory / "cache"


class Relay:
    """The way to what runs on a host. Safe for several threads, which take turns."""

    def __init__(self, host: EmulatedHost) -> None:
        self.host = host
        self._questions = 0
        self._lock = threading.Lock()

    def install(self, *scripts: str) -> None:
        """Start what is installed, after the scripts; the configuration is there."""
        self._questions = 0
        command = " ".join(["setsid", *_AGENT_AND_RELAY])
        start = f"XDG_CACHE_HOME={_cache_of(self.host)} {command} >/run/outside/relay.log 2>&1 &"
        self.host.run("\n".join([INSTALL, *scripts, START_LIBVIRTD, start]))

    def ask(self, command: str, **arguments: Any) -> Any:
        """Give the agent a command over its local socket."""
        answer = self.hand_over({"command": command, **arguments}, command)
        assert "result" in answer, answer
        return answer["result"]

    def run_python(self, script: str) -> None:
        """Run a script on the host, with what is imported there."""
        if "result" not in self.hand_over({"script": script}, "a script"):
            raise OSError(f"a script failed on the host: {script}")

    def hand_over(self, request_body: dict[str, Any], what: str) -> dict[str, Any]:
        """Return the answer to a request."""
        with self._lock:
            self._questions += 1
            request = self.host.shared / f"{self._questions}.request"
            written = self.host.shared / "asked"
            written.write_text(json.dumps(request_body) + "\n")
            written.rename(request)
            self.host.wait_for(request.with_suffix(".answer"), PATIENCE, f"an answer to {what}")
            answer: dict[str, Any] = json.loads(request.with_suffix(".answer").read_text())
        return answer
