"""The samples in etc/ are current, and what they show is what the server reads."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from oslo_config import cfg
from oslo_policy import generator as policy_generator
from oslo_policy import policy

from placement_server.conf import list_opts, new_config
from placement_server.policies.enforcer import list_rules

ETC = Path(__file__).parents[3] / "etc"


def test_the_sample_policy_is_current(tmp_path: Path) -> None:
    output = tmp_path / "policy.yaml.sample"
    policy_generator.generate_sample(
        [
            *("--config-file", str(ETC / "placement-policy-generator.conf")),
            *("--output-file", str(output)),
        ],
        conf=cfg.ConfigOpts(),
    )
    assert output.read_text() == (ETC / "placement-policy.yaml.sample").read_text(), (
        "run: oslopolicy-sample-generator --config-file etc/placement-policy-generator.conf"
    )


def test_the_samples_change_nothing(tmp_path: Path) -> None:
    conf = new_config(config_files=[ETC / "placement.conf.sample"])
    plain = new_config(config_files=[])
    for group, options in list_opts():
        for option in options:
            values = [c[group][option.dest] if group else c[option.dest] for c in (conf, plain)]
            assert values[0] == values[1]
    assert yaml.safe_load((ETC / "placement-policy.yaml.sample").read_text()) is None


DEFAULTS = [
    ("api", "auth_strategy", "keystone"),
    ("placement", "randomize_allocation_candidates", False),
    ("placement", "incomplete_consumer_project_id", "00000000-0000-0000-0000-000000000000"),
    ("placement", "incomplete_consumer_user_id", "00000000-0000-0000-0000-000000000000"),
    ("placement", "allocation_conflict_retry_count", 10),
    ("placement", "max_allocation_candidates", -1),
    ("placement", "allocation_candidates_generation_strategy", "depth-first"),
    ("workarounds", "optimize_for_wide_provider_trees", False),
    ("placement_database", "connection", None),
    ("placement_database", "connection_parameters", ""),
    ("placement_database", "sqlite_synchronous", True),
    ("placement_database", "slave_connection", None),
    ("placement_database", "mysql_sql_mode", "TRADITIONAL"),
    ("placement_database", "connection_recycle_time", 3600),
    ("placement_database", "max_pool_size", None),
    ("placement_database", "max_overflow", None),
    ("placement_database", "pool_timeout", None),
    ("placement_database", "max_retries", 10),
    ("placement_database", "retry_interval", 10),
    ("placement_database", "connection_debug", 0),
    ("placement_database", "connection_trace", False),
    ("placement_database", "sync_on_startup", False),
    ("oslo_policy", "policy_file", "policy.yaml"),
    ("oslo_policy", "policy_dirs", ["policy.d"]),
    ("oslo_policy", "policy_default_rule", "default"),
    ("cors", "allowed_origin", None),
    ("cors", "allow_credentials", True),
    ("cors", "max_age", 3600),
    ("cors", "allow_methods", ["GET", "PUT", "POST", "DELETE", "PATCH"]),
    ("oslo_middleware", "enable_proxy_headers_parsing", False),
    ("keystone_authtoken", "service_token_roles_required", True),
    (None, "log_options", True),
    (None, "tempdir", None),
    (None, "debug", False),
]


@pytest.mark.parametrize(("group", "name", "default"), DEFAULTS)
def test_options_have_the_names_and_defaults_that_operators_know(
    group: str | None, name: str, default: object
) -> None:
    conf = new_config(config_files=[])
    assert (conf[group][name] if group else conf[name]) == default


def test_state_path_is_the_base_directory_and_routes_log_little() -> None:
    conf = new_config(config_files=[])
    assert conf.state_path == conf.pybasedir
    assert "routes=INFO" in conf.default_log_levels


def test_the_auth_strategy_is_also_read_from_its_old_place(tmp_path: Path) -> None:
    old = tmp_path / "placement.conf"
    old.write_text("[DEFAULT]\nauth_strategy = noauth2\n")
    assert new_config(config_files=[old]).api.auth_strategy == "noauth2"


def test_the_environment_names_a_directory_and_single_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "placement.conf").write_text("[api]\nauth_strategy = noauth2\n")
    monkeypatch.setenv("OS_PLACEMENT_CONFIG_DIR", str(tmp_path))
    monkeypatch.setenv("OS_PLACEMENT_DATABASE__CONNECTION", "sqlite://")
    conf = new_config()
    assert conf.api.auth_strategy == "noauth2"
    assert conf.placement_database.connection == "sqlite://"


def test_two_configurations_share_nothing() -> None:
    first, second = new_config(config_files=[]), new_config(config_files=[])
    first.set_override("auth_strategy", "noauth2", group="api")
    assert second.api.auth_strategy == "keystone"


def test_every_operation_rule_has_the_project_scope_and_its_documentation() -> None:
    for rule in list_rules():
        if rule.name.startswith("placement:"):
            assert isinstance(rule, policy.DocumentedRuleDefault)
            assert rule.scope_types == ["project"]
            assert rule.description
            assert rule.operations
