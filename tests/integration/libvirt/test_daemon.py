"""The test's own libvirt daemon: a machine of its own, and guests that outlive it."""

from __future__ import annotations

from pathlib import Path

import libvirt

from tests.data.archive import unpack
from tests.fixtures.libvirtd import running_libvirtd


def test_a_daemon_sees_the_captured_machine(libvirt_run_directory: Path, tmp_path: Path) -> None:
    machine = unpack("emulated-numa", tmp_path)
    with running_libvirtd(libvirt_run_directory, machine) as daemon:
        connection = libvirt.open(daemon.uri)
        assert connection.getInfo()[4] == 2
        connection.close()
