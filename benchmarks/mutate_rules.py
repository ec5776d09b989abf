"""Are the operators' tests any good? Break every rule of every record in small ways and count what the checks notice.

`python -m benchmarks.mutate_rules` prints killed/total, the survivors by name, and which mutants are left out because
they mean the same. Exit code 1 when fewer than 95% are killed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from benchmarks.attribute_mutations import mutate_attributes_read
from benchmarks.mutants import Mutant
from benchmarks.rule_mutations import MUTATORS
from tests.conformance.operator_checks import CHECKS
from workbench.ops import operators, registry
from workbench.ops.spec import OpSpec

LEAST_SHARE = 0.95

# Which checks are likely to notice a change of a rule; they run first, the others after them.
FIRST = {
    "shape": ("shape",),
    "axes": ("axes",),
    "on_float": ("float",),
    "field": ("record", "field", "branches", "field expansion", "laws"),
    "abstract": ("terms", "terms expansion"),
    "work": ("work",),
    "scalar_c": ("C expression",),
    "expand": ("float expansion",),
    "laws": ("laws",),
    "homogeneous": ("homogeneous",),
    "commutative": ("commutative",),
    "attributes": ("record",),
    "levels": ("record",),
    "num_results": ("shape",),
}


@contextmanager
def registered(spec: OpSpec) -> Iterator[None]:
    """Put a record in the place of the one of its name, for as long as the context lasts."""
    original = registry._REGISTRY[spec.name]
    registry._REGISTRY[spec.name] = spec
    try:
        yield
    finally:
        registry._REGISTRY[spec.name] = original


def killed_by(mutant: Mutant) -> tuple[str, str] | None:
    """Return the first check that fails on the mutant and the exception's class, None when all pass."""
    first = FIRST[mutant.rule]
    order = [*first, *(name for name in CHECKS if name not in first)]
    with registered(mutant.spec), np.errstate(all="ignore"):
        for name in order:
            try:
                CHECKS[name](mutant.spec)
            except Exception as error:  # a mutated rule may raise anything; that is noticed too
                return name, type(error).__name__
    return None


def main(arguments: list[str]) -> int:
    """Run all mutants (or those of one operator) and print the count, the survivors and what was left out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operator", help="only this operator")
    parser.add_argument("--verbose", action="store_true", help="print every mutant and the check that noticed it")
    options = parser.parse_args(arguments)
    started = time.perf_counter()
    excluded: Counter[str] = Counter()
    noticed: Counter[str] = Counter()
    raised: Counter[str] = Counter()
    survivors: list[str] = []
    for spec in list(operators()):
        if options.operator not in (None, spec.name):
            continue
        for check in CHECKS.values():  # the checks must pass before their failure means anything
            check(spec)
        for mutator in (*MUTATORS, mutate_attributes_read):
            for mutant in mutator(spec):
                if mutant.same_because:
                    excluded[mutant.same_because] += 1
                    if options.verbose:
                        print(f"  left out  {mutant.name} ({mutant.same_because})")
                    continue
                killer = killed_by(mutant)
                if killer is None:
                    survivors.append(mutant.name)
                else:
                    noticed[killer[0]] += 1
                    raised[killer[1]] += 1
                if options.verbose:
                    print(f"  {', '.join(killer or ('SURVIVED',)):34} {mutant.name}")
    killed = sum(noticed.values())
    total = killed + len(survivors)
    print(f"killed {killed} of {total} mutants ({killed / max(total, 1):.1%}) in {time.perf_counter() - started:.0f} s")
    print("noticed by: " + ", ".join(f"{name} {count}" for name, count in noticed.most_common()))
    print("by raising: " + ", ".join(f"{name} {count}" for name, count in raised.most_common()))
    print(f"left out as equal in meaning: {sum(excluded.values())}")
    for reason, count in excluded.most_common():
        print(f"  {count:3} {reason}")
    print(f"survivors: {len(survivors)}")
    for name in survivors:
        print(f"  {name}")
    return 0 if total and killed >= LEAST_SHARE * total else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
