"""The command line: `workbench COMMAND ...`.

Invariant: standard output carries the answer only (one JSON object under `--json`), standard error one clear line when
there is none; exit codes are 0 done, 1 the answer is no, 2 bad input or usage, 130 interrupted. Never a traceback.
"""

from __future__ import annotations

import argparse
import difflib
import json
import math
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn

from workbench import __version__
from workbench.errors import UsageError, WorkbenchError

if TYPE_CHECKING:
    from workbench.commands.answer import Answer, Command, Json

COMMANDS = {
    "programs": "list the studied programs, their sizes, inputs and outputs",
    "show": "show a program or a saved graph as text, and draw it",
    "check": "evaluate a program and its known good µGraphs, compare and draw them",
    "verify": "decide whether two graphs compute the same",
    "optimize": "find and tune the fastest verified µGraph of a program",
    "emit": "write the CUDA kernels of a program or graph",
    "search": "find µGraphs that compute the same as a program",
    "ablate": "table what each pruner of the search by prefixes saves",
    "replay": "print a recorded run the way it was printed when it ran",
    "measure": "time kernels beside what you would otherwise run",
    "lab": "open the notebooks in JupyterLab, or the launchpad alone as a page",
    "doctor": "say which optional parts this machine has",
}
_LEADING = ("--json", "--debug")


class _Parser(argparse.ArgumentParser):
    """A parser that raises instead of printing its usage and leaving."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see {self.prog} --help")


def main(tokens: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code; `tokens` default to the process's arguments."""
    given = list(sys.argv[1:] if tokens is None else tokens)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without µ gets a question mark
    try:
        return _run(given)
    except KeyboardInterrupt:
        _complain("interrupted")
        return 130
    except BrokenPipeError:  # the reader left, as `head` does; leave without Python's own complaint
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except SystemExit as leaving:  # argparse after --help
        return int(leaving.code or 0)
    except Exception as error:  # the door: whatever happens, the user gets one line
        if "--debug" in given:
            raise
        _complain(explain(error))
        return 2


def explain(error: Exception) -> str:
    """Return one line that says what is wrong."""
    match error:
        case WorkbenchError():
            text = str(error)
        case OSError(strerror=str(reason)):
            text = f"{error.filename}: {reason}" if error.filename else reason
        case MemoryError():
            text = "not enough memory; choose smaller sizes"
        case RecursionError():
            text = "the input is nested too deeply"
        case _:
            text = f"internal error, please report it ({type(error).__name__}: {error}); --debug shows where"
    return " ".join(text.split())


def _run(tokens: list[str]) -> int:
    words = next((number for number, token in enumerate(tokens) if token not in _LEADING), len(tokens))
    leading, tokens = tokens[:words], tokens[words:]
    if not tokens:
        raise UsageError(f"name a command: {', '.join(COMMANDS)}; see workbench --help")
    if tokens[0] in ("-h", "--help", "--version"):
        print(f"workbench {__version__}" if tokens[0] == "--version" else _overview())
        return 0
    name, rest = tokens[0], [*tokens[1:], *leading]
    command = _command(name)

    from workbench.commands.answer import Call
    from workbench.commands.requests import split_settings

    parser = _Parser(prog=f"workbench {name}", description=COMMANDS[name], allow_abbrev=False)
    command.add_arguments(parser)
    parser.add_argument("--set", nargs="+", metavar="NAME=VALUE", help="sizes of the program, for example batch=16")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.add_argument("--debug", action="store_true", help="show where an error arose")
    rest, settings = split_settings(rest)
    arguments = parser.parse_args(rest)
    progress = _Progress(shown=not arguments.json and sys.stderr is not None and sys.stderr.isatty())
    return _print(command.run(Call(arguments, settings, progress)), as_json=arguments.json)


def _command(name: str) -> Command:
    if name in COMMANDS:
        module: Command = import_module(f"workbench.commands.{name}")
        return module
    near = difflib.get_close_matches(name, COMMANDS, n=2)
    raise UsageError(
        f"unknown command {name!r}; " + (f"did you mean {' or '.join(near)}?" if near else ", ".join(COMMANDS))
    )


def _print(answer: Answer, *, as_json: bool) -> int:
    print(json.dumps(_finite(answer.values), allow_nan=False) if as_json else answer.text, flush=True)
    if answer.interrupted:
        _complain(answer.interrupted)
        return 130
    return 0 if answer.is_yes else 1


def _finite(value: Json) -> Json:
    """Return the value with numbers that JSON does not know (NaN, infinities) as null."""
    match value:
        case dict():
            return {name: _finite(inner) for name, inner in value.items()}
        case list():
            return [_finite(inner) for inner in value]
        case float() if not math.isfinite(value):
            return None
        case _:
            return value


class _Progress:
    """Tells what is being done, one line each, on a terminal only."""

    def __init__(self, *, shown: bool) -> None:
        self.shown = shown

    def __call__(self, line: str) -> None:
        if self.shown:
            print(f"workbench: {line} ...", file=sys.stderr, flush=True)


def _overview() -> str:
    width = max(map(len, COMMANDS))
    lines = ["usage: workbench COMMAND [--set NAME=VALUE ...] [--json] ...", "", "commands:"]
    lines += [f"  {name:{width}}  {text}" for name, text in COMMANDS.items()]
    lines += ["", "workbench COMMAND --help tells the arguments of one command."]
    return "\n".join(lines)


def _complain(line: str) -> None:
    print(f"workbench: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
