"""Options of group ``api``: the authentication of callers."""

from oslo_config import cfg

GROUP = "api"

OPTS = [
    cfg.StrOpt(
        "auth_strategy",
        default="keystone",
        choices=[
            ("keystone", "Keystone vouches for every token; see [keystone_authtoken]."),
            (
                "noauth2",
                "The token is believed as it is, `user` or `user:project`, and the user `admin` "
                "may do everything. For tests, and for a server that nobody else can reach.",
            ),
        ],
        deprecated_group="DEFAULT",
        help="""
How a caller proves who it is.

Only the version document at `/` is given to callers without a token.
""",
    ),
]
