"""The daemon of a host: its passes, commands, status and life under systemd."""
