"""How small the space of useful values is: close the inputs under a palette, keep what is near the goal, enumerate graphs.

A measurement of the algebra, not the search of the workbench: one block graph, no schedules, no verification.
Run: python -m benchmarks.abstract_search [program:limit:macros ...]
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field

from benchmarks.abstract_programs import PROGRAMS, SCALE, Program
from workbench.domains.abstract_costs import StepCosts
from workbench.domains.abstract_distance import FAR
from workbench.domains.abstract_goals import Goals
from workbench.domains.abstract_normal_form import Algebra, Value
from workbench.domains.abstract_tables import bits_of

FIXED, LOOPED, AFTER = 0, 1, 2  # where a value stands: the same in every iteration, in the loop, after it


@dataclass
class Space:
    """One choice of loop axis for one program.

    `macro`: "" none; "rms" rms as one operator; "only" and no free scale. Without `bounds`, distances only say whether
    a value is far.
    """

    program: Program
    loop: str | None
    macro: str = ""
    bounds: bool = True
    algebra: Algebra = field(default_factory=Algebra)

    def __post_init__(self) -> None:
        """Compile the goal and make the inputs."""
        algebra, program = self.algebra, self.program
        absorbs = {"sqrt": 3} if self.macro else {}
        self.goal = algebra.normalize(program.goal(self.loop))
        self.goals = Goals(algebra, [self.goal], StepCosts(absorbs=absorbs, sum_scales=bool(self.macro)))
        self.scale = algebra.normalize(SCALE)
        self.goal_mask = algebra.axes_mask(program.axes(self.loop, program.output))
        self.values: list[tuple[Value, int, int]] = []  # normal form, stage, distance
        self.ids: dict[tuple[Value, int], int] = {}
        self.cache: dict[tuple[int, int], list[tuple[str, int]]] = {}
        inputs = program.symbols(self.loop).values()
        self.start = [self.value(algebra.normalize(term), -1) for term in inputs]

    def value(self, e: Value, stage: int) -> int:
        """Return the number of a value at a stage."""
        if stage < 0:
            stage = LOOPED if self.algebra.is_in_loop(e) else FIXED
        number = self.ids.setdefault((e, stage), len(self.values))
        if number == len(self.values):
            self.values.append((e, stage, self.goals.distance(e) if self.bounds else 0))
        return number

    def moves(self, a: int, b: int) -> list[tuple[str, int]]:
        """Return (operator, result) of every operator on one value (b < 0) or two that keeps the result near the goal."""
        found = self.cache.get((a, b))
        if found is None:
            found = self.cache[a, b] = list(self._unary(a) if b < 0 else self._binary(a, b))
        return found

    def _keep(self, e: Value, stage: int) -> int:
        return -1 if self.goals.distance(e) >= FAR else self.value(e, stage)

    def _unary(self, a: int) -> list[tuple[str, int]]:
        algebra, goals = self.algebra, self.goals
        e, stage, _ = self.values[a]
        results = [("exp", algebra.exp(e), stage), ("sqrt", algebra.sqrt(e), stage)]
        results += [(name, algebra.apply(name, e), stage) for name in self.program.functions]
        if goals.admits("mul", e, e):
            results.append(("square", algebra.mul(e, e), stage))
        if self.program.has_scale and self.macro != "only":
            results.append(("scale", algebra.mul(e, self.scale), stage))
        loop = algebra.mask[e] & algebra.loop_mask
        inner = list(bits_of(algebra.mask[e] & ~algebra.loop_mask))
        results += [(f"sum {bit}", algebra.sum_mask(bit, e), stage) for bit in inner]
        if self.macro and self.program.has_scale:
            results += [(f"rms {bit}", self._rms(bit, e), stage) for bit in inner]
        if stage == LOOPED:
            for bit in [0, *inner]:
                results.append((f"accumulate {bit}", algebra.sum_mask(bit | loop, e), AFTER))
                if bit and self.macro and self.program.has_scale:
                    results.append((f"accumulate rms {bit}", self._rms(bit | loop, e), AFTER))
        return [(name, v) for name, result, place in results if (v := self._keep(result, place)) >= 0]

    def _rms(self, mask: int, e: Value) -> Value:
        algebra = self.algebra
        return algebra.sqrt(algebra.mul(algebra.sum_mask(mask, algebra.mul(e, e)), self.scale))

    def _binary(self, a: int, b: int) -> list[tuple[str, int]]:
        algebra, admits = self.algebra, self.goals.admits
        (x, place_x, _), (y, place_y, _) = self.values[a], self.values[b]
        if {place_x, place_y} == {LOOPED, AFTER}:
            return []
        stage = max(place_x, place_y)
        outer = algebra.loop_mask
        mx, my = algebra.mask[x] & ~outer, algebra.mask[y] & ~outer
        both = mx & my
        results: list[tuple[str, Value]] = []
        if both and not both & both - 1 and a != b and admits("mul", x, y):
            results.append((f"matmul {both}", algebra.sum_mask(both, algebra.mul(x, y))))
        if mx | my in (mx, my):
            if admits("add", x, y):
                results.append(("add", algebra.add(x, y)))
            if a != b and admits("mul", x, y):
                results.append(("mul", algebra.mul(x, y)))
            if a != b and admits("div", x, y):
                results.append(("div", algebra.div(x, y)))
            if a != b and admits("div", y, x):
                results.append(("rdiv", algebra.div(y, x)))
        return [(name, v) for name, result in results if (v := self._keep(result, stage)) >= 0]


class Closure:
    """Values with (fewest operators to build them) + (distance to the goal) within a limit, and the graphs over them."""

    def __init__(self, space: Space, limit: int, depth: int = 99) -> None:
        """Close the inputs under at most `depth` operators.

        `sets[v]`: minimal derivations of v as bitmasks of the values they compute.
        """
        self.space, self.limit, self.pairs = space, limit, 0
        self.sets: dict[int, list[int]] = {v: [0] for v in space.start}
        self.producers: dict[int, dict[tuple[str, int, int], None]] = {}
        todo, known = [(v, 0) for v in space.start], []
        start = set(space.start)
        for a, mask_a in todo:
            if mask_a not in self.sets[a]:
                continue
            known.append((a, mask_a))
            for b, mask_b in [(-1, 0), *known]:
                if b >= 0 and mask_b not in self.sets[b]:
                    continue
                both = mask_a | mask_b
                far = max(space.values[a][2], space.values[b][2] if b >= 0 else 0)
                if both.bit_count() + max(far, 1) > limit or both.bit_count() >= depth:
                    continue
                self.pairs += 1
                x, y = (b, a) if b > a else (a, b)
                for operator, v in space.moves(x, y):
                    if v in start or both >> v & 1 or both.bit_count() + 1 + space.values[v][2] > limit:
                        continue
                    self.producers.setdefault(v, {})[operator, x, y] = None
                    derivation, old = both | 1 << v, self.sets.setdefault(v, [])
                    if not any(o & derivation == o for o in old):
                        old[:] = [o for o in old if derivation & o != derivation] + [derivation]
                        todo.append((v, derivation))
        self.depth = {v: min(d.bit_count() for d in found) for v, found in self.sets.items()}

    def graphs(self) -> int:
        """Return how many graphs make the goal: one producer per needed value, heaviest value first."""
        space = self.space
        weight = {v: (space.algebra.weight[space.values[v][0]], v) for v in self.sets}
        count = 0
        start = set(space.start)

        def choose(needs: tuple[int, ...], used: int) -> None:
            nonlocal count
            if not needs:
                count += 1
                return
            left = self.limit - used
            for _, a, b in self.producers[needs[-1]]:
                new = {*needs[:-1], *(v for v in (a, b) if v >= 0 and v not in start)}
                if len(new) < left and all(self.depth[v] < left for v in new):
                    choose(tuple(sorted(new, key=weight.__getitem__)), used + 1)

        for v in self.sets:
            e, stage, _ = space.values[v]
            if e == space.goal and stage != LOOPED:
                choose((v,), 0)
        return count


def main(specs: list[str]) -> None:
    """Print values, pairs, queries, graphs and times for program:limit:macro and each loop axis."""
    for spec in specs:
        name, limit, macro = spec.split(":")
        program = PROGRAMS[name]
        letters = sorted({letter for letters in program.inputs.values() for letter in letters})
        total = 0.0
        for loop in [*(letter for letter in letters if letter not in program.output), None]:
            began = time.process_time()
            space = Space(program, loop, macro)
            closure = Closure(space, int(limit))
            closed = time.process_time()
            graphs = closure.graphs()
            ended = time.process_time()
            total += ended - began
            goals = space.goals
            print(
                f"{name} loop={loop} limit={limit} macro={macro or '-'}: values {len(closure.sets)}, pairs {closure.pairs}, "
                f"queries {goals.asked} ({goals.computed} computed), graphs {graphs}, undecided {space.algebra.undecided}, "
                f"closure {closed - began:.3f} s, enumeration {ended - closed:.3f} s"
            )
        print(f"  {name}: {total:.3f} s")


if __name__ == "__main__":
    main(sys.argv[1:] or [
        "rms_norm_linear:9:", "rms_norm_linear:7:rms", "gated_mlp:6:", "lora:6:", "attention:7:",
        "qk_norm_attention:10:only", "ntrans:7:only",
    ])  # fmt: skip
