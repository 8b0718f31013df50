#!/usr/bin/env bash
# DevStack plugin: this project's placement in place of OpenStack's, an agent and a scheduler.
#
#     enable_plugin compute-agent <URL of the repository>
#
# DevStack sources this file with a phase in $1 and $2.

COMPUTE_PLACEMENT_CONF=$COMPUTE_PLACEMENT_CONF_DIR/placement.conf
COMPUTE_AGENT_CONF=$COMPUTE_AGENT_CONF_DIR/compute-agent.conf

function check_compute_agent {
    # two programs that keep the same provider would undo each other's work
    if is_service_enabled compute-agent && is_service_enabled n-cpu; then
        die $LINENO "compute-agent and n-cpu would both report this host to placement:" \
            "disable_service one of them in local.conf."
    fi
    if is_service_enabled placement-api && is_service_enabled compute-placement; then
        die $LINENO "placement-api and compute-placement are the same service:" \
            "disable_service placement-api in local.conf, after enable_plugin."
    fi
}

function install_compute_agent {
    local extras=bus,server,mysql,postgresql
    if [[ "$COMPUTE_AGENT_DRIVER" == libvirt.* ]]; then
        extras+=,libvirt
    fi
    setup_develop "$COMPUTE_AGENT_DIR" "$extras"
    # configure_keystone_authtoken_middleware names memcached servers
    pip_install_gr python-memcached
}

function configure_compute_placement {
    sudo install -d -o "$STACK_USER" "$COMPUTE_PLACEMENT_CONF_DIR"
    rm -f "$COMPUTE_PLACEMENT_CONF"
    iniset "$COMPUTE_PLACEMENT_CONF" placement_database connection \
        "$(database_connection_url placement)"
    iniset "$COMPUTE_PLACEMENT_CONF" api auth_strategy keystone
    configure_keystone_authtoken_middleware "$COMPUTE_PLACEMENT_CONF" placement
}

function configure_compute_agent {
    sudo install -d -o "$STACK_USER" "$COMPUTE_AGENT_CONF_DIR" "$COMPUTE_AGENT_STATE_DIR"
    rm -f "$COMPUTE_AGENT_CONF"
    iniset "$COMPUTE_AGENT_CONF" DEFAULT compute_driver "$COMPUTE_AGENT_DRIVER"
    iniset "$COMPUTE_AGENT_CONF" DEFAULT state_path "$COMPUTE_AGENT_STATE_DIR"
    iniset "$COMPUTE_AGENT_CONF" DEFAULT transport_url "$(get_transport_url)"
    configure_placement_client "$COMPUTE_AGENT_CONF"
}

# The group [placement] of a client.
function configure_placement_client {
    local file=$1
    iniset "$file" placement auth_type password
    iniset "$file" placement auth_url "$KEYSTONE_SERVICE_URI"
    iniset "$file" placement username placement
    iniset "$file" placement password "$SERVICE_PASSWORD"
    iniset "$file" placement user_domain_name "$SERVICE_DOMAIN_NAME"
    iniset "$file" placement project_name "$SERVICE_PROJECT_NAME"
    iniset "$file" placement project_domain_name "$SERVICE_DOMAIN_NAME"
    iniset "$file" placement region_name "$REGION_NAME"
}

function init_compute_placement {
    recreate_database placement
    "$(get_python_exec_prefix)/placement-manage" --config-file "$COMPUTE_PLACEMENT_CONF" db sync
    create_service_user placement admin
    get_or_create_service placement placement "Placement Service"
    get_or_create_endpoint placement "$REGION_NAME" "$COMPUTE_PLACEMENT_URL"
}

function start_compute_agent {
    local bin
    bin=$(get_python_exec_prefix)
    if is_service_enabled compute-placement; then
        run_process compute-placement "$bin/placement-server serve \
--config-file $COMPUTE_PLACEMENT_CONF --host 0.0.0.0 --port $COMPUTE_PLACEMENT_PORT \
--workers $COMPUTE_PLACEMENT_WORKERS"
        wait_for_service "$SERVICE_TIMEOUT" "$COMPUTE_PLACEMENT_URL"
    fi
    if is_service_enabled compute-agent; then
        run_process compute-agent "$bin/compute-agent run --config-file $COMPUTE_AGENT_CONF"
    fi
    if is_service_enabled compute-scheduler; then
        run_process compute-scheduler \
            "$bin/compute-scheduler --config-file $COMPUTE_AGENT_CONF serve"
    fi
}

function stop_compute_agent {
    stop_process compute-scheduler
    stop_process compute-agent
    stop_process compute-placement
}

function clean_compute_agent {
    sudo rm -rf "$COMPUTE_AGENT_CONF_DIR" "$COMPUTE_AGENT_STATE_DIR" "$COMPUTE_PLACEMENT_CONF"
}

case "$1 ${2:-}" in
    "stack pre-install")
        check_compute_agent
        ;;
    "stack install")
        echo_summary "Installing compute-agent"
        install_compute_agent
        ;;
    "stack post-config")
        echo_summary "Configuring compute-agent"
        if is_service_enabled compute-placement; then
            configure_compute_placement
            init_compute_placement
        fi
        configure_compute_agent
        if is_service_enabled nova; then
            configure_placement_client "$NOVA_CONF"
        fi
        # before the programs of Nova, which look for placement when they start
        start_compute_agent
        ;;
    "unstack ")
        stop_compute_agent
        ;;
    "clean ")
        clean_compute_agent
        ;;
esac
