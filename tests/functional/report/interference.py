"""Somebody else at work between two requests of a client."""


def before_next(host, method: str, ending: str, act) -> None:
    """Call `act` once, just before the next such request goes out."""

    def hook(sent_method, path, body):
        if sent_method == method and path.split("?")[0].endswith(ending):
            host.transport.before = None
            act()

    host.transport.before = hook
