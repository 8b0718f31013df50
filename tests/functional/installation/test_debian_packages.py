"""The Debian packages, from their build to their purge, on a copy of this machine.

The copy is an overlay in namespaces of its own, with systemd as process 1, so nothing of it stays.
The packages have the libraries of the tests in place of the virtual environment of `make deb`,
which is downloaded.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.functional.documentation.shell_blocks import BlocksToRun

pytestmark = pytest.mark.waiting

ROOT = Path(__file__).resolve().parents[3]
PROGRAMS = ("dpkg-buildpackage", "dh", "setpriv", "unshare", "ip", "runuser", "systemctl")
NAMESPACES = (
    # the copy ends with the tests, also with tests that are killed
    *("setpriv", "--pdeathsig", "KILL"),
    *("unshare", "--mount", "--pid", "--net", "--uts", "--ipc", "--fork", "--kill-child"),
)
BUNDLE = """
set -eu
lib=debian/compute-agent-common/usr/lib/compute-agent
mkdir -p debian/placement-server $lib/bin
printf '#!/bin/sh\\nexec {python} "$@"\\n' >$lib/bin/python3
for program in compute-agent compute-scheduler compute-manage placement placement-server \\
    placement-manage placement-status; do
    sed '1s|.*|#!/usr/lib/compute-agent/bin/python3|' {scripts}/$program >$lib/bin/$program
done
"""
INSIDE = Path(__file__).with_name("packages.sh")
"""The script of the copy: blocks of the documentation in its order, and checks between them."""
UNIT = """
[Unit]
Requires=dbus.socket
After=dbus.socket sysinit.target
SuccessAction=exit-force
FailureAction=exit-force
[Service]
Type=oneshot
ExecStart=/bin/bash {script} {packages} {root}
StandardOutput=file:{output}
StandardError=inherit
TimeoutStartSec=520
"""
COPY = """
set -eu
mkdir -p "$1/cgroup"
mount -t cgroup2 none "$1/cgroup"
mkdir "$1/cgroup/$3"
echo $$ >"$1/cgroup/$3/cgroup.procs"
exec unshare --cgroup sh -c "$4" system "$@"
"""
SYSTEM = """
set -eu
umount "$1/cgroup"
mount -t tmpfs none "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay none -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
mount -t proc proc "$1/root/proc"
mount --bind "$1/root/proc/sys" "$1/root/proc/sys"
mount -o remount,bind,ro "$1/root/proc/sys"
mount -t sysfs -o ro sysfs "$1/root/sys"
mount -t cgroup2 none "$1/root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 none "$1/root/run"
mount -t tmpfs -o mode=755 none "$1/root/dev"
for device in null zero full random urandom tty; do
    touch "$1/root/dev/$device"
    mount --bind "/dev/$device" "$1/root/dev/$device"
done
mkdir "$1/root/dev/shm" "$1/root/dev/pts"
mount -t devpts -o newinstance,ptmxmode=666 none "$1/root/dev/pts"
ln -s pts/ptmx "$1/root/dev/ptmx"
ln -s /proc/self/fd "$1/root/dev/fd"
mkdir -p "$1/root$2"
mount --bind "$2" "$1/root$2"
# this would empty /tmp, where the libraries may be
ln -s /dev/null "$1/root/etc/systemd/system/systemd-tmpfiles-setup.service"
# images of containers forbid the start of services by this
rm -f "$1/root/usr/sbin/policy-rc.d"
# nobody reads manuals there, and nothing there has to outlive a crash
rm -f "$1/root/var/lib/man-db/auto-update"
echo force-unsafe-io >"$1/root/etc/dpkg/dpkg.cfg.d/unsafe-io"
cp "$2/packages.service" "$1/root/etc/systemd/system/"
ip link set lo up
root=$1/root
shift 4
# users of the services may read what the tests have for a virtual environment; only in the copy
for path in "$@"; do
    while [ "$path" != / ]; do
        test ! -e "$root$path" || chmod a+rx "$root$path"
        path=$(dirname "$path")
    done
done
cd "$root"
exec chroot "$root" env --ignore-environment container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    /lib/systemd/systemd --system --unit=packages.service --log-target=console
"""
REMOVE_GROUP = """
set -eu
mount -t cgroup2 none "$1"
# processes of a copy that was interrupted may be about to end
for attempt in $(seq 100); do
    test -d "$1/$2" || exit 0
    find "$1/$2" -depth -type d -exec rmdir {} + 2>"$1.errors" || sleep 0.1
done
cat "$1.errors" >&2
"""
TRIAL = """
set -eu
mount -t tmpfs none /mnt
mkdir /mnt/upper /mnt/work /mnt/root /mnt/cgroup
mount -t overlay none -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work /mnt/root
mount -t cgroup2 none /mnt/cgroup
rmdir "$(mktemp -d /mnt/cgroup/packages-XXXXXX)"
"""


def missing() -> str | None:
    """Return why these tests cannot run here, None if they can."""
    absent = [program for program in PROGRAMS if shutil.which(program) is None]
    if absent:
        return (
            f"needs {', '.join(absent)} (Debian packages: debhelper, dpkg-dev, iproute2, systemd)"
        )
    if os.geteuid() != 0:
        return "needs root, for a copy of this machine"
    done = subprocess.run([*NAMESPACES, "sh", "-c", TRIAL], capture_output=True, check=False)
    return None if done.returncode == 0 else "needs namespaces, an overlay of / and cgroups"


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder `first` with the packages, and `second` with the same of a newer version."""
    if (reason := missing()) is not None:
        pytest.skip(reason)
    directory = tmp_path_factory.mktemp("packages")
    bundle = directory / "bundle.sh"
    scripts = sysconfig.get_path("scripts")
    bundle.write_text(BUNDLE.format(python=sys.executable, scripts=scripts))
    built = subprocess.run(
        ["sh", str(ROOT / "tools/deb.sh"), str(directory / "first")],
        env={**os.environ, "BUNDLE": str(bundle), "DEB_BUILD_OPTIONS": "nocheck"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    (directory / "second").mkdir()
    for package in (directory / "first").iterdir():
        unpacked = directory / package.stem
        subprocess.run(["dpkg-deb", "--raw-extract", package, unpacked], check=True)
        control = unpacked / "DEBIAN" / "control"
        control.write_text(control.read_text().replace("0.1.0", "0.1.0+newer"))
        for unit in unpacked.glob("lib/systemd/system/*.service"):
            text = unit.read_text().replace("[Service]\n", "[Service]\nEnvironment=PACKAGE=newer\n")
            unit.write_text(text)
        target = directory / "second" / package.name
        subprocess.run(["dpkg-deb", "-Znone", "--build", unpacked, target], check=True)
    return directory


def remove_group(directory: Path, name: str) -> None:
    """Remove the control groups of the copy, which its namespaces leave behind."""
    command = ["unshare", "--mount", "sh", "-c", REMOVE_GROUP, "remove", str(directory), name]
    subprocess.run(command, check=False)


@pytest.mark.timeout(660)
def test_packages_are_installed_run_upgraded_and_purged(packages: Path, tmp_path: Path) -> None:
    libraries = {str(Path(path).resolve()) for path in [sys.prefix, sys.base_prefix, *sys.path]}
    script, printed = packages / "inside.sh", packages / "output"
    blocks = BlocksToRun("with installed packages")
    script.write_text(
        re.sub(
            r"^# page: (\S+)$",
            lambda place: blocks.next_of(place[1]),
            INSIDE.read_text(),
            flags=re.MULTILINE,
        )
    )
    assert blocks.left == {}
    unit = UNIT.format(script=script, packages=packages, root=ROOT, output=printed)
    (packages / "packages.service").write_text(unit)
    group = f"packages-{os.getpid()}"
    arguments = [str(tmp_path), str(packages), group, SYSTEM, *libraries]
    try:
        done = subprocess.run(
            [*NAMESPACES, "sh", "-c", COPY, "copy", *arguments],
            capture_output=True,
            text=True,
            timeout=540,
            check=False,
        )
    finally:
        remove_group(tmp_path, group)
    output = printed.read_text() if printed.exists() else ""
    assert output.endswith("all done\n"), f"{output}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    assert "/etc/compute-agent/compute-agent.conf 640 root:compute-agent" in output
    assert "/etc/compute-scheduler/compute-scheduler.conf 640 root:compute-scheduler" in output
    assert "/etc/placement/placement.conf 640 root:placement" in output
    assert "after /etc/compute-agent/compute-agent.conf 640 root:compute-agent" in output
    assert "landed on copied-host" in output
    for name in (r"libvirt\.py", r"libvirtmod\.\S+\.so"):
        assert re.search(rf"python3/dist-packages/{name}\n", output), "Debian's python3-libvirt"
    # a package that was just installed neither starts nor enables its service
    assert output.count("ActiveState=inactive\nUnitFileState=disabled\n") == 3


@pytest.mark.skipif(shutil.which("lintian") is None, reason="needs lintian")
def test_lintian_finds_nothing(packages: Path, tmp_path: Path) -> None:
    found = subprocess.run(
        ["lintian", "--allow-root", "--fail-on=error,warning", *(packages / "first").iterdir()],
        # it leaves files of its own there
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (found.returncode, re.findall(r"^[EW]: .*", found.stdout, re.MULTILINE)) == (0, [])
