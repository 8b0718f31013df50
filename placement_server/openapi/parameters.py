"""Parameters of requests in words, each with an example and the microversion that brought it."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

_UUID: Final = "4e8e5957-649f-477b-9e5b-f1f75b21c03c"
_AGGREGATE: Final = "2a5b0c1e-6a0f-4a5a-9d0f-0c7d3d6f9b11"


class Parameter(NamedTuple):
    """One parameter.

    :ivar since: the minor microversion of the plain API, or the version of the extensions, with
        which its present meaning came, where it differs from that of the operation.
    """

    text: str
    example: str
    since: str = ""

    def fields(self) -> dict[str, Any]:
        """Return it as the document has it."""
        since = f" Since {self.since}." if self.since else ""
        return {"description": f"{self.text}{since}", "example": self.example}


VERSION: Final = Parameter(
    "The microversion that the request is meant for, and behind a comma the version of the "
    "extensions; without it 1.0 is answered. 406 for one that is not served.",
    "placement 1.39, placement-ext 1.1",
)

IN_PATH: Final = {
    "name": Parameter("Name of the resource class or trait.", "CUSTOM_FPGA"),
    "uuid": Parameter("Uuid of the resource provider.", _UUID),
    "resource_class": Parameter("Name of the resource class.", "VCPU"),
    "consumer_uuid": Parameter("Uuid of the consumer, such as an instance.", _UUID),
}

IN_QUERY: Final = {
    "name": Parameter(
        "Name of the resource provider; for traits `in:` with names, or `startswith:`.",
        "in:HW_CPU_X86_AVX2,CUSTOM_GOLD",
    ),
    "uuid": Parameter("Uuid of the resource provider.", _UUID),
    "associated": Parameter("Whether any resource provider has the trait.", "true"),
    "project_id": Parameter("Project whose usage is asked for.", "admin"),
    "user_id": Parameter("User of the project whose usage is asked for.", "demo"),
    "consumer_type": Parameter(
        "Type of consumers; `all` for each type on its own, `unknown` for those without.",
        "INSTANCE",
        "1.38",
    ),
    "resources": Parameter(
        "Amounts that one provider has to give, as class:amount. With a suffix a group of its own, "
        "which a single provider serves.",
        "VCPU:2,MEMORY_MB:2048",
        "1.4 for providers, 1.10 for candidates; with a suffix 1.25",
    ),
    "required": Parameter(
        "Traits that the providers have; `!` before one that they must not have, `in:` before "
        "several of which one is enough. May be repeated.",
        "HW_CPU_X86_AVX2,!CUSTOM_SLOW",
        "1.17; `!` 1.22, `in:` and repeated 1.39",
    ),
    "member_of": Parameter(
        "Aggregates that the providers are members of; `in:` before several of which one is "
        "enough, `!` or `!in:` before those that they must not be in. May be repeated.",
        f"!in:{_AGGREGATE}",
        "1.3 for providers, 1.21 for candidates; repeated 1.24, `!` 1.32",
    ),
    "in_tree": Parameter(
        "A provider of the only tree that may serve the group.",
        _UUID,
        "1.14 for providers, 1.31 for candidates",
    ),
    "limit": Parameter("How many answers at most; for candidates since 1.16.", "100"),
    "group_policy": Parameter(
        "Whether groups with a suffix may be served by the same provider (`none`) or not "
        "(`isolate`). Required with two such groups that have resources.",
        "isolate",
        "1.25",
    ),
    "root_required": Parameter(
        "Traits that the root of the tree has; `!` before one that it must not have.",
        "COMPUTE_NODE,!COMPUTE_STATUS_DISABLED",
        "1.35",
    ),
    "same_subtree": Parameter(
        "Suffixes of groups whose providers lie below one of them. May be repeated, for another "
        "subtree each time.",
        "_ACCEL,_NET",
        "1.36",
    ),
    "root_member_of": Parameter(
        "Aggregates that the root of the tree is a member of, as `member_of` has them.",
        f"in:{_AGGREGATE}",
        "placement-ext 1.0",
    ),
    "isolate": Parameter(
        "Suffixes of groups that different providers have to serve, whatever `group_policy` says "
        "of the others. May be repeated.",
        "_PORT1,_PORT2",
        "placement-ext 1.0",
    ),
    "after": Parameter("Number of the last change that is known; 0 for all that are kept.", "0"),
    "before": Parameter("Only past changes with smaller numbers.", "1000"),
    "consumer": Parameter("Consumer whose allocations were changed.", _UUID),
    "wait": Parameter("Seconds to wait for a change, where there is none yet.", "1"),
    "notable": Parameter(
        "Only agents that are silent, in trouble, or have disabled their host.",
        "true",
    ),
    "root": Parameter("Root of the only tree that is asked for. May be repeated.", _UUID),
    "kind": Parameter("Kinds of changes that are asked for.", "tree"),
    "include": Parameter(
        "What to answer beside the tree: use, consumers, what others share.", "usages,sharing"
    ),
}
