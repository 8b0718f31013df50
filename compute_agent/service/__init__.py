"""The daemon's life: signals, systemd, the thread of passes, status, bus."""
