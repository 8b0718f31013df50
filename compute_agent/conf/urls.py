"""URLs in options: a user or a password in one would be shown by errors and logs."""

from __future__ import annotations

from typing import Final

ADVICE: Final = (
    "has a user or a password in its URL, which errors and logs would show. Take them out; for "
    "HTTP Basic there is auth_type = http_basic with username and password"
)


def names_user(url: object) -> bool:
    """Return whether a URL has a user or a password.

    Those of services have no other @, and where a password has a slash it is behind the host.
    """
    return "@" in str(url)
