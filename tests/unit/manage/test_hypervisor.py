"""Obstacles between a user and the daemon of libvirt, told by its socket and its words."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from compute_agent.manage.hypervisor import sockets_of, why_unreachable

NOBODY = 65534


@pytest.fixture
def listening() -> Iterator[Path]:
    """A socket in a directory that everybody may enter."""
    with (
        tempfile.TemporaryDirectory(prefix="lv") as directory,
        socket.socket(socket.AF_UNIX) as server,
    ):
        Path(directory).chmod(0o711)
        path = Path(directory, "libvirt-sock")
        server.bind(str(path))
        yield path


@contextmanager
def as_nobody() -> Iterator[None]:
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


@pytest.mark.parametrize(
    ("uri", "paths"),
    [
        ("qemu:///system", ["/run/libvirt/virtqemud-sock", "/run/libvirt/libvirt-sock"]),
        ("qemu+unix:///system?socket=/x/sock", ["/x/sock"]),
        ("lxc:///", ["/run/libvirt/virtlxcd-sock", "/run/libvirt/libvirt-sock"]),
        ("qemu+tls://host2/system", []),
        ("qemu+ssh://host2/system", []),
        ("test:///default", []),
    ],
)
def test_only_a_daemon_of_this_machine_has_sockets_here(uri: str, paths: list[str]) -> None:
    assert [str(path) for path in sockets_of(uri)] == paths


def test_a_socket_that_is_not_there_means_no_daemon(tmp_path: Path) -> None:
    text = why_unreachable(f"qemu+unix:///system?socket={tmp_path}/none", "no connection.")
    assert text.startswith("no connection. No daemon of libvirt listens here: there is no ")
    assert f"{tmp_path}/none" in text
    assert "systemctl enable --now" in text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_a_user_who_may_not_write_to_the_socket_is_told_the_group(listening: Path) -> None:
    uri = f"qemu+unix:///system?socket={listening}"
    listening.chmod(0o770)
    with as_nobody():
        text = why_unreachable(uri, "Permission denied.")
    assert f"may not connect to {listening}, which belongs to root:root with mode 770" in text
    assert "usermod --append --groups root nobody" in text
    listening.chmod(0o700)
    with as_nobody():
        assert "unix_sock_group" in why_unreachable(uri, "Permission denied.")
    listening.parent.chmod(0o700)
    with as_nobody():
        assert f"nobody may not look into {listening.parent}" in why_unreachable(uri, "Denied.")


def test_a_refusal_of_polkit_is_answered_with_a_rule(listening: Path) -> None:
    error = "authentication unavailable: no polkit agent available."
    text = why_unreachable(f"qemu+unix:///system?socket={listening}", error)
    assert "org.libvirt.unix.manage" in text


def test_a_daemon_that_does_not_answer_is_to_be_looked_at(listening: Path) -> None:
    text = why_unreachable(f"qemu+unix:///system?socket={listening}", "Connection refused.")
    assert f"{listening} is there, and its daemon does not answer" in text


def test_a_hypervisor_of_elsewhere_is_to_be_tried_by_hand() -> None:
    text = why_unreachable("qemu+tls://host2/system", "no route.")
    assert "virsh --connect 'qemu+tls://host2/system' version" in text
