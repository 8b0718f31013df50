"""Request groups written into a flavor's extra specs or an image's properties.

    resources<S>:<CLASS> = n            amount; 0 takes the class out again
    trait<S>:<TRAIT> = required         or forbidden
    member_of<S> = in:U,V               or !in:U,V, U, !U
    in_tree<S> = U
    same_subtree<anything> = _A,_B      or _A,!_B: B's provider not in the subtree of A's
    root_required = A,!B
    group_policy = none                 or isolate

`<S>` is the suffix of a group, empty for the unsuffixed one.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from compute_agent.request.candidate_request import (
    UNSUFFIXED,
    Apart,
    CandidateRequest,
    RequestGroup,
)
from compute_agent.request.errors import InvalidRequest

_KEYED = re.compile(r"^(resources|trait)([a-zA-Z0-9_-]{1,64})?:(.*)$")
_PLAIN = re.compile(r"^(member_of|in_tree|same_subtree)([a-zA-Z0-9_-]{1,64})?$")
RESOURCE_CLASS = TRAIT = re.compile(r"^[A-Z0-9_]{1,255}$")


class WrittenGroups(Struct, frozen=True):
    """Request that extra specs make, and the classes that they mention with amount 0."""

    request: CandidateRequest = field(default_factory=CandidateRequest)
    zeroed_classes: frozenset[str] = frozenset()

    def mentions(self, *resource_classes: str) -> bool:
        """Return whether any of the classes occurs in any group, even with amount 0."""
        return any(
            name in self.zeroed_classes or self.request.total(name) for name in resource_classes
        )


def read(extra_specs: Mapping[str, str]) -> WrittenGroups:
    """Read the groups of `extra_specs`; other keys are ignored.

    :raises InvalidRequest: an amount, trait value, uuid, suffix list or policy that cannot be used.
    """
    groups: dict[str, RequestGroup] = {}
    zeroed_classes: set[str] = set()
    request = CandidateRequest()
    subtrees: set[frozenset[str]] = set()
    apart: set[Apart] = set()
    for key, value in sorted(extra_specs.items()):
        if match := _KEYED.match(key):
            kind, suffix, name = match[1], match[2] or UNSUFFIXED, match[3]
            group = groups.get(suffix, RequestGroup())
            if kind == "resources":
                resources = {resource_class(key, name): amount(key, value)}
                if resources[name] == 0:
                    zeroed_classes.add(name)
                    continue
                groups[suffix] = group.adding(resources)
            else:
                name = trait(key, name)
                if value not in ("required", "forbidden"):
                    raise InvalidRequest(key, value, "required or forbidden")
                is_required = value == "required"
                groups[suffix] = group.requiring(name) if is_required else group.forbidding(name)
        elif match := _PLAIN.match(key):
            kind, suffix = match[1], match[2] or UNSUFFIXED
            group = groups.get(suffix, RequestGroup())
            if kind == "member_of":
                groups[suffix] = with_member_of(group, key, value)
            elif kind == "in_tree":
                groups[suffix] = replace(group, in_tree=uuid_text(key, value))
            else:
                together, outside = subtree(key, value)
                if outside:
                    apart.add((together, outside))
                else:
                    subtrees.add(together)
        elif key == "root_required":
            required_traits, forbidden_traits = root_traits(key, value)
            request = replace(
                request, root_required=required_traits, root_forbidden=forbidden_traits
            )
        elif key == "group_policy":
            request = replace(request, group_policy=group_policy(key, value))
    nonempty_groups = {suffix: group for suffix, group in groups.items() if not group.empty}
    return WrittenGroups(
        replace(
            request,
            groups=nonempty_groups,
            same_subtree=frozenset(subtrees),
            apart=frozenset(apart),
        ),
        frozenset(zeroed_classes),
    )


def is_for_placement(key: str) -> bool:
    """Return whether an extra spec without a scope belongs to a query, and is no fact of a host."""
    return key in ("group_policy", "root_required") or _PLAIN.match(key) is not None


def image_traits(properties: Mapping[str, str]) -> frozenset[str]:
    """Return the traits that an image requires.

    :raises InvalidRequest: a `trait:` property with a value other than `required`.
    """
    trait_names = properties.get("traits_required", "")
    names = {
        trait(f"image property traits_required ({trait_names})", name.strip())
        for name in trait_names.split(",")
        if name.strip()
    }
    for key, value in properties.items():
        if key.startswith("trait:"):
            if value != "required":
                raise InvalidRequest(f"image property {key}", value, "required")
            names.add(trait(f"image property {key}", key.removeprefix("trait:")))
    return frozenset(names)


def amount(field_name: str, value: object) -> int:
    """Return `value` as an amount of a resource.

    :raises InvalidRequest: it is not a whole number of at least 0.
    """
    try:
        number = int(str(value))
    except ValueError:
        number = -1
    if number < 0 or number > 2**31 - 1:
        raise InvalidRequest(field_name, value, "a whole number from 0 to 2147483647")
    return number


def resource_class(field_name: str, name: str) -> str:
    """Return `name` if it can be a resource class."""
    if not RESOURCE_CLASS.match(name):
        raise InvalidRequest(
            field_name, name, "a resource class: upper-case letters, digits and underscores"
        )
    return name


def trait(field_name: str, name: str) -> str:
    """Return `name` if it can be a trait."""
    if not TRAIT.match(name):
        raise InvalidRequest(field_name, name, "a trait: upper-case letters, digits, underscores")
    return name


def uuid_text(field_name: str, value: object) -> str:
    """Return `value` as a canonical uuid."""
    try:
        return str(uuid.UUID(str(value).strip()))
    except ValueError:
        raise InvalidRequest(field_name, value, "a uuid") from None


def suffixes(field_name: str, value: str) -> frozenset[str]:
    """Return the suffixes of a comma-separated list."""
    names = frozenset(name.strip() for name in value.split(","))
    if "" in names:
        raise InvalidRequest(field_name, value, "suffixes of groups, separated by commas")
    return names


def subtree(field_name: str, value: str) -> Apart:
    """Return the suffixes of `_A,_B,!_C`: those in one subtree, and those outside of it."""
    names = suffixes(field_name, value)
    outside = frozenset(name[1:] for name in names if name.startswith("!"))
    together = frozenset(name for name in names if not name.startswith("!"))
    if not together or "" in outside or together & outside:
        raise InvalidRequest(
            field_name, value, "suffixes in one subtree, and others with ! that are outside of it"
        )
    return together, outside


def group_policy(field_name: str, value: str) -> str:
    """Return `value` if it is a group policy."""
    if value not in ("none", "isolate"):
        raise InvalidRequest(field_name, value, "none or isolate")
    return value


def root_traits(field_name: str, value: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the required and the forbidden traits of `A,!B`."""
    required_traits: set[str] = set()
    forbidden_traits: set[str] = set()
    for item in value.split(","):
        name = item.strip()
        if name.startswith("!"):
            forbidden_traits.add(trait(field_name, name[1:]))
        else:
            required_traits.add(trait(field_name, name))
    if contradictory_traits := required_traits & forbidden_traits:
        raise InvalidRequest(
            field_name, value, f"{min(contradictory_traits)} either required or forbidden"
        )
    return frozenset(required_traits), frozenset(forbidden_traits)


def with_member_of(group: RequestGroup, field_name: str, value: str) -> RequestGroup:
    """Return `group` with another clause on aggregates: `in:U,V` or `U`, or one with `!`."""
    text = value.strip()
    is_negated = text.startswith("!")
    uuids_text = text.removeprefix("!").removeprefix("in:")
    uuids = frozenset(uuid_text(field_name, item) for item in uuids_text.split(","))
    if is_negated:
        return replace(group, forbidden_aggregates=group.forbidden_aggregates | uuids)
    return replace(group, member_of=group.member_of | {uuids})
