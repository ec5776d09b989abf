"""How fast the algebra answers: normal forms and distance queries per second, cold and warm, on the goals of the paper.

Run: python -m benchmarks.abstract_queries
"""

from __future__ import annotations

import resource
import time

from benchmarks.abstract_programs import PROGRAMS
from benchmarks.abstract_search import Closure, Space
from workbench.domains.abstract_distance import FAR
from workbench.domains.abstract_goals import Goals
from workbench.domains.abstract_readback import Readback

CASES = (
    ("rms_norm_linear", "h", "", 9, 99),
    ("attention", "s", "", 7, 99),
    ("attention_safe", "s", "", 9, 4),
    ("qk_norm_attention", "s", "only", 10, 99),
    ("ntrans", None, "only", 7, 3),
)


def main() -> None:
    """Print a line per program; distances are asked of a goal compiled afresh, normal forms of an algebra begun afresh."""
    columns = ("program", "values", "cold/s", "nested/s", "warm/s", "operations/s", "far", "MB")
    print(f"{columns[0]:20s}" + "".join(f"{column:>13s}" for column in columns[1:]))
    for name, loop, macro, limit, depth in CASES:
        space = Space(PROGRAMS[name], loop, macro)
        Closure(space, limit, depth)
        algebra = space.algebra
        asked = list(space.goals.known)
        goals = Goals(algebra, [space.goal], space.goals.costs)
        began = time.process_time()
        distances = [goals.distance(value) for value in asked]
        cold = time.process_time() - began
        nested = sum(len(region.known) for region in goals.tables.regions.values())
        began = time.process_time()
        for _ in range(10):
            for value in asked:
                goals.distance(value)
        warm = (time.process_time() - began) / 10
        readback = Readback(algebra)
        terms = [readback.term(value) for value in asked[:2000]]
        fresh = type(algebra)()
        fresh.normalize(PROGRAMS[name].goal(loop))
        began = time.process_time()
        for term in terms:
            fresh.normalize(term)
        forms = time.process_time() - began
        operations = len({id(sub) for term in terms for sub in term.subterms()})
        far = sum(distance >= FAR for distance in distances) / len(distances)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
        rates = (len(asked), len(asked) / cold, nested / cold, len(asked) / warm, operations / forms)
        print(f"{name:20s}" + "".join(f"{rate:13.0f}" for rate in rates) + f"{far:13.2f}{memory:13.0f}")


if __name__ == "__main__":
    main()
