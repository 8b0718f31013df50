"""The Debian packages: built, installed, run, upgraded and purged on a copy of this machine.

The copy is an overlay in namespaces of its own, so nothing of it stays. The packages have the
libraries of the tests in place of the virtual environment of ``make deb``, which is downloaded.
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

ROOT = Path(__file__).resolve().parents[3]
PROGRAMS = ("dpkg-buildpackage", "dh", "unshare", "ip", "runuser", "systemd-sysusers")
NAMESPACES = ("unshare", "--mount", "--pid", "--net", "--fork", "--kill-child")
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
INSIDE = r"""
set -eu -o pipefail
export DEBIAN_FRONTEND=noninteractive LANG=C.UTF-8
ip link set lo up
cd "$1"

dpkg --install first/*.deb
for service in compute-agent compute-scheduler placement-server; do
    systemd-analyze verify --man=no /lib/systemd/system/$service.service
    ! systemctl is-enabled --quiet $service
done
stat --format='%n %a %U:%G' /etc/compute-agent/compute-agent.conf \
    /etc/compute-scheduler/compute-scheduler.conf /etc/placement/placement.conf

# what StateDirectory= of a unit does
for user in compute-agent compute-scheduler placement; do
    install -d -o $user -g $user /var/lib/$user
done
cat >>/etc/placement/placement.conf <<END
[placement_database]
connection = sqlite:////var/lib/placement/placement.db
[api]
auth_strategy = noauth2
END
for name in agent scheduler; do
    printf '[placement]\nauth_type = noauth\nendpoint_override = http://127.0.0.1:8779\n' \
        >>/etc/compute-$name/compute-$name.conf
done

# The command of a unit, as its user.
run_unit() {
    file=/lib/systemd/system/$1.service
    user=$(sed -n 's/^User=//p' $file)
    (cd / && exec runuser -u $user -- $(sed -n 's/^ExecStart=//p' $file)) >"$1.log" 2>&1 &
}
wait_for() {
    deadline=$((SECONDS + 90))
    while [ $SECONDS -lt $deadline ]; do
        if "$@" >/dev/null 2>&1; then return; fi
        sleep 0.1
    done
    tail -n 20 ./*.log
    return 1
}
has_host() { placement --url http://127.0.0.1:8779 tree copied-host; }

sed -i '/^compute_driver/i host = copied-host' /etc/compute-agent/compute-agent.conf
runuser -u placement -- placement-manage --config-file /etc/placement/placement.conf db sync
run_unit placement-server
run_unit compute-agent
wait_for has_host
runuser -u compute-scheduler -- compute-scheduler \
    --config-file /etc/compute-scheduler/compute-scheduler.conf claim --resources VCPU=1

dpkg --install second/*.deb
grep -q copied-host /etc/compute-agent/compute-agent.conf
compute-agent --version
stat --format='after %n %a %U:%G' /etc/compute-agent/compute-agent.conf
test -s /var/lib/compute-agent/compute_id

dpkg --purge compute-agent compute-scheduler placement-server compute-agent-common
for path in /etc/compute-agent /etc/compute-scheduler /etc/placement /var/lib/compute-agent \
    /var/lib/compute-scheduler /usr/lib/compute-agent /usr/bin/placement; do
    test ! -e $path || { echo "$path is left: $(ls -R $path)"; exit 1; }
done
test -s /var/lib/placement/placement.db
echo all done
"""
COPY = """
set -eu
mount -t tmpfs none "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay none -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
mount --rbind /proc "$1/root/proc"
mount --rbind /dev "$1/root/dev"
mount -t tmpfs none "$1/root/run"
mkdir -p "$1/root$2"
mount --bind "$2" "$1/root$2"
root=$1/root packages=$2 script=$3
shift 3
# users of the services may read what the tests have for a virtual environment; only in the copy
for path in "$@"; do
    while [ "$path" != / ]; do
        test ! -e "$root$path" || chmod a+rx "$root$path"
        path=$(dirname "$path")
    done
done
exec chroot "$root" bash -c "$script" inside "$packages"
"""


def missing() -> str | None:
    """What keeps these tests from running here."""
    if os.environ.get("TEST_PACKAGES") != "yes":
        return "takes half a minute of two cores: set TEST_PACKAGES=yes"
    absent = [program for program in PROGRAMS if shutil.which(program) is None]
    if absent:
        return f"needs {', '.join(absent)} (Debian packages: debhelper, iproute2, systemd)"
    if os.geteuid() != 0:
        return "needs root, for a copy of this machine"
    overlay = "mount -t tmpfs none /mnt && mkdir /mnt/u /mnt/w && mount -t overlay none "
    overlay += "-o lowerdir=/,upperdir=/mnt/u,workdir=/mnt/w /mnt"
    done = subprocess.run(
        ["unshare", "--mount", "--net", "sh", "-c", overlay], capture_output=True, check=False
    )
    return None if done.returncode == 0 else "needs namespaces and an overlay of /"


MISSING = missing()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder `first` with the packages, and `second` with the same of a newer version."""
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
        target = directory / "second" / package.name
        subprocess.run(["dpkg-deb", "-Znone", "--build", unpacked, target], check=True)
    return directory


def test_packages_are_installed_run_upgraded_and_purged(packages: Path, tmp_path: Path) -> None:
    libraries = {str(Path(path).resolve()) for path in [sys.prefix, sys.base_prefix, *sys.path]}
    done = subprocess.run(
        [*NAMESPACES, "sh", "-c", COPY, "copy", str(tmp_path), str(packages), INSIDE, *libraries],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    assert done.stdout.endswith("all done\n"), output
    assert "/etc/compute-agent/compute-agent.conf 640 root:compute-agent" in output
    assert "/etc/compute-scheduler/compute-scheduler.conf 640 root:compute-scheduler" in output
    assert "/etc/placement/placement.conf 640 root:placement" in output
    assert "after /etc/compute-agent/compute-agent.conf 640 root:compute-agent" in output
    assert "landed on copied-host" in output


@pytest.mark.skipif(shutil.which("lintian") is None, reason="needs lintian")
def test_lintian_finds_nothing(packages: Path) -> None:
    found = subprocess.run(
        ["lintian", "--allow-root", "--fail-on=error,warning", *(packages / "first").iterdir()],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (found.returncode, re.findall(r"^[EW]: .*", found.stdout, re.MULTILINE)) == (0, [])
