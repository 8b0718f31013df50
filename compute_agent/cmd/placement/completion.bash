# Written by tools/completions.py. The command placement reads names of hosts, once a minute.
_compute_agent_hosts() {
    if [ $((SECONDS - ${_compute_agent_hosts_read:--60})) -ge 60 ]; then
        _compute_agent_host_names="$(timeout 5 placement provider list \
            --required COMPUTE_NODE -f value -c name 2>/dev/null)"
        _compute_agent_hosts_read=$SECONDS
    fi
}
_compute_agent_completion() {
    local word command="${COMP_WORDS[0]##*/}" words= hosts=
    local last="${COMP_WORDS[$((COMP_CWORD - 1))]}" current="${COMP_WORDS[$COMP_CWORD]}"
    for word in "${COMP_WORDS[@]:1:$((COMP_CWORD - 1))}"; do
        case " compute-agent/run compute-agent/plan compute-agent/show compute-agent/diff compute-agent/status compute-agent/report compute-agent/history compute-agent/claims compute-agent/fit compute-agent/drop-claim compute-agent/enable compute-agent/disable compute-agent/clear-fault compute-agent/doctor compute-agent/capture compute-agent/dev compute-scheduler/claim compute-scheduler/release compute-scheduler/select compute-scheduler/explain compute-scheduler/make-room compute-scheduler/reschedule compute-scheduler/delete compute-scheduler/attach compute-scheduler/detach compute-scheduler/move/begin compute-scheduler/move/finish compute-scheduler/move/revert compute-scheduler/move/returned compute-scheduler/move compute-scheduler/list compute-scheduler/top compute-scheduler/serve compute-scheduler/status compute-manage/placement/migrate_compute_inventory compute-manage/placement/rename compute-manage/placement/delete-host compute-manage/placement/adopt compute-manage/placement/heal_allocations compute-manage/placement/audit compute-manage/placement/sync_aggregates compute-manage/placement compute-manage/host/list compute-manage/host/show compute-manage/host/enable compute-manage/host/disable compute-manage/host/report compute-manage/host/drain compute-manage/host compute-manage/bundle placement/provider/list placement/provider/show placement/provider/create placement/provider/set placement/provider/delete placement/provider placement/tree placement/usage placement/inventory/list placement/inventory/set placement/inventory/delete placement/inventory placement/trait/list placement/trait/set placement/trait/create placement/trait/delete placement/trait placement/class/list placement/class/create placement/class/delete placement/class placement/aggregate/list placement/aggregate/members placement/aggregate/set placement/aggregate placement/allocation/show placement/allocation/list placement/allocation/set placement/allocation/delete placement/allocation placement/candidates placement/claim placement/explain placement/capacity placement/fragmentation placement/what-if placement/history placement/watch placement/export placement/apply placement/reshape placement/completion placement-server/serve placement-manage/db/stamp placement-manage/db/downgrade placement-manage/db/online_data_migrations placement-manage/db placement-manage/audit placement-manage/prune placement-status/upgrade " in
            *" $command/$word "*) command="$command/$word" ;;
        esac
    done
    case "$command" in
        compute-agent/run) words='-h --help --config-file --config-dir --debug --adopt' ;;
        compute-agent/plan) words='-h --help --config-file --config-dir --debug --node --json --from-capture --tree' ;;
        compute-agent/show) words='-h --help --config-file --config-dir --debug --node --json --class --used --providers --traits --bytes --details' ;;
        compute-agent/diff) words='-h --help --config-file --config-dir --debug --json' hosts='HOST' ;;
        compute-agent/status) words='-h --help --config-file --config-dir --debug --json' ;;
        compute-agent/report) words='-h --help --config-file --config-dir --debug --node --no-wait --json' ;;
        compute-agent/history) words='-h --help --config-file --config-dir --debug --json' ;;
        compute-agent/claims) words='-h --help --config-file --config-dir --debug --json' ;;
        compute-agent/fit) words='-h --help --config-file --config-dir --debug --node' ;;
        compute-agent/drop-claim) words='-h --help --config-file --config-dir --debug' ;;
        compute-agent/enable) words='-h --help --config-file --config-dir --debug' ;;
        compute-agent/disable) words='-h --help --config-file --config-dir --debug --reason' ;;
        compute-agent/clear-fault) words='-h --help --config-file --config-dir --debug' hosts='HOST' ;;
        compute-agent/doctor) words='-h --help --config-file --config-dir --debug --json' ;;
        compute-agent/capture) words='-h --help --config-file --config-dir --debug' ;;
        compute-agent) words='-h --help --version run plan show diff status report history claims fit drop-claim enable disable clear-fault doctor capture dev' ;;
        compute-agent/dev) words='-h --help --machine --fake --hosts --once --port --state-dir --interval --flat' ;;
        compute-scheduler/claim) words='-h --help --resources --group --required --forbidden --member-of --in-tree --root-required --same-subtree --group-policy --host --project --user --type --consumer --json' hosts='--host' ;;
        compute-scheduler/release) words='-h --help --json' ;;
        compute-scheduler/select) words='-h --help --alternates --json' ;;
        compute-scheduler/explain) words='-h --help --resources --group --required --forbidden --member-of --in-tree --root-required --same-subtree --group-policy --host --project --user --type --spec --json' hosts='--host' ;;
        compute-scheduler/make-room) words='-h --help --resources --group --required --forbidden --member-of --in-tree --root-required --same-subtree --group-policy --host --project --user --type --spec --max-moves --places --time-limit --swap --keep --keep-project --carry-out --mover --at-once --json' hosts='--host' ;;
        compute-scheduler/reschedule) words='-h --help --failed' hosts='--failed' ;;
        compute-scheduler/delete) words='-h --help --migration --local' ;;
        compute-scheduler/attach) words='-h --help --before' ;;
        compute-scheduler/detach) words='-h --help --before' ;;
        compute-scheduler/move/begin) words='-h --help --migration --source --alternates cold live evacuate' ;;
        compute-scheduler/move/finish) words='-h --help' ;;
        compute-scheduler/move/revert) words='-h --help' ;;
        compute-scheduler/move/returned) words='-h --help' ;;
        compute-scheduler/move) words='-h --help begin finish revert returned' ;;
        compute-scheduler/list) words='-h --help --host --project --json' hosts='--host' ;;
        compute-scheduler/top) words='-h --help --url --interval --count' ;;
        compute-scheduler/serve) words='-h --help --worker' ;;
        compute-scheduler/status) words='-h --help --json upgrade' ;;
        compute-scheduler) words='-h --help --version --config-file --config-dir --os-cloud --debug claim release select explain make-room reschedule delete attach detach move list top serve status' ;;
        compute-manage/placement/migrate_compute_inventory) words='-h --help --config-file --config-dir --os-cloud --placement-config --request-timeout --dry-run --json --verbose --node --plan' ;;
        compute-manage/placement/rename) words='-h --help --config-file --config-dir --os-cloud --placement-config --request-timeout --dry-run --json --verbose' hosts='HOST' ;;
        compute-manage/placement/delete-host) words='-h --help --config-file --config-dir --os-cloud --placement-config --request-timeout --dry-run --json --verbose --evacuated --force' hosts='HOST' ;;
        compute-manage/placement/adopt) words='-h --help --config-file --config-dir --os-cloud --placement-config --request-timeout --dry-run --json --verbose' ;;
        compute-manage/placement/heal_allocations) words='-h --help --config-file --config-dir --os-cloud --placement-config --request-timeout --dry-run --json --verbose --instances --max-count --instance --cell --skip-port-allocations --force --force-overcommit' ;;
        compute-manage/placement/audit) words='-h --help --config-file --config-dir --os-cloud --placement-config --request-timeout --dry-run --json --verbose --delete --resource_provider --min-age --host-age --instances' ;;
        compute-manage/placement/sync_aggregates) words='-h --help --config-file --config-dir --os-cloud --placement-config --request-timeout --dry-run --json --verbose --prune' ;;
        compute-manage/placement) words='-h --help migrate_compute_inventory rename delete-host adopt heal_allocations audit sync_aggregates' ;;
        compute-manage/host/list) words='-h --help --config-file --config-dir --os-cloud --placement-config --request-timeout --dry-run --json --verbose --sort --troubled --required --member-of -f --format -c --column --class --bytes --watch --interval' ;;
        compute-manage/host/show) words='-h --help --config-file --config-dir --os-cloud --placement-config --request-timeout --dry-run --json --verbose --class --used --providers --traits --bytes' hosts='HOST' ;;
        compute-manage/host/enable) words='-h --help --config-file --config-dir --os-cloud --placement-config --request-timeout --dry-run --json --verbose' hosts='HOST' ;;
        compute-manage/host/disable) words='-h --help --config-file --config-dir --os-cloud --placement-config --request-timeout --dry-run --json --verbose --reason' hosts='HOST' ;;
        compute-manage/host/report) words='-h --help --config-file --config-dir --os-cloud --placement-config --request-timeout --dry-run --json --verbose' hosts='HOST' ;;
        compute-manage/host/drain) words='-h --help --config-file --config-dir --os-cloud --placement-config --request-timeout --dry-run --json --verbose --reason --watch --timeout --interval --with --undo' hosts='HOST' ;;
        compute-manage/host) words='-h --help list show enable disable report drain' ;;
        compute-manage/bundle) words='-h --help --config-file --config-dir --os-cloud --placement-config --request-timeout --dry-run --json --verbose' ;;
        compute-manage) words='-h --help --version placement host bundle' ;;
        placement/provider/list) words='-h --help -f --format -c --column --json --name --in-tree --resources --required --member-of' hosts='--in-tree' ;;
        placement/provider/show) words='-h --help -f --format -c --column --json' hosts='HOST' ;;
        placement/provider/create) words='-h --help -f --format -c --column --json --uuid --parent' hosts='--parent' ;;
        placement/provider/set) words='-h --help -f --format -c --column --json --name --parent --root' hosts='HOST --parent' ;;
        placement/provider/delete) words='-h --help -f --format -c --column --json' hosts='HOST' ;;
        placement/provider) words='-h --help list show create set delete' ;;
        placement/tree) words='-h --help -f --format -c --column --json --class --used --providers --traits --bytes --full' hosts='HOST' ;;
        placement/usage) words='-h --help -f --format -c --column --json --project --user' hosts='HOST' ;;
        placement/inventory/list) words='-h --help -f --format -c --column --json' hosts='HOST' ;;
        placement/inventory/set) words='-h --help -f --format -c --column --json --reserved --min-unit --max-unit --step-size --allocation-ratio --only' hosts='HOST' ;;
        placement/inventory/delete) words='-h --help -f --format -c --column --json --all' hosts='HOST' ;;
        placement/inventory) words='-h --help list set delete' ;;
        placement/trait/list) words='-h --help -f --format -c --column --json --prefix --associated' hosts='HOST' ;;
        placement/trait/set) words='-h --help -f --format -c --column --json --add --remove' hosts='HOST' ;;
        placement/trait/create) words='-h --help -f --format -c --column --json' ;;
        placement/trait/delete) words='-h --help -f --format -c --column --json' ;;
        placement/trait) words='-h --help list set create delete' ;;
        placement/class/list) words='-h --help -f --format -c --column --json' ;;
        placement/class/create) words='-h --help -f --format -c --column --json' ;;
        placement/class/delete) words='-h --help -f --format -c --column --json' ;;
        placement/class) words='-h --help list create delete' ;;
        placement/aggregate/list) words='-h --help -f --format -c --column --json' hosts='HOST' ;;
        placement/aggregate/members) words='-h --help -f --format -c --column --json' ;;
        placement/aggregate/set) words='-h --help -f --format -c --column --json --add --remove' hosts='HOST' ;;
        placement/aggregate) words='-h --help list members set' ;;
        placement/allocation/show) words='-h --help -f --format -c --column --json' ;;
        placement/allocation/list) words='-h --help -f --format -c --column --json' hosts='HOST' ;;
        placement/allocation/set) words='-h --help -f --format -c --column --json --project --user --type' ;;
        placement/allocation/delete) words='-h --help -f --format -c --column --json' ;;
        placement/allocation) words='-h --help show list set delete' ;;
        placement/candidates) words='-h --help -f --format -c --column --json --resources --required --in-tree --member-of --limit' hosts='--in-tree' ;;
        placement/claim) words='-h --help -f --format -c --column --json --resources --required --in-tree --member-of --consumer --project --user --type --limit' hosts='--in-tree' ;;
        placement/explain) words='-h --help -f --format -c --column --json --resources --required --in-tree --member-of' hosts='--in-tree' ;;
        placement/capacity) words='-h --help -f --format -c --column --json --resources --required --in-tree --member-of --in-each --trees --disabled' hosts='--in-tree' ;;
        placement/fragmentation) words='-h --help -f --format -c --column --json --member-of' ;;
        placement/what-if) words='-h --help -f --format -c --column --json --resources --required --in-tree --member-of --disabled --add-like --remove --release --set-inventory --set-traits' hosts='--in-tree --add-like --remove' ;;
        placement/history) words='-h --help -f --format -c --column --json --consumer --name --limit' hosts='HOST' ;;
        placement/watch) words='-h --help -f --format -c --column --json --consumer --name' hosts='HOST' ;;
        placement/export) words='-h --help --json' hosts='HOST' ;;
        placement/apply) words='-h --help --json --dry-run' ;;
        placement/reshape) words='-h --help --json --dry-run' ;;
        placement/completion) words='-h --help bash zsh' ;;
        placement) words='-h --help --version --os-cloud --url --token --config-file provider tree usage inventory trait class aggregate allocation candidates claim explain capacity fragmentation what-if history watch export apply reshape completion' ;;
        placement-server/serve) words='-h --help --config-file --config-dir --host --port --workers --threads --tls-cert --tls-key --database-url --sync-database --auth-strategy' ;;
        placement-server) words='-h --help --version serve' ;;
        placement-manage/db/stamp) words='-h --help' ;;
        placement-manage/db/downgrade) words='-h --help' ;;
        placement-manage/db/online_data_migrations) words='-h --help --max-count' ;;
        placement-manage/db) words='-h --help sync version stamp downgrade online_data_migrations' ;;
        placement-manage/audit) words='-h --help --repair --watch --metrics-bind' ;;
        placement-manage/prune) words='-h --help --dry-run --vacuum' ;;
        placement-manage) words='-h --help --config-dir --config-file --debug -d --log-config-append --log-config --log_config --log-date-format --log-dir --logdir --log-file --logfile --nodebug --nouse-journal --nouse-json --nouse-syslog --shell_completion --syslog-log-facility --use-journal --use-json --use-syslog --version db audit prune' ;;
        placement-status/upgrade) words='-h --help --json check' ;;
        placement-status) words='-h --help --config-dir --config-file --debug -d --log-config-append --log-config --log_config --log-date-format --log-dir --logdir --log-file --logfile --nodebug --nouse-journal --nouse-json --nouse-syslog --shell_completion --syslog-log-facility --use-journal --use-json --use-syslog --version upgrade' ;;
    esac
    case " $hosts " in
        *" $last "*) words= ;;
        *" HOST "*) case "$current" in -*) hosts= ;; esac ;;
        *) hosts= ;;
    esac
    if [ -n "$hosts" ]; then
        _compute_agent_hosts
        words="$words $_compute_agent_host_names"
    fi
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o default -F _compute_agent_completion compute-agent compute-scheduler compute-manage placement placement-server placement-manage placement-status
