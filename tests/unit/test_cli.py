"""The command line as a whole: exit codes, and that a mistake is one line and never a traceback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import workbench as wb
from tests.unit.commands.calling import SMALL, ask, complaint, run
from workbench.cli import main
from workbench.commands import check


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([], "name a command: programs, show"),
        (["shwo"], "did you mean show?"),
        (["zzzz"], "unknown command 'zzzz'"),
        (["show"], "GRAPH_OR_PROGRAM; see workbench show --help"),
        (["show", "gqa", "--nonsense"], "unrecognized arguments: --nonsense"),
        (["show", "gqa", "lora"], "unrecognized arguments: lora"),
        (["show", "gq"], "did you mean gqa"),
        (["show", "nowhere.json"], "nowhere.json"),
        (["show", "gqa", "--set"], "--set needs at least one NAME=VALUE"),
        (["show", "--set", "gqa"], "--set needs at least one NAME=VALUE"),
        (["show", "gqa", "--set", "=3"], "'=3' is not NAME=VALUE"),
        (["show", "gqa", "--set", "rows="], "'rows=' is not NAME=VALUE"),
        (["show", "gqa", "--set=rows"], "'rows' is not NAME=VALUE"),
        (["show", "gqa", "--set", "rows=3", "--set", "rows=4"], "rows twice: 3 and 4"),
        (["show", "gqa", "--set", "rows=three"], "'three' is not a whole number"),
        (["show", "gqa", "--set", "rows=1.5"], "'1.5' is not a whole number"),
        (["show", "gqa", "--set", "rows=0"], "rows = 0 must be at least 1"),
        (["show", "gqa", "--set", "row=3"], "did you mean rows"),
        (["show", "gqa", "--set", "style=mirage", "--style", "standard"], "style is given twice"),
        (["show", "gqa", "--style", "nvidia"], "unknown style 'nvidia'"),
        (["show", "gqa", "--dtype", "float8"], "float8"),
        (["show", "gqa", "--dtype", "float17"], "unknown data type 'float17'"),
        (["show", "gqa", "--known-good", "7"], "numbered 0 to 1; there is no 7"),
        (["show", "gqa", "--known-good", "0", "--index", "1"], "exclude each other"),
        (["show", "gqa", "--index", "one"], "invalid int value: 'one'"),
        (["show", "gqa", "-o", "x.png"], "not as .png"),
        (["show", "gqa", "-o", "x"], "a name without suffix"),
        (["show", "gqa", "--max-nodes", "1"], "nodes"),
        (["check", "gqa", "--seed", "-1"], "must not be negative"),
        (["check", "nope"], "unknown program 'nope'"),
        (["programs", "nope"], "unknown program 'nope'"),
        (["programs", "--set", "batch=2"], "takes no --set"),
    ],
)
def test_mistakes_are_one_line(capsys: pytest.CaptureFixture[str], tokens: list[str], message: str) -> None:
    if not tokens:
        code, out, err = ask(capsys)
        assert (code, out, err.count("\n")) == (2, "", 1)
    else:
        err = complaint(capsys, *tokens)
    assert message in err


def test_broken_files_are_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    good = wb.dumps(wb.programs.known_good("lora")[0])
    path = tmp_path / "graph.json"
    broken: list[str | bytes] = [good[:cut] for cut in range(0, len(good), 1 + len(good) // 12)]
    broken += ["", "null", "[]", "{}", "[[]]", "[{}]", '{"a": 1}', "[" * 100_000, b"\xff\xfe\x00", b"\x00", good + "}"]
    broken.append(good.replace('"version": 1', '"version": 999'))
    broken.append(good.replace("[16, 256]", "[16, 255]"))
    broken.append(good.replace('"matmul"', '"matmull"', 1))
    assert all(text != good for text in broken)
    for text in broken:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        assert "graph.json" in complaint(capsys, "show", path)
    assert "graph.json" in complaint(capsys, "show", path, *SMALL)


def test_cyclic_graphs_are_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "cycle.txt"
    path.write_text("kernel_graph {\n  input X: float16[4, 4]\n  a = add(X, b)\n  b = exp(a)\n  output b\n}\n")
    err = complaint(capsys, "show", path)
    assert "cycle" in err.replace("cycle.txt", "")
    assert "line 3" in err


def test_cyclic_json_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    kernel = wb.KernelBuilder()
    x = kernel.input("X", (4, 4))
    a = kernel.apply("exp", x, name="a")
    kernel.output(kernel.apply("neg", a, name="b"))
    path = tmp_path / "cycle.json"
    text = wb.dumps(kernel.build())
    assert text.count('["X"]') == 1
    path.write_text(text.replace('["X"]', '["b"]'))  # exp reads what neg makes of exp
    assert "cycle" in complaint(capsys, "show", path).replace("cycle.json", "")


def test_files_that_cannot_be_read_or_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert str(tmp_path) in complaint(capsys, "show", tmp_path)
    assert "No such file" in complaint(capsys, "show", "lora", "-o", tmp_path / "missing" / "x.svg")
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert "file" in complaint(capsys, "check", *SMALL, "-o", blocked)
    assert "leave --set" in complaint(capsys, "show", blocked, *SMALL)


def test_internal_errors_are_one_line_and_debug_shows_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise ZeroDivisionError("planned")

    monkeypatch.setattr(check, "evaluate", fail)
    code, out, err = ask(capsys, "check", *SMALL)
    assert (code, out) == (2, "")
    assert err == "workbench: internal error, please report it (ZeroDivisionError: planned); --debug shows where\n"
    with pytest.raises(ZeroDivisionError):
        main(["check", *SMALL, "--debug"])


def test_an_interrupt_is_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(check, "evaluate", interrupt)
    assert ask(capsys, "check", *SMALL) == (130, "", "workbench: interrupted\n")


def test_in_a_process_of_its_own() -> None:
    done = run("show", "softmax", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["nodes"] == 1
    assert run("--version").stdout == f"workbench {wb.__version__}\n"


def test_mistakes_in_a_process_of_its_own() -> None:
    done = run("show", "gqa", "--set", "rows=0")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "workbench: program gqa: size rows = 0 must be at least 1\n"


def test_a_terminal_that_knows_ascii_only() -> None:
    done = run("--help", env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"})
    assert (done.returncode, done.stderr) == (0, "")
    assert "?Graphs" in done.stdout


def test_a_reader_that_leaves_early() -> None:
    command = f'"{sys.executable}" -m workbench programs --json | true'
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False, timeout=60)
    assert done.stderr == ""


def test_ctrl_c_in_a_process_of_its_own() -> None:
    script = (
        "import signal, sys, time, workbench.commands.check as check\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # ignored where the tests run in the background
        "from workbench.cli import main\n"
        "def wait(*_):\n    print('ready', flush=True)\n    time.sleep(50)\n"
        "check.evaluate = wait\n"
        "sys.exit(main(['check', '--set', 'batch=1', 'hidden=1', 'out=1']))\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            start = time.monotonic()
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=20)
        finally:
            process.kill()
    assert (process.returncode, err) == (130, "workbench: interrupted\n")
    assert time.monotonic() - start < 10
