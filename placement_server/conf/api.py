"""Options of group `api`: the authentication of callers."""

from oslo_config import cfg

GROUP = "api"

OPTS = [
    cfg.StrOpt(
        "auth_strategy",
        default="keystone",
        choices=[
            ("keystone", "Keystone validates every token; see [keystone_authtoken]."),
            (
                "noauth2",
                "The token is `user` or `user:project` and is not validated; the user `admin` may "
                "do everything. For tests, and for a server that only trusted clients can reach.",
            ),
        ],
        deprecated_group="DEFAULT",
        help="""
How callers are authenticated.

No token is needed for the version document at `/`, and for the paths that
`[placement_server]` sets for metrics, health checks and pages.
""",
    ),
]
