"""All ways to place the items of a query in one tree.

The search goes item by item and keeps what it has committed as sums, so that a provider that is
full is never tried again below. What makes it cheap:

* **symmetric items** (same amounts, same providers eligible, same rules) are placed in ascending
  order only; the other orders are permutations of one that works, made from it without a search;
* **free items** (the last ones, where each choice works: one item, symmetric ones that cannot meet
  at a position, or others with the same choices of which each has a provider to itself) take all
  combinations or orders of their choices, without a search either;
* **bounds** (`look_ahead`) refuse a branch that cannot hold what is left; a tree that cannot
  hold the items at all has a `contradiction`, and no solver is made for it;
* **same_subtree** narrows the positions of an item to the subtrees that can still have a top;
* **positions of which one must take part** (what a tree gives must use the tree): an item takes
  another position only while some later item can still take one of these;
* **links** (sharing providers without a tree): a position is taken only where one tree reaches it
  and all those taken before;
* **symmetric positions**: when nothing came of a position, positions that differ from it by nothing
  (same eligibility, capacity and subtree, below the same parent, nothing placed in either yet) are
  not tried.

The stack, for items in the order in which they are placed::

    frame 0: item 4  [pos 1, pos 3*]          * = the position taken now
    frame 1: item 0  [pos 2, pos 5*, pos 7]
    frame 2: item 1  [pos 5, pos 7*]          symmetric to item 0: only positions from 5 on
"""

import random
from collections.abc import Callable, Iterator
from itertools import combinations, islice, permutations
from math import comb, perm

from msgspec import Struct

from placement_server.candidates import sizes
from placement_server.candidates.limits import Account
from placement_server.candidates.query.query import Plan
from placement_server.candidates.search.course import Course
from placement_server.candidates.search.look_ahead import LookAhead, narrow_to_subtrees
from placement_server.candidates.search.problem import (
    Positions,
    Problem,
    bits,
    order_items,
    variants,
)

Tick = Callable[[], None]

# Steps, or placements without a search, between two ticks.
_BETWEEN_TICKS = 128


class _Frame(Struct):
    """The choices for one item, and what was committed before it.

    :ivar next: the place in `choices` of the one to try next.
    :ivar taken_position: the position taken now, -1 for none.
    :ivar has_solution: whether any choice led to a placement; `fruitful`, whether this one did.
    :ivar failed_names: names of positions that led to none.
    """

    choices: list[int]
    next: int = 0
    taken_position: int = -1
    has_solution: bool = False
    fruitful: bool = False
    failed_names: set[tuple[int, int, int]] | None = None
    used_mask: int = 0
    suffixed_mask: int = 0
    named_mask: int = 0
    blocked_mask: int = 0
    covered_terms: int = 0
    linked_sets: int = -1


class Solver:
    """Enumerates the placements of one problem, which has no contradiction.

    :param tick: called every few steps; it may raise to end the search.
    :param shuffle: visit positions in a random order instead of the ascending one.
    :param account: counts what grows while the search goes on.
    :param course: where dead ends are reported; then each item is placed by itself.
    :ivar symmetric_items: the sets of items whose placements are yielded in one order only.
    :ivar free_step: the step from which on every combination of the choices is a placement, or
        every order of them, where the items are not symmetric.
    """

    def __init__(
        self,
        plan: Plan,
        problem: Problem,
        tick: Tick,
        shuffle: random.Random | None = None,
        account: Account | None = None,
        course: Course | None = None,
    ) -> None:
        self.account = account or Account()
        self.course = course
        self.plan = plan
        self.problem = narrow_to_subtrees(plan, problem)
        self.tick = tick
        self.loads = [[0] * len(caps) for caps in problem.caps]
        self.wants: list[list[tuple[int, int]]] = [[] for _ in plan.items]
        for number, contest in enumerate(plan.contested_classes):
            for item, amount in contest.wants.items():
                self.wants[item].append((number, amount))
        size = len(problem.ancestors)
        self.rank = list(range(size))
        self.is_shuffled = shuffle is not None
        if shuffle is not None:
            shuffle.shuffle(self.rank)
        order = order_items(plan, self.problem)
        self.sequence = order.sequence
        self.symmetric_left = order.symmetric_left
        self.is_symmetric = order.is_symmetric
        self.symmetric_items = order.symmetric_items
        self.look_ahead = LookAhead(plan, self.problem, order)
        self.has_apart = any(subtree.apart for subtree in plan.subtrees)
        self.free_step = self._free_step()
        self.tree_of = [0] * size
        if plan.one_per_tree:
            for tree in problem.trees:
                for position in bits(tree):
                    self.tree_of[position] = tree

    def _free_step(self) -> int:
        last = len(self.sequence) - 1
        if self.problem.terms or self.has_apart or self.course is not None:
            return last + 1
        first = last
        while self.is_symmetric[first]:
            first -= 1
        item = self.sequence[first]
        is_tied = (
            self.problem.linked_sets
            or self.problem.needed_mask
            or self.plan.one_per_tree
            or self.look_ahead.subtrees_of[item]
        )
        if is_tied or not self._are_apart(item):
            return last
        while first and self._has_the_same_choices(first - 1, item):
            first -= 1
        return first

    def _has_the_same_choices(self, step: int, item: int) -> bool:
        """Check whether the item of a step may change places with another in any placement.

        Each has a provider to itself, so there are no sums of amounts to look at.
        """
        ahead, items, eligible = self.look_ahead, self.plan.items, self.problem.eligible
        other = self.sequence[step]
        return (
            not any(self.is_symmetric[step:])
            and all(items[n].is_exclusive and not self.wants[n] for n in (item, other))
            and not ahead.subtrees_of[other]
            and (items[other].is_named, eligible[other]) == (items[item].is_named, eligible[item])
        )

    def _are_apart(self, item: int) -> bool:
        """Check whether no position holds two items that are symmetric to this one."""
        if self.plan.items[item].is_exclusive:
            return True
        caps = [self.problem.caps[number] for number, _ in self.wants[item]]
        amounts = [amount for _, amount in self.wants[item]]
        return all(
            any(cap[position] < 2 * amount for cap, amount in zip(caps, amounts, strict=True))
            for position in bits(self.problem.eligible[item])
        )

    def _combinations(self, choices: list[int], placed_positions: list[int]) -> Iterator[Positions]:
        """Yield the placements of the free items on some choices."""
        items = self.sequence[self.free_step :]
        ways: Iterator[tuple[int, ...]]
        if self.is_symmetric[-1]:
            count, ways = comb(len(choices), len(items)), combinations(choices, len(items))
        else:
            count, ways = perm(len(choices), len(items)), permutations(choices, len(items))
        placements = variants(items, ways, tuple(placed_positions))
        for begun_count in range(0, count, _BETWEEN_TICKS):
            if begun_count:
                self.tick()
            yield from islice(placements, _BETWEEN_TICKS)

    def solutions(self) -> Iterator[Positions]:
        """Yield placements, the position of each item, symmetric items in one order only."""
        sequence = self.sequence
        last = len(sequence) - 1
        placed_positions = [-1] * len(sequence)
        frames = [_Frame(self._choices(0, _Frame([]), placed_positions))]
        steps = 0
        while frames:
            step = len(frames) - 1
            frame = frames[-1]
            item = sequence[step]
            if step == self.free_step:
                yield from self._combinations(frame.choices, placed_positions)
                frame.has_solution = len(frame.choices) > last - step
                frame.next = len(frame.choices)
            if frame.taken_position >= 0:
                self._take(item, frame.taken_position, -1)
                if not frame.fruitful and frame.next < len(frame.choices):
                    names = self._names(frame.taken_position, frame.used_mask, step)
                    self._add_failed(frame, names)
                frame.taken_position = -1
                frame.fruitful = False
            position = self._next_choice(frame, step)
            if position < 0:
                frames.pop()
                if self.course is not None and not frame.choices:
                    self.course.dead_end(self.plan.items[item].group)
                if frame.failed_names:
                    self.account.give(sizes.failed_positions(len(frame.failed_names)))
                if frame.has_solution and frames:
                    frames[-1].has_solution = frames[-1].fruitful = True
                continue
            steps += 1
            if steps % _BETWEEN_TICKS == 0:
                self.tick()
            self._take(item, position, 1)
            frame.taken_position = position
            placed_positions[item] = position
            if step < last:
                below = self._commit(frame, item, position)
                below.choices = self._choices(step + 1, below, placed_positions)
                frames.append(below)
            elif self._complete(frame, item, position, placed_positions):
                frame.has_solution = frame.fruitful = True
                yield tuple(placed_positions)

    def _take(self, item: int, position: int, sign: int) -> None:
        for number, amount in self.wants[item]:
            self.loads[number][position] += sign * amount

    def _commit(self, frame: _Frame, item: int, position: int) -> _Frame:
        """Return the frame below, with what is committed once `item` is at `position`."""
        rules = self.plan.items[item]
        bit = 1 << position
        blocked_mask = frame.blocked_mask
        if self.plan.one_per_tree:
            blocked_mask |= self.tree_of[position] & ~bit
        covered_terms = frame.covered_terms
        if not rules.is_suffixed:
            covered_terms |= self.problem.covers[position]
        linked_sets = frame.linked_sets
        if self.problem.linked_sets:
            linked_sets &= self.problem.linked_sets[item][position]
        return _Frame(
            [],
            used_mask=frame.used_mask | bit,
            suffixed_mask=frame.suffixed_mask | bit if rules.is_suffixed else frame.suffixed_mask,
            named_mask=frame.named_mask | bit if rules.is_named else frame.named_mask,
            blocked_mask=blocked_mask,
            covered_terms=covered_terms,
            linked_sets=linked_sets,
        )

    def _complete(
        self, frame: _Frame, item: int, position: int, placed_positions: list[int]
    ) -> bool:
        if self.problem.terms:
            covered_terms = frame.covered_terms
            if not self.plan.items[item].is_suffixed:
                covered_terms |= self.problem.covers[position]
            if covered_terms != self.problem.terms:
                return False
        # What must be outside the subtree of the others.
        for subtree in self.plan.subtrees if self.has_apart else ():
            together = [placed_positions[item] for item in subtree.together]
            common = -1
            for position in together:
                common &= self.problem.ancestors[position]
            top = next(position for position in together if common >> position & 1)
            below = self.problem.descendants[top]
            if any(below >> placed_positions[item] & 1 for item in subtree.apart):
                return False
        return True

    def _choices(self, step: int, frame: _Frame, placed_positions: list[int]) -> list[int]:
        """List the positions that the item of a step may take, in the order to try them."""
        item = self.sequence[step]
        rules, problem, ahead = self.plan.items[item], self.problem, self.look_ahead
        if ahead.can_be_hopeless:
            named_mask = frame.suffixed_mask if self.plan.is_isolated else frame.named_mask
            if ahead.is_hopeless(step, frame.covered_terms, frame.used_mask, named_mask):
                return []
        mask = problem.eligible[item] & ~frame.blocked_mask
        if rules.is_named:
            mask &= ~frame.used_mask
        else:
            mask &= ~frame.named_mask
            if self.plan.is_isolated and rules.is_suffixed:
                mask &= ~frame.suffixed_mask
        for number in ahead.subtrees_of[item]:
            coming = ahead.coming_tops[step + 1][number]
            mask = ahead.below_tops(number, step, mask, placed_positions, coming)
        rank = self.rank
        lowest = rank[placed_positions[self.sequence[step - 1]]] if self.is_symmetric[step] else 0
        if not self.is_shuffled:
            mask &= -1 << lowest
        choices = bits(mask)
        if problem.linked_sets:
            linked_sets = problem.linked_sets[item]
            choices = [
                position for position in choices if linked_sets[position] & frame.linked_sets
            ]
        for number, amount in self.wants[item]:
            room = problem.caps[number]
            loads = self.loads[number]
            choices = [
                position for position in choices if loads[position] + amount <= room[position]
            ]
        if problem.terms and not rules.is_suffixed:
            due_terms = ahead.terms_due(step, frame.covered_terms)
            covers = problem.covers
            choices = [
                position for position in choices if covers[position] & due_terms == due_terms
            ]
        if self.is_shuffled:
            choices = [position for position in choices if rank[position] >= lowest]
            choices.sort(key=rank.__getitem__)
        promising = choices
        if self.symmetric_left[step] > 1 and step != self.free_step:
            promising = ahead.with_room(step, self.wants[item], self.loads, choices)
        if problem.needed_mask and not frame.used_mask & problem.needed_mask:
            # Both keep the choices up to some position, by what comes after it.
            needed_choices = ahead.towards_needed(
                step, frame.blocked_mask, frame.linked_sets, choices, placed_positions
            )
            promising = min(promising, needed_choices, key=len)
        return promising

    # -- symmetric positions

    def _next_choice(self, frame: _Frame, step: int) -> int:
        while frame.next < len(frame.choices):
            position = frame.choices[frame.next]
            frame.next += 1
            if frame.failed_names:
                names = self._names(position, frame.used_mask, step)
                if not frame.failed_names.isdisjoint(names):
                    self._add_failed(frame, names)
                    continue
            return position
        return -1

    def _add_failed(self, frame: _Frame, names: list[tuple[int, int, int]]) -> None:
        failed_names = frame.failed_names = frame.failed_names or set()
        before = len(failed_names)
        failed_names.update(names)
        self.account.take(sizes.failed_positions(len(failed_names) - before))

    def _names(self, position: int, used_mask: int, step: int) -> list[tuple[int, int, int]]:
        """Name a position by each of the untouched subtrees that it is in.

        Two positions that share a name are exchanged by swapping two equal subtrees below one
        parent in which nothing is placed yet, so what failed with one fails with the other. While
        symmetric items are still to come in ascending order, only leaves are swapped: swapping more
        could put another of these items before the first.
        """
        problem = self.problem
        if position >= problem.own:
            return []
        labels = problem.labels
        names = []
        top = position
        while top > 0 and not problem.descendants[top] & used_mask:
            if self.symmetric_left[step] > 1 and problem.descendants[top] != 1 << top:
                break
            names.append((problem.parents[top], labels[top], position - top))
            top = problem.parents[top]
            if self.symmetric_left[step] > 1:
                break
        return names
