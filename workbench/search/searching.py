"""`wb.search`: one door to both engines, to records, and to whatever runs the work.

Invariant: program, space, engine, pruners, verifier and seed decide the events; record and executor do not.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import TYPE_CHECKING, Literal

from workbench.errors import UsageError
from workbench.search.driver import Runner, drive
from workbench.search.engine import ValueSearch
from workbench.search.events import Event
from workbench.search.executors import HasExecutor, runner_of
from workbench.search.recording import Recorder, Subject
from workbench.search.space import Space
from workbench.search.verdicts import Verifier
from workbench.search.work import Work
from workbench.ugraph.kernel_graph import KernelGraph, expect_kernel_graph

if TYPE_CHECKING:
    from workbench.search.pruners.rule import Pruner

Engine = Literal["values", "prefix"]


def search(
    program: KernelGraph,
    *,
    space: Space | None = None,
    engine: Engine | None = None,
    pruners: Sequence[str | Pruner] | None = None,
    options: Mapping[str, object] | None = None,
    verifier: Verifier | None = None,
    seed: int = 0,
    executor: Executor | HasExecutor | Runner | int | None = None,
    record: str | os.PathLike[str] | Recorder | None = None,
    resume: bool = True,
) -> Generator[Event, None, None]:
    """Return the events of a search for µGraphs that compute a program; nothing is searched before they are asked for.

    engine: "values" (values first, then graphs) or "prefix" (the paper's algorithm 1); by default "prefix" if pruners or
    options are given or the space enumerates maps, else "values". pruners: names or objects, by default
    abstract_expression, axes, reducibility and demand, which the values engine cannot be without. options: of the prefix
    engine, by name (see `prefix.options.Options`): `start` (a prefix to begin with), `keep` (asked about a prefix that a
    rule drops, True to go on with it), `quiet` (say only what is complete), `unique`, `limits`, `tests`, `seconds`.
    verifier: asked about every structure; by default each is screened by a random test in a pair of finite fields.
    seed: of the screening. executor: anything with the interface of `concurrent.futures.Executor`, a number of
    processes, a client of a cluster (Dask), or a `driver.Runner`; by default the work is done here. The events do not
    depend on it. record: a file of the events, which `replay` reads; when it holds an interrupted search for the same, that one's
    events come first and it is continued (resume=False: started anew). Closing the generator, Ctrl-C and a killed
    process all leave such a file.

    Raises: UsageError for a program with block graphs, choices that do not fit together, or a record of another search.
    """
    expect_kernel_graph(program, "searched for")
    space = Space() if space is None else space
    if not isinstance(space, Space):
        raise UsageError(f"space {space!r}: expected a Space")
    if type(seed) is not int or seed < 0:
        raise UsageError(f"seed {seed!r}: expected a whole number from 0")
    engine = engine or ("prefix" if options is not None else default_engine(space, pruners))
    work = _work(engine, program, space, pruners, options or {}, verifier, seed)
    if record is None:
        return drive(work, runner=runner_of(executor))
    if isinstance(record, Recorder):
        recorder = record
    else:
        subject = subject_of(program, space, engine, pruners, verifier, seed, options)
        recorder = Recorder(record, subject, resume=resume)
    if recorder.past is not None and recorder.past.is_finished:
        recorder.close(finished=True)
        return (event for event in recorder.past)
    return drive(work, runner=runner_of(executor), journal=recorder)


def default_engine(space: Space, pruners: Sequence[str | Pruner] | None) -> Engine:
    """Return the engine that searches a space, if none is named."""
    return "prefix" if pruners is not None or space.mapping == "enumerate" else "values"


def subject_of(
    program: KernelGraph,
    space: Space,
    engine: Engine,
    pruners: Sequence[str | Pruner] | None,
    verifier: Verifier | None,
    seed: int,
    choices: Mapping[str, object] | None = None,
) -> Subject:
    """Return what decides the events of a search, as its record names it. Raises: UsageError for what it cannot name."""
    choices = choices or {}
    for name in ("keep", "seconds"):
        if choices.get(name) is not None:
            raise UsageError(
                f"option {name!r} decides the events and cannot be written to a record; leave one of them out"
            )
    options: dict[str, object] = {"verifier": name_of(verifier) if verifier is not None else "screening"}
    if pruners is not None:
        options["pruners"] = [pruner if isinstance(pruner, str) else pruner.name for pruner in pruners]
    options |= {name: value if isinstance(value, str | bool) else repr(value) for name, value in choices.items()}
    return Subject(program, space, seed, engine, options)


def name_of(verifier: object) -> str:
    """Return a name for a verifier: its function's, with what was bound to it."""
    if isinstance(verifier, partial):
        bound = ", ".join(f"{name}={value!r}" for name, value in sorted(verifier.keywords.items()))
        return f"{name_of(verifier.func)}({bound})"
    module, name = getattr(verifier, "__module__", ""), getattr(verifier, "__qualname__", type(verifier).__qualname__)
    return f"{module}.{name}"


def _work(
    engine: str,
    program: KernelGraph,
    space: Space,
    pruners: Sequence[str | Pruner] | None,
    options: Mapping[str, object],
    verifier: Verifier | None,
    seed: int,
) -> Work:
    if engine == "values":
        if options:
            raise UsageError(
                f"option {min(options)!r} belongs to the prefix engine; leave engine='values' out, or the option"
            )
        if pruners is not None:
            from workbench.search.pruners.names import pruners_of

            pruners_of(pruners, engine=engine)  # refuses what this engine cannot do without, or not use
        if space.mapping != "axes":
            raise UsageError(f"mapping {space.mapping!r} belongs to the prefix engine; the values engine takes 'axes'")
        return ValueSearch(program, space, verifier, seed)
    if engine == "prefix":
        from workbench.search.prefix.engine import prefix_work

        return prefix_work(program, space, pruners, verifier, seed, **options)
    raise UsageError(f"engine {engine!r}: use 'values' or 'prefix'")
