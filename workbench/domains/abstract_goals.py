"""Is a value still of use? Goals compiled once, asked for distances, and for the evidence behind an answer.

Invariant: `distance` is 0 for a goal, FAR for what is no subexpression of any goal, and otherwise never more than the
operators a graph still needs. The count test comes first and needs no normal form: `admits` answers before an
operation is carried out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import combinations

from workbench.display import Displayed
from workbench.domains.abstract_costs import StepCosts
from workbench.domains.abstract_distance import FAR, WHOLE, DistanceTables, Place, Region
from workbench.domains.abstract_embedding import Context
from workbench.domains.abstract_expr import Axis
from workbench.domains.abstract_normal_form import ONE, Algebra, Value
from workbench.domains.abstract_tables import Monomial, UndecidedError
from workbench.errors import UsageError


@dataclass(frozen=True, slots=True)
class Judgement(Displayed):
    """What a value is to the goals, and why.

    Attributes:
        value, distance: what was asked, and the answer.
        rule: "goal" (it is one), "embeds", "count" (more of something than any goal has), "absent" (it lies in no form of
            a goal), "undecided" (kept).
        goal: which goal, by place; -1 where no goal answers.
        path: the crossings from that goal inwards to the part in which it lies, "numerator" for none.
        places: the same as compiled places, for printing.
        region: that part of the goal.
        context: how it lies there; None where it is that part, or where only counts were compared.
        cofactor: what it is still multiplied with there (a value).
        left: axes still to be summed there.
        excess: (what, how many it has, how many the goal with most has), for the count rule.
        clash: two parts of it that never occur in one product of a goal, for the rule "absent", else empty.
    """

    value: Value
    distance: int
    rule: str
    goal: int = -1
    path: tuple[str, ...] = ()
    places: tuple[Place, ...] = ()
    region: Value = ONE
    context: Context | None = None
    cofactor: Value = ONE
    left: tuple[Axis, ...] = ()
    excess: tuple[tuple[str, int, int], ...] = ()
    clash: tuple[Value, ...] = ()

    def describe(self) -> str:
        """Return one line without the expressions themselves (`abstract_print` has them)."""
        where = " < ".join(self.path) if self.path else "the goal"
        match self.rule:
            case "goal":
                return f"equals goal {self.goal}"
            case "embeds":
                left = f", then summed over {', '.join(map(str, self.left))}" if self.left else ""
                operators = "operator" if self.distance == 1 else "operators"
                return f"lies in goal {self.goal} in {where}{left}; at least {self.distance} {operators} away"
            case "count":
                return "; ".join(f"has {has} x {what}, no goal has more than {most}" for what, has, most in self.excess)
            case "undecided":
                return "its normal form is undecided: kept"
        return "lies in no form of a goal" + (": two of its parts never meet in one product" if self.clash else "")


class Goals:
    """The outputs of a program, compiled for one algebra and one palette.

    Attributes: algebra, values (the goals), costs, tables, asked (queries), computed (those not remembered), rejected
    (rule -> how many distinct values: "count", "absent"), kept_undecided (distinct values), known (value -> distance).
    """

    def __init__(self, algebra: Algebra, values: Sequence[Value], costs: StepCosts | None = None) -> None:
        """Compile the goals. Raises: UsageError without goals."""
        if not values:
            raise UsageError("no goal given; a program has at least one output")
        self.algebra = algebra
        self.values = tuple(values)
        self.tables = DistanceTables(algebra, costs)
        self.costs = self.tables.costs
        self.regions = tuple(self.tables.region(value) for value in values)
        self.asked = self.computed = self.kept_undecided = 0
        self.rejected: Counter[str] = Counter()
        self.known: dict[Value, int] = {}
        self._budgets = tuple(region.count for region in self.regions)
        self._has_maximum = any(self.tables.has_maximum(value) for value in values)

    # ----------------------------------------------------------------------------------------------------- queries
    def distance(self, value: Value) -> int:
        """Return the fewest operators from the value to a goal, at least; 0 for a goal, FAR for no subexpression."""
        self.asked += 1
        found = self.known.get(value)
        if found is None:
            found = self.known[value] = self._distance(value)
        return found

    def _distance(self, value: Value) -> int:
        self.computed += 1
        if not self.fits(value):
            self.rejected["count"] += 1
            return FAR
        if self.algebra.frozen[value]:
            self.kept_undecided += 1
            return 0
        found = min(self.tables.distances(region, value)[WHOLE] for region in self.regions)
        if found >= FAR:
            self.rejected["absent"] += 1
        return found

    def distances(self, value: Value) -> tuple[int, ...]:
        """Return the distance to each goal."""
        if self.algebra.frozen[value]:
            return tuple(0 if self._fits(value, budget) else FAR for budget in self._budgets)
        return tuple(self.tables.distances(region, value)[WHOLE] for region in self.regions)

    def is_goal(self, value: Value) -> bool:
        """Return whether a value equals a goal under A_eq."""
        return value in self.values

    def judge(self, value: Value) -> Judgement:
        """Return the distance with its evidence."""
        distance = self.distance(value)
        if self.is_goal(value):
            return Judgement(value, 0, "goal", self.values.index(value), region=value)
        if not self.fits(value):
            return Judgement(value, FAR, "count", excess=self._excess(value))
        if self.algebra.frozen[value]:
            return Judgement(value, 0, "undecided")
        if distance >= FAR:
            return Judgement(value, FAR, "absent", clash=self._clash(value))
        distances = self.distances(value)
        goal = distances.index(distance)
        places, region, context = self._trace(self.regions[goal], value, WHOLE)
        cofactor, left = ONE, 0
        if context is not None:
            cofactor = self.algebra.sum_mask(context.own, Value(self.algebra.polynomial((context.cofactor,))))
            left = context.left & self.algebra.mask[value]
        path = tuple(place.label for place in places) or ("numerator",)
        inside = Value(region.opened.polynomial) if region.opened.polynomial >= 0 else ONE
        return Judgement(
            value, distance, "embeds", goal, path, tuple(places), inside, context, cofactor, self.algebra.axes_of(left)
        )

    # ------------------------------------------------------------------------------------------------------- counts
    def fits(self, value: Value) -> bool:
        """Return whether a value has nothing more often than a goal."""
        return any(self._fits(value, budget) for budget in self._budgets)

    def admits(self, operator: str, left: Value, right: Value | None = None) -> bool:
        """Return whether the counts alone allow the result of an operator; nothing is built.

        Counts of a product are |q| count(p) + |p| count(q) at least, of the other operators the sum of the operands';
        of a maximum they may be less.
        """
        algebra = self.algebra
        if right is None:
            return self.fits(left)
        if operator in ("maximum", "max"):
            return self.fits(left) and self.fits(right)
        times_left = times_right = 1
        if operator in ("mul", "matmul"):
            times_left, times_right = len(algebra.polynomials[right]), len(algebra.polynomials[left])
        elif operator == "div":
            times_right = len(algebra.polynomials[left])
        if times_left * algebra.weight[left] + times_right * algebra.weight[right] > algebra.max_weight:
            return self._has_maximum or any(region.undecided for region in self.regions)
        count = times_left * algebra.count[left] + times_right * algebra.count[right]
        return any(algebra.fits(count, budget) for budget in self._budgets)

    def _fits(self, value: Value, budget: int) -> bool:
        return self.algebra.fits(self.algebra.count[value], budget)

    def _excess(self, value: Value) -> tuple[tuple[str, int, int], ...]:
        has = self.algebra.feature_counts(self.algebra.count[value])
        budgets = [self.algebra.feature_counts(budget) for budget in self._budgets]
        most = {key: max(budget.get(key, 0) for budget in budgets) for key in has}
        return tuple(sorted((self._feature_name(key), n, most[key]) for key, n in has.items() if n > most[key]))

    def _feature_name(self, key: Hashable) -> str:
        if not isinstance(key, tuple):
            return str(key)
        kind = key[0]
        if kind in ("sum", "max"):
            return f"{kind} over {self.algebra.axes_of(key[1])[0]}"
        if kind == "extent":
            return f"sum over {self.algebra.axes_of(key[2][0])[0]} of something that does not vary along it"
        return f"factor {key[1]} of a {'sum' if kind == 'size' else 'max'}" if kind in ("size", "peak") else str(key[1])

    # ----------------------------------------------------------------------------------------------------- evidence
    def _trace(self, region: Region, p: int, question: int) -> tuple[list[Place], Region, Context | None]:
        """Return the places crossed, the region reached and the context there, on a path of the distance's length."""
        tables = self.tables
        target = tables.distances(region, p)[question]
        if p == region.opened.polynomial or region.undecided:
            return [], region, None
        if tables.linear(region, p)[question] == target:
            contexts = list(tables.embeddings.contexts(region.opened, p))
            best = min(contexts, key=lambda c: (tables.steps_of(c, p), c.left.bit_count(), c.cofactor))
            return [], region, best
        for place in region.places:
            inner = tables.distances(place.child, p)
            if inner[WHOLE] >= FAR:
                continue
            for follow, asked in tables.alternatives(place, inner, self.algebra.mask[p]):
                if follow[question] == target:
                    places, last, context = self._trace(place.child, p, asked)
                    return [place, *places], last, context
        return [], region, None

    def _clash(self, value: Value) -> tuple[Value, ...]:
        """Return two factors of one of its monomials that are never in one product, or two summands that never are in one sum."""
        algebra = self.algebra
        try:
            for m in algebra.polynomials[value]:
                a = algebra.monomials[algebra.open_sums(m)[1]]
                for pair in combinations(sorted(set(a.num)), 2):
                    both = Value(algebra.polynomial((algebra.monomial(Monomial(pair[::-1])),)))
                    if self._nowhere(both):
                        return tuple(Value(algebra.atom_polynomial(atom)) for atom in pair)
            for pair in combinations(sorted(set(algebra.polynomials[value])), 2):
                if self._nowhere(Value(algebra.polynomial(pair))):
                    return tuple(Value(algebra.polynomial((m,))) for m in pair)
        except UndecidedError:
            return ()
        return ()

    def _nowhere(self, value: Value) -> bool:
        return all(self.tables.distances(region, value)[WHOLE] >= FAR for region in self.regions)
