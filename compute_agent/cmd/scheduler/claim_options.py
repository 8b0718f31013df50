"""Options of the commands that describe a request: `claim` and `explain`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from compute_agent.request.spec import RequestSpec

DEFAULT_OWNER = "compute-scheduler"


def add_request_options(command: argparse.ArgumentParser) -> None:
    """Add the options that describe a request to a command."""
    repeat_settings: dict[str, Any] = {"action": "append", "default": []}
    command.add_argument(
        "--resources",
        metavar="CLASS=N,...",
        help="amounts of resources, for example VCPU=2,MEMORY_MB=512 (or VCPU:2,MEMORY_MB:512)",
        **repeat_settings,
    )
    command.add_argument(
        "--group",
        metavar="GROUP:CLASS=N,...",
        help="amounts that one provider must have together, for example GPU:VGPU=1",
        **repeat_settings,
    )
    command.add_argument(
        "--required",
        metavar="[GROUP:]TRAIT,...",
        help="traits that a provider must have; in:A,B: at least one of them",
        **repeat_settings,
    )
    command.add_argument(
        "--forbidden",
        metavar="[GROUP:]TRAIT,...",
        help="traits that a provider must not have",
        **repeat_settings,
    )
    command.add_argument(
        "--member-of",
        metavar="[GROUP:]UUID,...",
        help="only in one of these aggregates; !UUID,...: in none of them",
        **repeat_settings,
    )
    command.add_argument(
        "--in-tree",
        metavar="[GROUP:]UUID",
        help="only in the tree of this provider",
        **repeat_settings,
    )
    command.add_argument(
        "--root-required",
        metavar="TRAIT,...",
        help="traits that the host must have; !TRAIT: must not have",
        **repeat_settings,
    )
    command.add_argument(
        "--same-subtree",
        metavar="GROUP,...",
        help="groups whose providers must be in the subtree of one of them",
        **repeat_settings,
    )
    command.add_argument(
        "--group-policy",
        choices=["none", "isolate"],
        default="none",
        help="isolate: each group on another provider; default: %(default)s",
    )
    command.add_argument("--host", default="", metavar="HOST", help="only this host")
    command.add_argument(
        "--project",
        default=DEFAULT_OWNER,
        metavar="ID",
        help="project of the consumer; default: %(default)s",
    )
    command.add_argument(
        "--user",
        default=DEFAULT_OWNER,
        metavar="ID",
        help="user of the consumer; default: %(default)s",
    )
    command.add_argument(
        "--type",
        default="INSTANCE",
        metavar="TYPE",
        help="type of the consumer; default: %(default)s",
    )


def spec_of(namespace: argparse.Namespace) -> RequestSpec:
    """Return the specification that the options describe.

    :raises InvalidRequest: names the option, the value and what was expected.
    """
    from compute_agent.cmd.scheduler import request_options
    from compute_agent.cmd.scheduler.request_options import RequestWords

    words = RequestWords(
        resources=namespace.resources,
        groups=namespace.group,
        required=namespace.required,
        forbidden=namespace.forbidden,
        member_of=namespace.member_of,
        in_tree=namespace.in_tree,
        root_required=namespace.root_required,
        same_subtree=namespace.same_subtree,
        group_policy=namespace.group_policy,
        project=namespace.project,
        user=namespace.user,
        consumer_type=namespace.type,
        host=namespace.host,
    )
    return request_options.spec_of(words)
