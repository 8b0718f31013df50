"""All ways to place the items of a query in one tree.

The search goes item by item and keeps what it has committed as sums, so that a provider that is
full is never tried again below. What makes it cheap:

* **alike items** (same amounts, same providers eligible, same rules) are placed in ascending
  order only; the other orders are swaps of one that works, and are made from it without a search;
* **bounds** refuse a tree, or a branch, that cannot hold what is left: the capacity of the
  eligible providers in sum, the room for alike items from a position on, and a matching of
  isolated items to distinct providers (Hall's condition);
* **same_subtree** narrows the positions of an item to the subtrees that can still have a top;
* **positions of which one must take part** (what a tree gives must use the tree): an item takes
  another position only while some later item can still take one of these;
* **links** (sharing providers without a tree): a position is taken only where one tree reaches it
  and all those taken before;
* **twins**: when nothing came of a position, positions that differ from it by nothing (same
  eligibility, capacity and subtree, below the same parent, nothing placed in either yet) are not
  tried.

The stack, for items in the order in which they are placed::

    frame 0: item 4  [pos 1, pos 3*]          * = the position taken now
    frame 1: item 0  [pos 2, pos 5*, pos 7]
    frame 2: item 1  [pos 5, pos 7*]          alike to item 0: only positions from 5 on
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from placement_server.candidates.bounds import sizes
from placement_server.candidates.bounds.memory import Account
from placement_server.candidates.query.compiled import Plan
from placement_server.candidates.search.item_order import order_items
from placement_server.candidates.search.matching import can_match
from placement_server.candidates.search.problem import Positions, Problem, bits

Tick = Callable[[], None]


@dataclass(slots=True)
class _Frame:
    """The choices for one item, and what was committed before it."""

    choices: list[int]
    next: int = 0
    taken: int = -1
    found: bool = False
    fruitful: bool = False
    failed: set[tuple[int, int, int]] | None = None
    used: int = 0
    suffixed: int = 0
    named: int = 0
    blocked: int = 0
    covered: int = 0
    linked: int = -1


class Solver:
    """Enumerates the placements of one problem.

    :param tick: called now and then; it may raise to end the search.
    :param shuffle: visit positions in a random order instead of the ascending one.
    :param account: counts what grows while the search goes on.
    """

    def __init__(
        self,
        plan: Plan,
        problem: Problem,
        tick: Tick,
        shuffle: random.Random | None = None,
        account: Account | None = None,
    ) -> None:
        self.account = account or Account()
        self.plan = plan
        self.problem = problem
        self.tick = tick
        self.eligible = list(problem.eligible)
        self.loads = [[0] * len(caps) for caps in problem.caps]
        self.wants = self._wants()
        size = len(problem.ancestors)
        self.rank = list(range(size))
        if shuffle is not None:
            shuffle.shuffle(self.rank)
        self.reason = self._impossible()
        if not self.reason:
            order = order_items(plan, problem, self.eligible)
            self.sequence = order.sequence
            self.alike_left = order.alike_left
            self.follows = order.follows
            self.alike = order.alike
            self._prepare_bounds()

    def _wants(self) -> list[list[tuple[int, int]]]:
        wants: list[list[tuple[int, int]]] = [[] for _ in self.plan.items]
        for number, contested in enumerate(self.plan.contested):
            for item, amount in contested.wants.items():
                wants[item].append((number, amount))
        return wants

    # -- before the search: what refuses the whole tree

    def _impossible(self) -> str:
        """Return why nothing can work here at all, "" when something may."""
        if not all(self.eligible):
            return "no provider for some group"
        if not self._narrow_subtrees():
            return "same_subtree"
        for number, contested in enumerate(self.plan.contested):
            reach = 0
            for item in contested.wants:
                reach |= self.eligible[item]
            caps = self.problem.caps[number]
            if sum(caps[position] for position in bits(reach)) < contested.total:
                return "capacity in sum"
        if not self._distinct_providers(range(len(self.plan.items)), 0, 0):
            return "too few distinct providers"
        return ""

    def _narrow_subtrees(self) -> bool:
        """Keep the positions that lie below a possible top of each same_subtree."""
        descendants = self.problem.descendants
        for subtree in self.plan.subtrees:
            tops = 0
            for item in subtree.together:
                tops |= self.eligible[item]
            reach = 0
            for top in bits(tops):
                below = descendants[top]
                if all(self.eligible[item] & below for item in subtree.together):
                    reach |= below
            for item in subtree.together:
                self.eligible[item] &= reach
                if not self.eligible[item]:
                    return False
        return True

    def _distinct_providers(self, items: Sequence[int], used: int, named: int) -> bool:
        """Tell whether the isolated ones among the items can each have a provider of their own."""
        plan = self.plan
        needs: dict[int, int] = {}
        for item in items:
            if plan.items[item].named or (plan.isolated and plan.items[item].suffixed):
                free = self.eligible[item] & ~(used if plan.items[item].named else named)
                needs[free] = needs.get(free, 0) + 1
        if not needs or (len(needs) == 1 and all(m.bit_count() >= n for m, n in needs.items())):
            return True
        return can_match(needs)

    def _prepare_bounds(self) -> None:
        plan, sequence = self.plan, self.sequence
        self.exclusive = [item.named or (plan.isolated and item.suffixed) for item in plan.items]
        exclusive_kinds = {self.eligible[item] for item in sequence if self.exclusive[item]}
        self.match_again = len(exclusive_kinds) > 1
        self.lists: list[list[int]] = [
            [number for number, each in enumerate(plan.subtrees) if item in each.together]
            for item in range(len(plan.items))
        ]
        self.has_apart = any(each.apart for each in plan.subtrees)
        # What the items after a step can still add: required terms, and tops of subtrees.
        self.coming_terms = [0] * (len(sequence) + 1)
        self.coming_tops = [[0] * len(plan.subtrees) for _ in range(len(sequence) + 1)]
        for step in range(len(sequence) - 1, -1, -1):
            item = sequence[step]
            terms = self.coming_terms[step + 1]
            if not plan.items[item].suffixed and self.problem.terms:
                for position in bits(self.eligible[item]):
                    terms |= self.problem.covers[position]
            self.coming_terms[step] = terms
            tops = list(self.coming_tops[step + 1])
            for number in self.lists[item]:
                tops[number] |= self.eligible[item]
            self.coming_tops[step] = tops
        self.tree_of = [0] * len(self.problem.ancestors)
        if plan.one_per_tree:
            for tree in self.problem.trees:
                for position in bits(tree):
                    self.tree_of[position] = tree

    # -- the search

    def solutions(self) -> Iterator[Positions]:
        """Yield placements, the position of each item, alike items in one order only."""
        if self.reason:
            return
        sequence = self.sequence
        last = len(sequence) - 1
        placed = [-1] * len(sequence)
        frames = [_Frame(self._choices(0, _Frame([]), placed))]
        steps = 0
        while frames:
            step = len(frames) - 1
            frame = frames[-1]
            item = sequence[step]
            if frame.taken >= 0:
                self._take(item, frame.taken, -1)
                if not frame.fruitful and frame.next < len(frame.choices):
                    self._remember_failure(frame, frame.taken, step)
                frame.taken = -1
                frame.fruitful = False
            position = self._next_choice(frame, step)
            if position < 0:
                frames.pop()
                if frame.failed:
                    self.account.give(sizes.failed_positions(len(frame.failed)))
                if frame.found and frames:
                    frames[-1].found = frames[-1].fruitful = True
                continue
            steps += 1
            if steps & 127 == 0:
                self.tick()
            self._take(item, position, 1)
            frame.taken = position
            placed[item] = position
            if step < last:
                below = self._commit(frame, item, position)
                below.choices = self._choices(step + 1, below, placed)
                frames.append(below)
            elif self._complete(frame, item, position, placed):
                frame.found = frame.fruitful = True
                yield tuple(placed)

    def _take(self, item: int, position: int, sign: int) -> None:
        for number, amount in self.wants[item]:
            self.loads[number][position] += sign * amount

    def _commit(self, frame: _Frame, item: int, position: int) -> _Frame:
        """Return the frame below, with what is committed once ``item`` is at ``position``."""
        rules = self.plan.items[item]
        bit = 1 << position
        blocked = frame.blocked
        if self.plan.one_per_tree:
            blocked |= self.tree_of[position] & ~bit
        covered = frame.covered
        if not rules.suffixed:
            covered |= self.problem.covers[position]
        linked = frame.linked
        if self.problem.linked:
            linked &= self.problem.linked[item][position]
        return _Frame(
            [],
            used=frame.used | bit,
            suffixed=frame.suffixed | bit if rules.suffixed else frame.suffixed,
            named=frame.named | bit if rules.named else frame.named,
            blocked=blocked,
            covered=covered,
            linked=linked,
        )

    def _complete(self, frame: _Frame, item: int, position: int, placed: list[int]) -> bool:
        if self.problem.terms:
            covered = frame.covered
            if not self.plan.items[item].suffixed:
                covered |= self.problem.covers[position]
            if covered != self.problem.terms:
                return False
        return not self.has_apart or self._apart(placed)

    def _apart(self, placed: list[int]) -> bool:
        """Check the items that must be outside of the subtree of the others."""
        for subtree in self.plan.subtrees:
            if not subtree.apart:
                continue
            together = [placed[item] for item in subtree.together]
            common = -1
            for position in together:
                common &= self.problem.ancestors[position]
            top = next(position for position in together if common >> position & 1)
            below = self.problem.descendants[top]
            if any(below >> placed[item] & 1 for item in subtree.apart):
                return False
        return True

    def _choices(self, step: int, frame: _Frame, placed: list[int]) -> list[int]:
        """List the positions that the item of a step may take, in the order to try them."""
        item = self.sequence[step]
        rules = self.plan.items[item]
        mask = self.eligible[item] & ~frame.blocked
        if rules.named:
            mask &= ~frame.used
        else:
            mask &= ~frame.named
            if self.plan.isolated and rules.suffixed:
                mask &= ~frame.suffixed
        if self.problem.terms and ((frame.covered | self.coming_terms[step]) != self.problem.terms):
            return []
        if self.match_again and not self.follows[step] and not self._distinct_left(step, frame):
            return []
        for number in self.lists[item]:
            coming = self.coming_tops[step + 1][number]
            mask = self._below_tops(number, step, mask, placed, coming)
        choices = bits(mask)
        if self.problem.linked:
            linked = self.problem.linked[item]
            choices = [each for each in choices if linked[each] & frame.linked]
        for number, amount in self.wants[item]:
            room = self.problem.caps[number]
            loads = self.loads[number]
            choices = [each for each in choices if loads[each] + amount <= room[each]]
        if self.problem.terms and not rules.suffixed:
            missing = self.problem.terms & ~frame.covered & ~self.coming_terms[step + 1]
            covers = self.problem.covers
            choices = [each for each in choices if covers[each] & missing == missing]
        rank = self.rank
        choices.sort(key=rank.__getitem__)
        if self.follows[step]:
            lowest = rank[placed[self.sequence[step - 1]]]
            choices = [each for each in choices if rank[each] >= lowest]
        kept = choices
        if self.alike_left[step] > 1:
            kept = self._with_room(step, item, choices)
        if self.problem.needed and not frame.used & self.problem.needed:
            # Both keep the choices up to some position, by what comes after it.
            kept = min(kept, self._towards_needed(step, frame, choices, placed), key=len)
        return kept

    def _with_room(self, step: int, item: int, choices: list[int]) -> list[int]:
        """Drop the choices from which on there is no room for all alike items still to come."""
        needed = self.alike_left[step]
        if not self.exclusive[item] and not self.wants[item]:
            return choices
        room = 0
        for at in range(len(choices) - 1, -1, -1):
            position = choices[at]
            room += (
                1
                if self.exclusive[item]
                else min(
                    (self.problem.caps[number][position] - self.loads[number][position]) // amount
                    for number, amount in self.wants[item]
                )
            )
            if room >= needed:
                return choices[: at + 1]
        return []

    def _distinct_left(self, step: int, frame: _Frame) -> bool:
        """Tell whether the isolated items from this step on can still have distinct providers."""
        named = frame.suffixed if self.plan.isolated else frame.named
        return self._distinct_providers(self.sequence[step:], frame.used, named)

    def _towards_needed(
        self, step: int, frame: _Frame, choices: list[int], placed: list[int]
    ) -> list[int]:
        """Keep the choices after which one of the needed positions can still be taken."""
        needed = self.problem.needed
        alike = self.alike_left[step]
        for later in range(step + alike, len(self.sequence)):
            if not self.follows[later] and self._can_reach(needed, later, step, frame, placed):
                return choices
        if alike == 1:
            return [each for each in choices if needed >> each & 1]
        # Alike items are placed in ascending order: beyond the last needed position is no way back.
        for at in range(len(choices) - 1, -1, -1):
            if needed >> choices[at] & 1:
                return choices[: at + 1]
        return []

    def _can_reach(
        self, positions: int, later: int, step: int, frame: _Frame, placed: list[int]
    ) -> bool:
        """Tell whether the item of a later step may take one of some positions.

        What the items from ``step`` on will do is not foreseen.
        """
        item = self.sequence[later]
        mask = self.eligible[item] & positions & ~frame.blocked
        for number in self.lists[item]:
            mask = self._below_tops(number, step, mask, placed, self.coming_tops[step][number])
        if not self.problem.linked:
            return bool(mask)
        linked = self.problem.linked[item]
        return any(linked[position] & frame.linked for position in bits(mask))

    def _below_tops(self, number: int, step: int, mask: int, placed: list[int], coming: int) -> int:
        """Keep the positions with which a same_subtree can still have a top.

        :param coming: the positions that the items still to be placed may take.
        """
        ancestors, descendants = self.problem.ancestors, self.problem.descendants
        subtree = self.plan.subtrees[number]
        common, members = -1, 0
        for item in self.sequence[:step]:
            if item in subtree.together:
                common &= ancestors[placed[item]]
                members |= 1 << placed[item]
        later = members | coming
        reach = 0
        for top in bits(common & (later | mask)):
            reach |= descendants[top]
        kept = 0
        for position in bits(mask & reach):
            if common & ancestors[position] & (later | 1 << position):
                kept |= 1 << position
        return kept

    # -- twins

    def _next_choice(self, frame: _Frame, step: int) -> int:
        while frame.next < len(frame.choices):
            position = frame.choices[frame.next]
            frame.next += 1
            if frame.failed:
                keys = self._twin_keys(position, frame.used, step)
                if not frame.failed.isdisjoint(keys):
                    self._add_failed(frame.failed, keys)
                    continue
            return position
        return -1

    def _remember_failure(self, frame: _Frame, position: int, step: int) -> None:
        if frame.failed is None:
            frame.failed = set()
        self._add_failed(frame.failed, self._twin_keys(position, frame.used, step))

    def _add_failed(
        self, failed: set[tuple[int, int, int]], keys: list[tuple[int, int, int]]
    ) -> None:
        before = len(failed)
        failed.update(keys)
        self.account.take(sizes.failed_positions(len(failed) - before))

    def _twin_keys(self, position: int, used: int, step: int) -> list[tuple[int, int, int]]:
        """Name a position by each of the untouched subtrees that it is in.

        Two positions that share a name are exchanged by swapping two equal subtrees below one
        parent in which nothing is placed yet, so what failed with one fails with the other. While
        alike items are still to come in ascending order, only leaves are swapped: swapping more
        could put another of these items before the first.
        """
        problem = self.problem
        if position >= problem.own:
            return []
        labels = problem.labels
        keys = []
        top = position
        while top > 0 and not problem.descendants[top] & used:
            if self.alike_left[step] > 1 and problem.descendants[top] != 1 << top:
                break
            keys.append((problem.parents[top], labels[top], position - top))
            top = problem.parents[top]
            if self.alike_left[step] > 1:
                break
        return keys
