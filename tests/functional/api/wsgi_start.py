"""The start of placement-server under another HTTP server, which imports its application."""


def main() -> None:
    import placement_server.wsgi  # noqa: F401


if __name__ == "__main__":
    main()
