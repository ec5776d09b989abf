"""`workbench ablate`: what each pruner saves, as a table; with --course, the lecture's demonstration of the search."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import cast

from workbench.commands import requests
from workbench.commands.answer import Answer, Call, Json
from workbench.errors import UsageError
from workbench.search.prefix.ablation import COLUMNS, ablate
from workbench.search.prefix.course import course


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("program", nargs="?", metavar="PROGRAM", help="a program's name, or a file with a graph")
    parser.add_argument("--course", action="store_true", help="the lecture's program and limits instead of PROGRAM")
    parser.add_argument("--from", dest="first", type=int, default=5, metavar="N", help="operators of the first row (5)")
    parser.add_argument("--to", dest="last", type=int, default=11, metavar="N", help="operators of the last row (11)")
    parser.add_argument(
        "--columns", default=",".join(COLUMNS), metavar="A,B", help=f"of {', '.join(COLUMNS)} (default: all of them)"
    )
    parser.add_argument(
        "--seconds", type=float, default=60.0, metavar="S", help="process time after which a search is stopped (60)"
    )
    parser.add_argument("--every", action="store_true", help="begin also what is larger than a search that was stopped")
    parser.add_argument("--out", type=Path, metavar="FILE", help="keep every row in this file, and continue from it")
    requests.add_program_arguments(parser)


def run(call: Call) -> Answer:
    """Return the table. Raises: as `requests.read_source`, `ablate`."""
    arguments = call.arguments
    if arguments.course:
        if arguments.program:
            raise UsageError(f"--course has a program of its own; leave out {arguments.program!r}")
        shown = course(seconds=arguments.seconds, tell=call.progress)
        return Answer(shown.describe(), cast(dict[str, Json], shown.to_json()))
    if not arguments.program:
        raise UsageError("name a PROGRAM, or give --course; `workbench programs` lists those that have names")
    if not 1 <= arguments.first <= arguments.last:
        raise UsageError(f"rows from {arguments.first} to {arguments.last} operators: give 1 <= --from <= --to")
    source = requests.read_source(arguments.program, arguments, call.settings)
    table = ablate(
        requests.pick(source.graphs, 0, what=arguments.program),
        operators=range(arguments.first, arguments.last + 1),
        columns=tuple(name.strip() for name in arguments.columns.split(",")),
        seconds=arguments.seconds,
        file=arguments.out,
        every=arguments.every,
        tell=call.progress,
    )
    return Answer(table.describe(), cast(dict[str, Json], table.to_json()))
