"""Theorem 1 on many small random programs: what brute force verifies and A_eq makes equal to the program is found.

Run from the repository's root: `python -m benchmarks.theorem_one --programs 200 --largest 4`. Prints one line for every
graph that an engine lost or that the oracle does not know, and the sums.
"""

from __future__ import annotations

import argparse
import random
import time

from tests.property.brute_force import random_program
from tests.property.theorem_one import ENGINES, compare

SIZES = (2, 2, 3, 3, 4)
"""Operators of the programs, in turn."""


def main() -> None:
    """Compare so many programs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--largest", type=int, default=4, help="operators that brute force goes up to")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    arguments = parser.parse_args()
    start, seed, done = time.process_time(), arguments.first, 0
    graphs = cancelled = repeated = lost = extra = 0
    settings = {0: 0, 1: 0, 2: 0}
    seen: set[str] = set()
    while done < arguments.programs:
        seed += 1
        program = random_program(random.Random(seed), SIZES[seed % len(SIZES)])
        if program is None or str(program) in seen:
            continue
        seen.add(str(program))
        found = compare(program, arguments.largest)
        if found is None:
            continue
        done += 1
        graphs, cancelled, repeated = graphs + found.expected, cancelled + found.cancelled, repeated + found.repeated
        lost, extra = lost + len(found.lost), extra + len(found.extra)
        for more in settings:
            settings[more] += found.minimum + more <= found.largest
        for name, listed in (("lost", found.lost), ("not known to the oracle", found.extra)):
            for engine, limit, key in listed:
                print(f"seed {seed}: {program}\n  {name}: {engine} at {limit} operators: {key}", flush=True)
        if done % 20 == 0:
            print(f"{done} programs, {graphs} graphs, {lost} lost, {time.process_time() - start:.0f} s", flush=True)
    limits = ", ".join(
        f"{count} at the smallest size{f' + {more}' if more else ''}" for more, count in settings.items()
    )
    print(
        f"{done} programs ({limits}), engines {' and '.join(ENGINES)}: {graphs} graphs equal under A_eq, {lost} lost, "
        f"{extra} unknown to the oracle; counted apart: {cancelled} equal only by cancellation, {repeated} with two tensors "
        f"of equal expression; {time.process_time() - start:.0f} s"
    )


if __name__ == "__main__":
    main()
