"""The names that random requests use, and the requests themselves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

PROVIDERS = [f"{digit * 8}-0000-4000-8000-00000000000{digit}" for digit in "1234567"]
CONSUMERS = [f"{digit * 8}-0000-4000-8000-0000000000cc" for digit in "abcde"]
AGGREGATES = [f"{digit * 8}-0000-4000-8000-0000000000aa" for digit in "123"]
NAMES = ["one", "two", "three", "four", "five", "\N{SNOWMAN}", "a b&c=d", "x" * 200]
CLASSES = ["VCPU", "MEMORY_MB", "DISK_GB", "CUSTOM_GOLD", "CUSTOM_IRON"]
TRAITS = [
    "MISC_SHARES_VIA_AGGREGATE",
    "HW_CPU_X86_SSE",
    "HW_NUMA_ROOT",
    "CUSTOM_FAST",
    "CUSTOM_COLD",
]
PROJECTS = ["project", "other"]
USERS = ["user", "another"]
TYPES = ["INSTANCE", "MIGRATION", "ALL", "UNKNOWN"]

STRANGE: list[Any] = [
    None, True, False, 0, -1, 1, 1.5, 5.0, 2147483647, 2147483648, 10**20, 1e39,
    "", "x", "1", "CUSTOM_", "CUSTOM_A", "custom_a", "VCPU", [], {}, [None], {"a": 1},
    "x" * 201, "x" * 256, PROVIDERS[0].replace("-", ""), PROVIDERS[0].upper(), "\N{SNOWMAN}",
]  # fmt: skip
STRANGE_TEXTS = [
    "", " ", "x", ":", ",", "!", "in:", "!in:", "VCPU", "VCPU:", "VCPU:x", "VCPU:0", "VCPU:-1",
    "VCPU:1,", "VCPU:1,VCPU:2", "NOPE:1", "in:CUSTOM_FAST,NOPE", "!!CUSTOM_FAST", "CUSTOM_FAST,",
    "in:CUSTOM_FAST,!CUSTOM_COLD", "NOPE", "!NOPE", "0", "-1", "01", "true", "TRUE", "all",
    "unknown", "allx", PROVIDERS[0], PROVIDERS[0].upper(), PROVIDERS[0].replace("-", ""),
    f"in:{AGGREGATES[0]},{AGGREGATES[1]}", f"!in:{AGGREGATES[0]}", f"!{AGGREGATES[0]}",
    f"{AGGREGATES[0]},{AGGREGATES[1]}", f"in:{AGGREGATES[0]},", "\N{SNOWMAN}",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class SentRequest:
    """One request, the same for both servers."""

    method: str
    url: str
    version: str | None
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None
    token: str | None = "admin"

    @property
    def minor(self) -> int | None:
        """The minor version asked for, None where it is not a proper one."""
        version = "1.39" if self.version == "latest" else self.version or "1.0"
        major, _, minor = version.partition(".")
        return int(minor) if major == "1" and minor.isdigit() and int(minor) < 40 else None

    def all_headers(self) -> dict[str, str]:
        headers = dict(self.headers)
        if self.token is not None:
            headers["X-Auth-Token"] = self.token
        if self.version is not None:
            headers["OpenStack-API-Version"] = f"placement {self.version}"
        if self.body is not None:
            headers.setdefault("Content-Type", "application/json")
        return headers

    def __str__(self) -> str:
        body = "" if self.body is None else f" {self.body[:2000].decode('utf-8', 'replace')}"
        return f"{self.method} {self.url} ({self.version}, {self.token}, {self.headers}){body}"
