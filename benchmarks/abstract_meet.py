"""Goals such as a root of a sum of products: decompose backwards, and meet a shallow forward closure.

Forwards, every value that takes at most `depth` operators is known with its least number of operators; any other value
takes more. Backwards from the goal every production is tried whose operands can still be afforded. What the forward
closure saves is only work: every graph within the limit is met, each once (heaviest value first).
Run: python -m benchmarks.abstract_meet [program:limit:macro:depth ...]
"""

from __future__ import annotations

import sys
import time

from benchmarks.abstract_programs import PROGRAMS
from benchmarks.abstract_search import AFTER, FIXED, LOOPED, Closure, Space
from workbench.domains.abstract_decomposition import Decomposition
from workbench.domains.abstract_expr import Axis
from workbench.domains.abstract_normal_form import Value


class Meeting:
    """Graphs that make the goal of a space with at most `limit` operators, found backwards."""

    def __init__(self, space: Space, limit: int, depth: int) -> None:
        """Close the inputs forwards to `depth` operators."""
        self.space, self.limit, self.depth = space, limit, depth
        self.closure = Closure(space, limit, depth)
        self.least: dict[Value, int] = {}
        for v, operators in self.closure.depth.items():
            e = space.values[v][0]
            self.least[e] = min(operators, self.least.get(e, operators))
        self.inputs = {space.values[v][0] for v in space.start}
        self.decomposition = Decomposition(space.algebra)
        self.known: dict[Value, list[tuple[str, tuple[Value, ...]]]] = {}
        self.states = self.graphs = 0

    def stage(self, e: Value) -> int:
        """Return where a value stands: an axis' loop part free, bound, or neither."""
        algebra = self.space.algebra
        if algebra.mask[e] & algebra.loop_mask:
            return LOOPED
        loop = [key for key in algebra.feature_counts(algebra.count[e]) if isinstance(key, tuple) and key[0] == "sum"]
        return AFTER if any(key[1] & algebra.loop_mask for key in loop) else FIXED

    def producers(self, e: Value) -> list[tuple[str, tuple[Value, ...]]]:
        """Return the operators of the palette that make a value, with operands that are affordable at all."""
        found = self.known.get(e)
        if found is None:
            found = self.known[e] = [made for made in self._producers(e) if self._is_affordable(made[1])]
        return found

    def _is_affordable(self, operands: tuple[Value, ...]) -> bool:
        return all(self.at_least(operand) < self.limit for operand in operands)

    def at_least(self, e: Value) -> int:
        """Return the fewest operators that make a value, at least."""
        return self.least.get(e, self.depth + 1)

    def _producers(self, e: Value) -> list[tuple[str, tuple[Value, ...]]]:
        space, algebra, decompose = self.space, self.space.algebra, self.decomposition
        stage = self.stage(e)
        axes = [axis for axis, copy in algebra.bit_axis if not copy]
        inner = [axis for axis in axes if not algebra.axes_mask([axis]) & algebra.loop_mask]
        loops = [axis for axis in axes if axis not in inner]
        results: list[tuple[str, tuple[Value, ...]]] = []
        for axis in inner:
            for operand in decompose.summands(e, [axis]):
                results.append((f"sum {axis}", (operand,)))
                pairs = decompose.products(operand)
                results += [
                    (f"matmul {axis}", pair) for pair in pairs if self._shared(pair) == algebra.axes_mask([axis])
                ]
        if stage == AFTER:
            for extra in [(), *((axis,) for axis in inner)]:
                results += [("accumulate", (p,)) for p in decompose.summands(e, [*loops, *extra])]
        for pair in decompose.products(e):
            if space.scale in pair and space.program.has_scale and space.macro != "only":
                results.append(("scale", (pair[0] if pair[1] == space.scale else pair[1],)))
            elif pair[0] == pair[1]:
                results.append(("square", pair[:1]))
            else:
                results.append(("mul", pair))
        results += [("div", pair) for pair in decompose.quotients(e)]
        results += [("add", pair) for pair in decompose.sums(e)]
        for made in decompose.functions(e):
            if made.operator in ("exp", "sqrt", *space.program.functions):
                results.append((made.operator, made.operands))
            if made.operator == "sqrt" and space.macro and space.program.has_scale:
                results += self._rms(made.operands[0], stage, inner, loops)
        return [made for made in dict.fromkeys(results) if self._is_legal(made, stage)]

    def _rms(
        self, radicand: Value, stage: int, inner: list[Axis], loops: list[Axis]
    ) -> list[tuple[str, tuple[Value, ...]]]:
        results: list[tuple[str, tuple[Value, ...]]] = []
        for pair in self.decomposition.products(radicand):
            if self.space.scale not in pair:
                continue
            total = pair[0] if pair[1] == self.space.scale else pair[1]
            for axis in inner:
                for name, over in (("rms", [axis]), ("accumulate rms", [*loops, axis])):
                    if name == "rms" or (stage == AFTER and loops):
                        for squares in self.decomposition.summands(total, over):
                            root = self.decomposition.square_root(squares)
                            if root is not None:
                                results.append((f"{name} {axis}", (root,)))
        return results

    def _shared(self, pair: tuple[Value, Value]) -> int:
        algebra = self.space.algebra
        return algebra.mask[pair[0]] & algebra.mask[pair[1]] & ~algebra.loop_mask

    def _is_legal(self, made: tuple[str, tuple[Value, ...]], stage: int) -> bool:
        """Return whether stages fit, constants are operands of scale only, and the operands broadcast."""
        algebra = self.space.algebra
        operator, operands = made
        stages = {self.stage(operand) for operand in operands}
        if any(not algebra.mask[operand] and operand not in self.inputs for operand in operands):
            return False
        if operator.startswith("accumulate"):
            return stages == {LOOPED}
        if stages >= {LOOPED, AFTER} or max(stages) != stage:
            return False
        if len(operands) == 2 and not operator.startswith("matmul"):
            left, right = (algebra.mask[operand] & ~algebra.loop_mask for operand in operands)
            return left | right in (left, right)
        return True

    def run(self) -> Meeting:
        """Enumerate the graphs."""
        self._choose((self.space.goal,), 0)
        return self

    def _choose(self, needs: tuple[Value, ...], used: int) -> None:
        self.states += 1
        if not needs:
            self.graphs += 1
            return
        weight = self.space.algebra.weight
        for _, operands in self.producers(needs[-1]):
            new = {*needs[:-1], *(operand for operand in operands if operand not in self.inputs)}
            if used + 1 + self._remaining(new) <= self.limit:
                self._choose(tuple(sorted(new, key=lambda e: (weight[e], e))), used + 1)

    def _remaining(self, needs: set[Value]) -> int:
        """Return the fewest operators that make all the needs, at least.

        With k values that take more than `depth` operators: the first of them to be made takes `depth` others.
        """
        large = sum(need not in self.least for need in needs)
        fewest = max((self.at_least(need) for need in needs), default=0)
        return max(len(needs), fewest, self.depth + large if large else 0)


def main(specs: list[str]) -> None:
    """Print graphs, states and times for program:limit:macro:depth and each loop axis."""
    for spec in specs:
        name, limit, macro, depth = spec.split(":")
        program = PROGRAMS[name]
        letters = sorted({letter for letters in program.inputs.values() for letter in letters})
        for loop in [*(letter for letter in letters if letter not in program.output), None]:
            began = time.process_time()
            space = Space(program, loop, macro)
            meeting = Meeting(space, int(limit), int(depth))
            closed = time.process_time()
            meeting.run()
            ended = time.process_time()
            print(
                f"{name} loop={loop} limit={limit} macro={macro or '-'} depth={depth}: forward values {len(meeting.least)}, "
                f"decomposed {len(meeting.known)}, states {meeting.states}, graphs {meeting.graphs}, "
                f"incomplete {len(meeting.decomposition.incomplete)}, forward {closed - began:.3f} s, "
                f"backward {ended - closed:.3f} s"
            )


if __name__ == "__main__":
    main(sys.argv[1:] or ["rms_norm_linear:9::4", "attention:7::3", "ntrans:7:only:3", "ntrans:8:only:4"])
