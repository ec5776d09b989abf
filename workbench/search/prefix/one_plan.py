"""The prefixes of one plan: grown in canonical order, dropped by rules, completed to graphs, tested.

Invariant: a prefix is extended, dropped or limited exactly once; counts and events say the same.
Long because growing, dropping and completing share the state of one plan.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from workbench.errors import MemoryLimitError, NotApplicableError, UsageError
from workbench.search.canonical import Canonical
from workbench.search.chains import CHAIN, is_proper, why_not
from workbench.search.engine import ANOTHER, IMPROPER, describe_sketch, judged
from workbench.search.enumeration import Sketch
from workbench.search.events import Completed, Event, Extended, Progress, Pruned, Said, Started, Text
from workbench.search.expressions import Expressions
from workbench.search.places import Place
from workbench.search.plans import Plan, axis_parts, folds_of
from workbench.search.prefix.extents import part_extents
from workbench.search.prefix.frame import Application, Frame, Sketching
from workbench.search.prefix.moves import Batch, Move, Moves
from workbench.search.prefix.options import Setting
from workbench.search.prefix.prefixes import Growth, Order, Prefix, extended_name, parse_name
from workbench.search.prefix.saying import Saying
from workbench.search.prefix.tensors import Tensor, Tensors
from workbench.search.prefix.views import Looked, look
from workbench.search.problem import Problem
from workbench.search.pruners.rule import Context, Outlook, Rule
from workbench.search.schedules import first_instance
from workbench.search.verdicts import VerdictLike
from workbench.search.work import Known, Outcome
from workbench.ugraph.kernel_graph import KernelGraph

EVERY = 20_000
"""Prefixes between two tellings of progress."""


@dataclass
class Counts:
    """What a search met.

    Attributes: generated, kept: prefixes; complete: graphs; dropped: rule -> prefixes; ended: by time; seconds: of process
    time.
    """

    generated: int = 0
    kept: int = 0
    complete: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    ended: bool = False
    seconds: float = 0.0


class PrefixSearch:
    """The prefixes of one plan. Attributes: plan; tensors; rules: the pruners, bound; counts; found: structures by key."""

    def __init__(self, setting: Setting, number: int, plan: Plan, problem: Problem | None = None) -> None:
        """Bind the pruners. problem: the program, if its axes are named otherwise than in `setting`."""
        shared = setting.shared
        self.setting, self.shared, self.number, self.plan = setting, shared, number, plan
        self.options, self.problem = setting.options, problem or shared.problem
        self.title = plan.describe()
        limits = setting.limits(plan)
        expressions = Expressions(
            self.problem,
            shared.palette,
            axis_parts(plan),
            folds_of(self.problem, [plan]),
            limit=limits.block + limits.kernels,
            outer_products=shared.space.outer_products or shared.problem.has_outer_products,
            folds_whole=limits.kernels > 0 or len(plan.loops) > 1,
        )
        needs = any(pruner.needs_expressions for pruner in self.options.pruners)
        self.tensors = Tensors(expressions, exact=needs or self.options.unique)
        self.frame = Frame(expressions, plan)
        extents = part_extents(expressions, plan)
        self.context = Context(self.problem, self.tensors, self.frame, extents)
        self.rules: tuple[Rule, ...] = tuple(pruner.bind(self.context) for pruner in self.options.pruners)
        moves = Moves(self.tensors, self.frame, self.rules, needed_only=shared.space.chains == "needed")
        self.prefix_rules = tuple(rule for rule in self.rules if rule.looks_at_prefixes)
        self.order = Order(self.frame)
        self.growth = Growth(moves, self.order, limits, unique=self.options.unique)
        self.needed = self._needed()
        self.goal_masks = [expressions.algebra.mask[goal] for goal in expressions.goals]
        self.canonical = Canonical()
        self.counts = Counts()
        self.found: dict[tuple[int, ...], tuple[Sketch, Prefix]] = {}
        self.last: tuple[Saying, Looked] | None = None
        self._deadline: float | None = None
        self._finals: dict[int, list[Move]] = {}

    def _needed(self) -> frozenset[int]:
        """Return the positions of inputs that the goals mention, under the axes they mention them."""
        terms = {term for goal in self.problem.goals for term in goal.term.subterms()}
        return frozenset(p for p, start in enumerate(self.problem.starts) if start.term in terms)

    # --------------------------------------------------------------------------------------------------- step by step
    def root(self) -> Prefix:
        """Return the prefix without operators."""
        return self.growth.empty(self.number, self.needed)

    def prefix(self, name: str) -> Prefix:
        """Return the prefix of a name, whatever drops it. Raises: UsageError for one that the palette does not have."""
        number, steps = parse_name(name)
        if number != self.number:
            raise UsageError(f"prefix {name!r} belongs to plan {number}, this is plan {self.number}")
        at = self.root()
        for step in steps:
            at = self._stepped(at, step, name)
        return at

    def _stepped(self, prefix: Prefix, step: tuple[int, int, int, int], name: str) -> Prefix:
        for moment, high, low, move in self.candidates(prefix):
            if (moment, high, low, move.rank) == step:
                if not self.growth.fits(prefix, move):
                    break
                return self.growth.extend(prefix, moment, high, low, self._with_tensor(move), self.needed)
        raise UsageError(f"prefix {name!r}: nothing follows {prefix.name!r} as {extended_name('', step)[1:]!r}")

    def candidates(self, prefix: Prefix) -> Iterator[tuple[int, int, int, Move]]:
        """Yield every extension in canonical order, dropped ones too: (time, larger operand, other, move)."""
        last = prefix.step
        for moment, high, at, low, other in self.order.pairs(prefix):
            batch = self.growth.moves.of(prefix.tensors[high], at, None if low < 0 else prefix.tensors[low], other)
            behind = (moment, high, low) == last[:3]
            for move in batch.every:
                if not behind or move.rank > last[3]:
                    yield moment, high, low, move

    def look(self, prefix: Prefix, moment: int, high: int, low: int, move: Move) -> Looked:
        """Return everything there is to say about an extension, for a stepper."""
        outlook = self.outlook(prefix, moment, high, low, self._with_tensor(move))
        return look(self.rules, self.context, outlook, moment, self.why_dropped(outlook, moment))

    def _with_tensor(self, move: Move) -> Move:
        """Return a move with its result, also where it was dropped before that was made."""
        if move.made is not None:
            return move
        return replace(move, made=self.tensors.made(move.operator, move.operands, move.folded, move.axis))

    def outlook(self, prefix: Prefix, moment: int, high: int, low: int, move: Move) -> Outlook:
        """Return what an extension would leave."""
        after = self.growth.extend(prefix, moment, high, low, move, self.needed)
        stuck = prefix.waiting > 0 and moment != prefix.step[0]
        return Outlook(
            prefix, move, high, low, after.left, after.kernels_left, after.dangling, after.waiting, after.count,
            len(self.goal_masks), stuck,
        )  # fmt: skip

    def why_dropped(self, outlook: Outlook, moment: int) -> str:
        """Return the first rule that drops an extension, "" for none."""
        move = outlook.move
        if move.dropped_by:
            return move.dropped_by
        if not self.growth.fits(outlook.prefix, move):
            return "limits"
        if self.growth.repeats(outlook.prefix, move, outlook.high, outlook.low):
            return "duplicate"
        return next((rule.name for rule in self.rules if rule.drops_prefix(outlook)), "")

    # ---------------------------------------------------------------------------------------------------- the search
    def events(self, known: Known) -> Generator[Event, None, Outcome]:
        """Yield the events of the plan."""
        if self.options.seconds is not None:
            self._deadline = time.process_time() + self.options.seconds
        yield Started(self.title)
        root = self.prefix(self.options.start) if self.options.start else self.root()
        yield from self._grow(root)
        if self.counts.ended:
            words = f"stopped after {self.options.seconds:g} s of process time"
            yield Pruned(self.title, "time", Said("what was not yet tried"), Said(words))
        yield Progress(1, 0, self.counts.generated, len(self.found))
        structures, verified = yield from self._test(known)
        return Outcome(
            steps=1,
            states=self.counts.generated,
            candidates=self.counts.complete,
            structures=structures,
            verified=verified,
            incomplete=self.tensors.algebra.undecided,
            numbers=len(self.found),
            pruned=dict(self.counts.dropped),
            facts={"kept": self.counts.kept, "ended": self.counts.ended},
        )

    def run(self, seconds: float | None = None) -> Counts:
        """Search the plan without a word, for so many seconds of process time at most. `found` has the structures."""
        start = time.process_time()
        seconds = self.options.seconds if seconds is None else seconds
        if seconds is not None:
            self._deadline = start + seconds
        for _ in self._grow(self.prefix(self.options.start) if self.options.start else self.root()):
            pass
        self.counts.seconds = time.process_time() - start
        return self.counts

    def _grow(self, prefix: Prefix) -> Iterator[Event]:
        counts, growth, quiet = self.counts, self.growth, self.options.quiet and self.options.keep is None
        tensors, last = prefix.tensors, prefix.step
        only_whole = quiet and not self.prefix_rules and not growth.unique and growth.is_last(prefix)
        for moment, high, at, low, other in self.order.pairs(prefix):
            found = growth.moves.of(tensors[high], at, None if low < 0 else tensors[low], other)
            batch = growth.fitting(prefix, found)
            if not batch.every:
                continue
            moves: Sequence[Move] = batch.every
            if (moment, high, low) == last[:3]:
                moves = [move for move in batch.every if move.rank > last[3]]
                counts.generated += len(moves)
            elif not quiet:
                counts.generated += len(moves)
            else:
                counts.generated += len(batch.every)
                if batch.dropped:
                    counts.dropped.update(batch.dropped)
                moves = batch.kept
                if only_whole:  # nothing follows, so only whole graphs are looked at
                    counts.kept += len(moves)
                    whole = growth.unread(prefix, high, low) < len(self.goal_masks)
                    for move in self._with_goal_axes(batch) if whole else ():
                        after = growth.extend(prefix, moment, high, low, move, self.needed)
                        yield from self._complete(after)
                    moves = ()
            for move in moves:
                yield from self._step(prefix, moment, high, low, move, quiet)
            if self._deadline is not None and time.process_time() > self._deadline:
                counts.ended = True
            if counts.ended:
                return

    def _with_goal_axes(self, batch: Batch) -> list[Move]:
        """Return the moves of a batch whose result has the axes of an output."""
        found = self._finals.get(id(batch))
        if found is None:
            masks = self.goal_masks
            found = [move for move in batch.kept if move.made is not None and move.made.mask in masks]
            self._finals[id(batch)] = found
        return found

    def _step(self, prefix: Prefix, moment: int, high: int, low: int, move: Move, quiet: bool) -> Iterator[Event]:
        counts, growth = self.counts, self.growth
        rule = move.dropped_by
        after: Prefix | None = None
        if not rule and growth.repeats(prefix, move, high, low):
            rule = "duplicate"
        if not rule:
            after = growth.extend(prefix, moment, high, low, move, self.needed)
            stuck = prefix.waiting > 0 and moment != prefix.step[0]
            outlook = Outlook(
                prefix, move, high, low, after.left, after.kernels_left, after.dangling, after.waiting, after.count,
                len(self.goal_masks), stuck,
            )  # fmt: skip
            for each in self.prefix_rules:
                if each.drops_prefix(outlook) or each.drops_extended(after):
                    rule = each.name
                    break
        if rule:
            counts.dropped[rule] += 1
            if not quiet:
                yield self._pruned(prefix, moment, high, low, move, rule)
            keep = self.options.keep
            if keep is None or not keep(extended_name(prefix.name, (moment, high, low, move.rank))):
                return
            after = growth.extend(prefix, moment, high, low, self._with_tensor(move), self.needed)
        assert after is not None
        counts.kept += 1
        if not quiet:
            yield self._extended(after, moment, high, low)
            if counts.generated // EVERY > (counts.generated - 1) // EVERY:
                yield Progress(0, 0, counts.generated, len(self.found))
        yield from self._complete(after)
        if growth.may_grow(after):
            yield from self._grow(after)

    # -------------------------------------------------------------------------------------------------------- events
    def _extended(self, after: Prefix, moment: int, high: int, low: int) -> Extended:
        parent, move = after.parent, after.move
        assert parent is not None
        assert move is not None
        said = Saying(self, parent, moment, high, low, move)
        return Extended(
            self.title,
            len(after.tensors) - 1,
            move.label(),
            after.operands,
            after.name,
            parent.name,
            move.distance,
            said.of("expression"),
            said.of("latex"),
            said.of("goal"),
            said.of("goal_latex"),
            said.of("verdicts"),
        )

    def _pruned(self, prefix: Prefix, moment: int, high: int, low: int, move: Move, rule: str) -> Pruned:
        said = Saying(self, prefix, moment, high, low, move, rule)
        name = extended_name(prefix.name, (moment, high, low, move.rank))
        subject, evidence, verdicts = said.of("subject"), said.of("evidence"), said.of("verdicts")
        return Pruned(self.title, rule, subject, evidence, 1, name, prefix.name, verdicts)

    # ------------------------------------------------------------------------------------------------------ complete
    def _complete(self, prefix: Prefix) -> Iterator[Event]:
        """Keep the structures of a prefix that is a whole graph."""
        goals = self.goal_masks
        if prefix.tensors[-1].mask not in goals:
            return
        inputs = len(self.tensors.starts)
        unread = [p for p in range(inputs, len(prefix.tensors)) if not prefix.used >> p & 1]
        if len(unread) > len(goals):
            return
        for outputs in self._outputs(prefix, unread):
            line = prefix.line()
            made = [_application(step) for step in line]
            sketch = Sketching(self.tensors, self.frame, prefix.tensors, made).sketch(outputs)
            if not is_proper(sketch) and self.options.unique:
                yield from self._not_counted(ANOTHER, sketch, Said(IMPROPER))
                continue
            reason = why_not(sketch, self.growth.limits.block) if self.shared.space.chains == "needed" else None
            if reason is not None:
                yield from self._not_counted(CHAIN + reason.rule, sketch, reason.text(sketch))
                continue
            self.counts.complete += 1
            key = self.canonical.key(sketch)
            known = self.found.get(key)
            if known is None or sketch.block_operators < known[0].block_operators:
                self.found[key] = sketch, prefix

    def _outputs(self, prefix: Prefix, unread: list[int]) -> Iterator[tuple[int, ...]]:
        """Yield the positions that may be the outputs, in their order: right axes, stored, and nothing is left over."""
        choices = []
        inputs, last = len(self.tensors.starts), 2 * len(self.plan.loops)
        several = len(self.goal_masks) > 1
        for number, mask in enumerate(self.goal_masks):
            found = []
            for position in range(inputs, len(prefix.tensors)) if several else unread:
                if prefix.tensors[position].mask != mask:
                    continue
                place = self.order.seen(prefix, position, last)
                if place is None or place < self._earliest(several):
                    continue
                if several and self.tensors.exact and not self._is_goal(prefix.tensors[position], number):
                    continue
                found.append(position)
            choices.append(found)
        for outputs in product(*choices):
            if set(unread) <= set(outputs):
                yield outputs

    def _earliest(self, several: bool) -> Place:
        """Return the earliest place of an output: the only one comes last, one of several may be a predefined kernel's."""
        if several:
            return Place.BEFORE
        return Place.AFTER if len(self.plan.loops) == 2 else Place.BETWEEN

    def _is_goal(self, tensor: Tensor, number: int) -> bool:
        return self.tensors.value(tensor) == self.tensors.expressions.goals[number]

    def _test(self, known: Known) -> Generator[Event, None, tuple[int, int]]:
        """Yield the structures, tested; return how many can be built and how many pass."""
        structures = verified = 0
        if not self.options.tests:
            return 0, 0
        for number, (sketch, _) in enumerate(self.found.values()):
            try:
                graph = self.shared.pieces.whole(self.instance(sketch))
            except NotApplicableError as fault:
                yield self._left_out("layout", sketch, Said(str(fault)))
                continue
            except MemoryLimitError as fault:
                yield self._left_out("memory", sketch, Said(str(fault)))
                continue
            structures += 1
            yield Completed(self.title, number, graph, sketch.block_operators, sketch.kernels)
            verdict = known[number] if number in known else self._verdict(sketch, graph)
            verified += verdict.kind == "equal"
            yield judged(number, graph, verdict)
        return structures, verified

    def instance(self, sketch: Sketch) -> KernelGraph:
        """Return a sketch with its first schedule. Raises: NotApplicableError, MemoryLimitError."""
        return first_instance(sketch)

    def _verdict(self, sketch: Sketch, graph: KernelGraph) -> VerdictLike:
        if self.setting.verifier is not None:
            return self.setting.verifier(self.shared.program, graph)
        return self.shared.screen.screen(sketch)

    def _not_counted(self, rule: str, sketch: Sketch, evidence: Text) -> Iterator[Pruned]:
        if self.options.quiet:
            self.counts.dropped[rule] += 1
        else:
            yield self._left_out(rule, sketch, evidence)

    def _left_out(self, rule: str, sketch: Sketch, evidence: Text) -> Pruned:
        self.counts.dropped[rule] += 1
        return Pruned(self.title, rule, Said(describe_sketch(sketch)), evidence)


def _application(prefix: Prefix) -> Application:
    move = prefix.move
    assert move is not None
    return Application(move.kind, move.operator, prefix.operands, move.axis, move.folded, move.place)
