"""Request of `compute-scheduler claim`, `explain` and `make-room`: their options, or a file.

A value may begin with the suffix of the group it belongs to, `SUFFIX:VALUE`; without one it
belongs to the unsuffixed group.
"""

from __future__ import annotations

import argparse
import re
from collections import defaultdict
from typing import Final

from msgspec.structs import replace

from compute_agent.cmd.scheduler.configured import read_json
from compute_agent.programs.whole_numbers import whole_number
from compute_agent.request import extra_specs, spec_reader
from compute_agent.request.candidate_request import SUFFIX, UNSUFFIXED, RequestGroup
from compute_agent.request.errors import InvalidRequest
from compute_agent.request.spec import Flavor, RequestedGroup, RequestSpec

REQUEST_OPTIONS: Final = """
    --resources CLASS=N,... *             amounts of resources, for example VCPU=2,MEMORY_MB=512 (or
                                          VCPU:2,MEMORY_MB:512)
    --group GROUP:CLASS=N,... *           amounts that one provider must have together, for example
                                          GPU:VGPU=1
    --required [GROUP:]TRAIT,... *        traits that a provider must have; in:A,B: at least one of
                                          them
    --forbidden [GROUP:]TRAIT,... *       traits that a provider must not have
    --member-of [GROUP:]UUID,... *        only in one of these aggregates; !UUID,...: in none of
                                          them
    --in-tree [GROUP:]UUID *              only in the tree of this provider
    --root-required TRAIT,... *           traits that the host must have; !TRAIT: must not have
    --same-subtree GROUP,... *            groups whose providers must be in the subtree of one of
                                          them
    --group-policy {none,isolate} (none)  isolate: each group on another provider
    --host HOST                           only this host
    --project ID (compute-scheduler)      project of the consumer
    --user ID (compute-scheduler)         user of the consumer
    --type TYPE (INSTANCE)                type of the consumer
    """
"""Options that describe a request."""

SPEC_OPTION: Final = "--spec FILE  request specification, as for select; -: standard input"
"""The option that names a file in their place."""

_CONSUMER_TYPE = re.compile(r"[A-Z0-9_]{1,255}")


def given_spec(words: argparse.Namespace) -> RequestSpec:
    """Return the specification in the file of `--spec`, else that of the other options.

    :raises InvalidRequest: names the option or field, the value and what was expected.
    """
    return spec_reader.read_spec(read_json(words.spec)) if words.spec else spec_of(words)


def spec_of(words: argparse.Namespace) -> RequestSpec:
    """Return the specification made from the options of `claim`, repeated ones in their order.

    :raises InvalidRequest: names the option, the value and what was expected.
    """
    groups: defaultdict[str, RequestGroup] = defaultdict(RequestGroup)
    for text in words.resources:
        groups[UNSUFFIXED] = groups[UNSUFFIXED].adding(_amounts("--resources", text, text))
    for text in words.group:
        suffix, items = _split("--group", text)
        if not suffix:
            raise InvalidRequest("--group", text, "SUFFIX:CLASS=AMOUNT, for example GPU:VGPU=1")
        groups[suffix] = groups[suffix].adding(_amounts("--group", text, items))
    for text in words.required:
        suffix, items = _split("--required", text)
        groups[suffix] = _requiring(groups[suffix], text, items)
    for text in words.forbidden:
        suffix, items = _split("--forbidden", text)
        traits = (_trait("--forbidden", text, name) for name in items.split(","))
        groups[suffix] = groups[suffix].forbidding(*traits)
    for text in words.member_of:
        suffix, items = _split("--member-of", text)
        groups[suffix] = extra_specs.with_member_of(groups[suffix], "--member-of", items)
    for text in words.in_tree:
        suffix, uuid = _split("--in-tree", text)
        groups[suffix] = replace(groups[suffix], in_tree=extra_specs.uuid_text("--in-tree", uuid))
    return _spec(words, groups)


def _spec(words: argparse.Namespace, groups: dict[str, RequestGroup]) -> RequestSpec:
    if not any(group.resources for group in groups.values()):
        raise InvalidRequest("--resources", "", "CLASS=AMOUNT[,CLASS=AMOUNT...], or --group")
    root_traits = [extra_specs.root_traits("--root-required", text) for text in words.root_required]
    if not _CONSUMER_TYPE.fullmatch(words.type):
        raise InvalidRequest("--type", words.type, "upper-case letters, digits and underscores")
    if words.host == "":
        raise InvalidRequest("--host", "", "the name of a host")
    unsuffixed_group = groups.pop(UNSUFFIXED, RequestGroup())
    return RequestSpec(
        project_id=words.project,
        user_id=words.user,
        flavor=Flavor(extra_specs={"group_policy": words.group_policy}),
        unsuffixed_group=unsuffixed_group,
        requested_groups=tuple(map(RequestedGroup, groups, groups.values())),
        root_required=frozenset().union(*(required for required, _ in root_traits)),
        root_forbidden=frozenset().union(*(forbidden for _, forbidden in root_traits)),
        same_subtree=frozenset(
            extra_specs.suffixes("--same-subtree", text) for text in words.same_subtree
        ),
        force_hosts=frozenset({words.host} - {None}),
        consumer_type=words.type,
    )


def _split(option: str, text: str) -> tuple[str, str]:
    """Return suffix and rest of `SUFFIX:REST`; `in:` and `!in:` are not suffixes."""
    head, colon, value = text.partition(":")
    if not colon or head.removeprefix("!") == "in":
        return UNSUFFIXED, text
    if not SUFFIX.fullmatch(head):
        raise InvalidRequest(
            option, text, "SUFFIX:VALUE with a suffix of 1 to 64 letters, digits, _ and -"
        )
    return head, value


def _amounts(option: str, text: str, items: str) -> dict[str, int]:
    amounts: dict[str, int] = {}
    for item in items.split(","):
        name, equals, number = item.strip().replace(":", "=").partition("=")
        amount = whole_number(number)
        if not equals or not extra_specs.RESOURCE_CLASS.match(name) or not amount:
            raise InvalidRequest(
                option, text, "CLASS=AMOUNT[,CLASS=AMOUNT...], for example VCPU=2,MEMORY_MB=512"
            )
        if name in amounts:
            raise InvalidRequest(option, text, f"{name} once")
        amounts[name] = amount
    return amounts


def _requiring(group: RequestGroup, text: str, items: str) -> RequestGroup:
    if items.startswith("in:"):
        names = [_trait("--required", text, name) for name in items[3:].split(",")]
        return replace(group, required=group.required | {frozenset(names)})
    return group.requiring(*(_trait("--required", text, name) for name in items.split(",")))


def _trait(option: str, text: str, name: str) -> str:
    if not extra_specs.TRAIT.match(name.strip()):
        raise InvalidRequest(option, text, "[SUFFIX:]TRAIT[,TRAIT...], for example HW_CPU_X86_AVX2")
    return name.strip()
