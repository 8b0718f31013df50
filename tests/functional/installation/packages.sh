# What the test of the Debian packages does in its copy of a machine. A line "# page: FOLDER/NAME"
# becomes the next block of that page of the documentation.
#     packages.sh PACKAGES CHECKOUT
set -eu -o pipefail
export DEBIAN_FRONTEND=noninteractive LANG=C.UTF-8
services="placement-server compute-agent compute-scheduler"
cd "$1"
checkout=$2

wait_for() {
    deadline=$((SECONDS + 60))
    while [ $SECONDS -lt $deadline ]; do
        if "$@" >/dev/null 2>&1; then return; fi
        sleep 0.1
    done
    systemctl status --no-pager $services || true
    tail -n 20 *.log
    return 1
}
serves() { curl --silent --fail http://127.0.0.1:8779/; }
pid() { systemctl show --property=MainPID --value $1; }
inactive() { [ "$(systemctl show --property=ActiveState --value $1)" = inactive ]; }
just_installed() {
    for service; do
        systemd-analyze verify --man=no /lib/systemd/system/$service.service
        systemctl show --property=ActiveState,UnitFileState $service
    done
}
# the libraries of the tests may be in somebody's home or in /tmp
for service in $services; do
    mkdir -p /run/systemd/system/$service.service.d
    printf '[Service]\nPrivateTmp=no\nReadWritePaths=/tmp\nProtectHome=no\n%s\n' \
        "StandardError=append:$PWD/$service.log" \
        >/run/systemd/system/$service.service.d/libraries.conf
done

# what a reader has, or does by hand
ln -s first dist
# `plan` ends with 6 where something would change, `doctor` with 1 where this machine is a strange one
sudo() { (shift; runuser -u "$1" -- "${@:2}") || [ $? = 6 ]; }
compute-agent() { command compute-agent "$@" || [ "$1 $?" = "doctor 1" ]; }
configured() {
    settings='host = copied-host\nperiodic_fuzzy_delay = 0\ntransport_url = fake:/'
    sed -i "0,/^\[DEFAULT\]/s||[DEFAULT]\n$settings|" $1
    printf '[placement]\nauth_type = noauth\nendpoint_override = http://127.0.0.1:8779\n' >>$1
}
editor() {
    just_installed compute-agent
    configured $1
}
# what only has to be recommended is not on this machine
printf 'APT::%s;\n' 'Install-Recommends "false"' 'Get::Assume-Yes "true"' >/etc/apt/apt.conf.d/99no-recommends

dpkg --install first/compute-agent-common_*.deb first/placement-server_*.deb \
    first/compute-scheduler_*.deb
# the real environment comes compiled; a checkout may not be
/usr/lib/compute-agent/bin/python3 -m compileall -q "$checkout/compute_agent" \
    "$checkout/placement_server"
just_installed placement-server compute-scheduler

cat >>/etc/placement/placement.conf <<END
[placement_database]
connection = sqlite:////var/lib/placement/placement.db
sync_on_startup = true
[api]
auth_strategy = noauth2
END
# page: do/production
wait_for serves

# these two say when they are ready: the host is in placement then
# page: do/install
for file in libvirt.py libvirtmod.*.so; do
    readlink /usr/lib/compute-agent/lib/python3.*/site-packages/$file
done
stat --format='%n %a %U:%G' /etc/compute-agent/compute-agent.conf \
    /etc/compute-scheduler/compute-scheduler.conf /etc/placement/placement.conf
placement --url http://127.0.0.1:8779 tree copied-host
# page: do/production
runuser -u compute-agent -- compute-agent status
configured /etc/compute-scheduler/compute-scheduler.conf
# page: do/production
runuser -u compute-scheduler -- compute-scheduler \
    --config-file /etc/compute-scheduler/compute-scheduler.conf claim --resources VCPU=1
# page: do/production
for service in $services; do
    systemctl is-active $service
done

# an upgrade starts again what runs, with the new unit, and nothing else
systemctl stop compute-scheduler
first="$(pid placement-server) $(pid compute-agent)"
dpkg --install second/*.deb
for service in placement-server compute-agent; do
    systemctl is-active $service
    systemctl show --property=Environment $service | grep PACKAGE=newer
done
for process in $first; do test ! -d /proc/$process; done
inactive compute-scheduler
wait_for serves
grep -q copied-host /etc/compute-agent/compute-agent.conf
stat --format='after %n %a %U:%G' /etc/compute-agent/compute-agent.conf
test -s /var/lib/compute-agent/compute_id

systemctl start $services
second="$(pid placement-server) $(pid compute-agent) $(pid compute-scheduler)"
for process in $second; do test -d /proc/$process; done
dpkg --remove $services compute-agent-common
for service in $services; do inactive $service; done
for process in $second; do test ! -d /proc/$process; done
grep -q copied-host /etc/compute-agent/compute-agent.conf

dpkg --purge $services compute-agent-common
for path in /etc/compute-agent /etc/compute-scheduler /etc/placement /var/lib/compute-agent \
    /var/lib/compute-scheduler /usr/lib/compute-agent /usr/bin/placement \
    /etc/systemd/system/multi-user.target.wants/compute-scheduler.service; do
    test ! -e $path || { echo "$path is left: $(ls -R $path)"; exit 1; }
done

# an installation without packages
install -D /bin/true /opt/compute-agent/bin/compute-agent
install -d /opt/compute-agent/share/compute-agent
cp -r "$checkout/etc" /opt/compute-agent/share/compute-agent/
(
# page: do/install
)
id compute-agent
systemd-analyze verify --man=no /etc/systemd/system/compute-agent.service
echo all done
