"""The same questions put to general solvers, as Mirage does: Z3 with quantified axioms, an e-graph by egglog.

Invariant: both are given the one axiom list of `abstract_axioms`; "proved" is believed, anything else is undecided. They
exist to compare with (and to teach): the normal form decides what they only sometimes prove. Paper's form only.
Z3 runs in a child process that is killed when it does not answer in time, because its own time limit is not kept; the
child is a plain interpreter, so it works from notebooks and from scripts without a guard, and ends with its parent.
Neither solver is imported before it is used.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

from workbench.domains.abstract_axioms import Axiom, Pattern, axioms_of
from workbench.domains.abstract_expr import Kind, Term
from workbench.errors import UsageError

UNARY = ("exp", "sqrt")
BINARY = ("add", "mul", "div", "maximum")
TABLE_2 = axioms_of("table 2")


def check_sizes_form(term: Term) -> None:
    """Raises: UsageError for a term that is not in the paper's form."""
    for sub in term.subterms():
        if sub.axes or sub.kind in (Kind.CONCAT, Kind.MARK) or (sub.kind is Kind.APPLY and len(sub.args) != 1):
            raise UsageError(f"{sub}: solvers take the paper's form with functions of one argument; use `to_sizes`")


# ----------------------------------------------------------------------------------------------------------------- Z3
class Z3Solver:
    """Proves with Z3 that terms are equal or subexpressions; a context manager that ends its child process.

    Attributes: seconds (for one question), killed (children that had to be ended).
    """

    def __init__(self, *, seconds: float = 5.0, rlimit: int = 3_000_000, axioms: Sequence[Axiom] = TABLE_2) -> None:
        """Keep the limits: wall time, and Z3's own resource count, by which the answer does not depend on the machine."""
        self.seconds, self.rlimit, self.axioms = seconds, rlimit, tuple(axioms)
        self.killed = 0
        self._child: tuple[subprocess.Popen[bytes], Connection] | None = None

    def proves_equal(self, left: Term, right: Term) -> bool | None:
        """Return True when Z3 proves left = right, None when it does not in time."""
        return self._ask("equal", left, right)

    def proves_subexpression(self, part: Term, whole: Term) -> bool | None:
        """Return True when Z3 proves that part is a subexpression of whole, None when it does not in time."""
        return self._ask("subexpression", part, whole)

    def close(self) -> None:
        """End the child process."""
        if self._child is not None:
            process, pipe = self._child
            process.kill()
            process.wait()
            pipe.close()
            self._child = None

    def __enter__(self) -> Z3Solver:
        """Return the solver."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the child process."""
        self.close()

    def _ask(self, question: str, left: Term, right: Term) -> bool | None:
        check_sizes_form(left)
        check_sizes_form(right)
        if self._child is None:
            self._child = self._start()
        pipe = self._child[1]
        try:
            pipe.send((question, left, right))
            if pipe.poll(self.seconds):
                return True if pipe.recv() else None
        except (EOFError, OSError):  # somebody else ended the child
            pass
        self.killed += 1
        self.close()
        return None

    def _start(self) -> tuple[subprocess.Popen[bytes], Connection]:
        """Raises: UsageError when Z3 cannot be imported."""
        ours, theirs = Pipe()
        script = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import serve; serve({theirs.fileno()}, {os.getpid()})"
        process = subprocess.Popen(
            [sys.executable, "-c", script],
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        theirs.close()
        try:
            ours.send((self.axioms, self.rlimit))
            ours.recv()  # ready: importing Z3 does not count
        except (EOFError, OSError) as error:
            ours.close()
            raise UsageError(
                f"the process for Z3 ended with exit code {process.wait()}; is z3-solver installed?"
            ) from error
        return process, ours


def serve(descriptor: int, parent: int) -> None:
    """Answer questions that come through a pipe until it is closed; in the child process. parent: its process id."""
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    pipe = Connection(descriptor)
    try:
        axioms, rlimit = pipe.recv()
        theory = _Z3Theory(axioms)
        pipe.send("ready")
        while True:
            question, left, right = pipe.recv()
            pipe.send(theory.proves(question, left, right, rlimit))
    except (EOFError, OSError):
        return


def _end_with(parent: int) -> None:
    """End this process once its parent is gone, also in the middle of a proof."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


class _Z3Theory:
    """The axioms as quantified formulas over one uninterpreted sort, as Mirage gives them to Z3."""

    def __init__(self, axioms: Sequence[Axiom]) -> None:
        import z3

        self.z3 = z3
        sort = self.sort = z3.DeclareSort("E")
        self.functions: dict[str, Any] = {name: z3.Function(name, sort, sort) for name in UNARY}
        self.functions |= {name: z3.Function(name, sort, sort, sort) for name in BINARY}
        self.functions |= {name: z3.Function(name, z3.IntSort(), sort, sort) for name in ("sum", "max")}
        self.inside = z3.Function("subexpression", sort, sort, z3.BoolSort())
        self.axioms = [self._closed(self._pattern(a.left) == self._pattern(a.right), a.left, a.right) for a in axioms]
        self.inside_axioms = self._subexpressions()

    def proves(self, question: str, left: Term, right: Term, rlimit: int) -> bool:
        """Return whether the claim follows; False when Z3 gives up."""
        z3 = self.z3
        solver = z3.Solver()
        solver.set("rlimit", rlimit)
        solver.add(self.axioms)
        a, b = self._term(left), self._term(right)
        if question == "equal":
            solver.add(a != b)
        else:
            solver.add(self.inside_axioms)
            solver.add(*(self.inside(self._term(sub.args[0]), self._term(sub)) for sub in right.subterms() if sub.args))
            solver.add(z3.Not(self.inside(a, b)))
        return bool(solver.check() == z3.unsat)

    def _pattern(self, pattern: Pattern) -> Any:
        z3 = self.z3
        if isinstance(pattern, str):
            return (
                z3.IntVal(1) if pattern == "1" else z3.Int(pattern) if pattern in "ij" else z3.Const(pattern, self.sort)
            )
        operator, *parts = pattern
        values = [self._pattern(part) for part in parts]
        return values[0] * values[1] if operator == "times" else self.functions[str(operator)](*values)

    def _closed(self, formula: Any, *patterns: Pattern) -> Any:
        z3 = self.z3
        names = sorted({name for pattern in patterns for name in _variables(pattern)})
        return z3.ForAll([z3.Int(n) if n in "ij" else z3.Const(n, self.sort) for n in names], formula)

    def _subexpressions(self) -> list[Any]:
        z3, inside = self.z3, self.inside
        x, y, z = z3.Consts("x y z", self.sort)
        i = z3.Int("i")
        claims = [
            z3.ForAll([x], inside(x, x)),
            z3.ForAll([x, y, z], z3.Implies(z3.And(inside(x, y), inside(y, z)), inside(x, z))),
        ]
        for name in BINARY:
            whole = self.functions[name](x, y)
            claims.append(z3.ForAll([x, y], z3.And(inside(x, whole), inside(y, whole))))
        claims += [z3.ForAll([x], inside(x, self.functions[name](x))) for name in UNARY]
        claims += [z3.ForAll([i, x], inside(x, self.functions[name](i, x))) for name in ("sum", "max")]
        return claims

    def _term(self, term: Term) -> Any:
        z3 = self.z3
        done: dict[Term, Any] = {}
        for sub in term.subterms():
            args = [done[arg] for arg in sub.args]
            match sub.kind:
                case Kind.SYMBOL | Kind.CONSTANT:
                    done[sub] = z3.Const(f"leaf {sub.name or sub.number}", self.sort)
                case Kind.SUM | Kind.MAX:
                    done[sub] = self.functions[sub.kind.value](z3.IntVal(sub.size), *args)
                case Kind.APPLY:
                    done[sub] = z3.Function(f"apply {sub.name}", self.sort, self.sort)(*args)
                case _:
                    done[sub] = self.functions[sub.kind.value](*args)
        return done[term]


def _variables(pattern: Pattern) -> Iterator[str]:
    if isinstance(pattern, str):
        if pattern != "1":
            yield pattern
    else:
        for part in pattern[1:]:
            yield from _variables(part)


# ------------------------------------------------------------------------------------------------------------- egglog
class EGraph:
    """An e-graph grown from a goal by the axioms for a number of rounds (Mirage's pruner grows one with a time limit).

    What is not found may be missing because the rounds did not suffice: undecided.
    """

    def __init__(self, goal: Term, *, rounds: int = 5, axioms: Sequence[Axiom] = TABLE_2) -> None:
        """Grow the e-graph. Raises: ImportError without egglog (extra `egraph`)."""
        from egglog import bindings

        check_sizes_form(goal)
        self._failed: type[Exception] = bindings.EggSmolError
        self._graph: Any = bindings.EGraph()
        self._functions: set[str] = set()
        self._count = 0
        names = sorted({sub.name for sub in goal.subterms() if sub.kind is Kind.APPLY})
        divisors = sorted({n for sub in goal.subterms() if sub.size for n in _divisors(sub.size)})
        self._run(_egglog_program(axioms, names, divisors))
        self._functions.update(names)
        self._run(f"(let $goal {_egglog_term(goal)}) (inside $goal) (run {rounds})")

    def equals_goal(self, term: Term) -> bool:
        """Return whether the e-graph has the term in the goal's class."""
        return self._holds(term, "(= {0} $goal)")

    def contains(self, term: Term) -> bool:
        """Return whether the e-graph shows the term to be a subexpression of the goal."""
        return self._holds(term, "(inside {0})")

    def _holds(self, term: Term, claim: str) -> bool:
        check_sizes_form(term)
        if any(sub.kind is Kind.APPLY and sub.name not in self._functions for sub in term.subterms()):
            return False
        self._count += 1
        name = f"$asked{self._count}"
        self._run(f"(push) (let {name} {_egglog_term(term)}) (run 2)")
        try:
            self._run(f"(check {claim.format(name)})")
        except self._failed:
            return False
        finally:
            self._run("(pop)")
        return True

    def _run(self, program: str) -> None:
        self._graph.run_program(*self._graph.parse_program(program))


def _egglog_program(axioms: Sequence[Axiom], functions: Sequence[str], divisors: Sequence[int]) -> str:
    constructors = ["(Leaf String)"]
    constructors += [f"(e_{name} E)" for name in UNARY] + [f"(e_{name} E E)" for name in BINARY]
    constructors += ["(e_sum i64 E)", "(e_max i64 E)"] + [f"(f_{name} E)" for name in functions]
    lines = [f"(datatype E {' '.join(constructors)})", "(relation inside (E))", "(relation product (i64 i64 i64))"]
    lines += [f"(product {a} {b} {a * b})" for a in divisors for b in divisors if a > 1 < b and a * b in divisors]
    for axiom in axioms:
        for left, right in ((axiom.left, axiom.right), (axiom.right, axiom.left)):
            line = _egglog_rewrite(left, right)
            if line:
                lines.append(line)
    for name in BINARY:
        lines.append(f"(rule ((inside e) (= e (e_{name} x y))) ((inside x) (inside y)))")
    for name in (*(f"e_{name}" for name in UNARY), *(f"f_{name}" for name in functions)):
        lines.append(f"(rule ((inside e) (= e ({name} x))) ((inside x)))")
    for name in ("sum", "max"):
        lines.append(f"(rule ((inside e) (= e (e_{name} i x))) ((inside x)))")
    return "\n".join(lines)


def _egglog_rewrite(left: Pattern, right: Pattern) -> str:
    """Return a rewriting, empty where the left side is a bare variable (x = sum(1, x) the wrong way round)."""
    if isinstance(left, str):
        return ""
    if "times" in repr(left):  # sum(i*j, x): the ways to write the number as a product are facts
        return f"(rule ((= e {_egglog_pattern(left, 'n')}) (product i j n)) ((union e {_egglog_pattern(right)})))"
    return f"(rewrite {_egglog_pattern(left)} {_egglog_pattern(right)})"


def _egglog_pattern(pattern: Pattern, times: str = "") -> str:
    if isinstance(pattern, str):
        return pattern
    operator, *parts = pattern
    if operator == "times":
        return times or f"(* {' '.join(_egglog_pattern(part) for part in parts)})"
    return f"(e_{operator} {' '.join(_egglog_pattern(part, times) for part in parts)})"


def _egglog_term(term: Term) -> str:
    text: dict[Term, str] = {}
    writers: Mapping[Kind, Callable[[Term], str]] = {
        Kind.SYMBOL: lambda sub: f'(Leaf "{sub.name}")',
        Kind.CONSTANT: lambda sub: f'(Leaf "{sub.number}")',
        Kind.SUM: lambda sub: f"(e_sum {sub.size} {text[sub.args[0]]})",
        Kind.MAX: lambda sub: f"(e_max {sub.size} {text[sub.args[0]]})",
        Kind.APPLY: lambda sub: f"(f_{sub.name} {text[sub.args[0]]})",
    }
    for sub in term.subterms():
        write = writers.get(sub.kind)
        text[sub] = write(sub) if write else f"(e_{sub.kind.value} {' '.join(text[arg] for arg in sub.args)})"
    return text[term]


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]
