"""Command lines: one folder per program."""

from compute_agent.cmd.late_modules import LATE, import_late

import_late(*LATE)  # before any module of a program imports what imports them
