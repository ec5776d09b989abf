"""The command line: what each command answers, exit codes, and that a mistake is one line and never a traceback.

Long because every command shares the fixtures.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

import workbench as wb
from workbench.cli import COMMANDS, PROMISED, main
from workbench.commands import check, doctor
from workbench.commands.requests import split_settings
from workbench.errors import UsageError

SMALL = ["--set", "batch=3", "hidden=10", "out=7"]


def ask(capsys: pytest.CaptureFixture[str], *tokens: str | Path) -> tuple[int, str, str]:
    """Run a command in this process; return exit code, standard output, standard error."""
    capsys.readouterr()
    code = main([str(token) for token in tokens])
    out, err = capsys.readouterr()
    return code, out, err


def answer(capsys: pytest.CaptureFixture[str], *tokens: str | Path, code: int = 0) -> dict[str, Any]:
    """Run a command with --json, check that it prints exactly one object, and return it."""
    found, out, err = ask(capsys, *tokens, "--json")
    assert (found, err) == (code, "")
    assert out.count("\n") == 1
    values = json.loads(out)
    assert isinstance(values, dict)
    return values


def complaint(capsys: pytest.CaptureFixture[str], *tokens: str | Path) -> str:
    """Run a command that must be refused: exit code 2, nothing on standard output, one line on standard error."""
    for json_too in ([], ["--json"]):
        code, out, err = ask(capsys, *tokens, *json_too)
        assert (code, out) == (2, "")
        assert err.startswith("workbench: ")
        assert err.count("\n") == 1
        assert "Traceback" not in err
        assert "internal error" not in err
    return err


def run(*tokens: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own."""
    command = [sys.executable, "-m", "workbench", *tokens]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, **options)


# ------------------------------------------------------------------------------------------------------------ programs
def test_programs(capsys: pytest.CaptureFixture[str]) -> None:
    values = answer(capsys, "programs")
    listed = {entry["name"]: entry for entry in values["programs"]}
    assert list(listed) == wb.programs.names()
    entry = listed["rms_norm_linear"]
    assert entry["parameters"] == {"batch": 16, "hidden": 4096, "out": 4096}
    assert [tensor["name"] for tensor in entry["inputs"]] == ["X", "G", "W"]
    assert entry["outputs"][0]["shape"] == [16, 4096]
    code, out, _ = ask(capsys, "programs")
    assert code == 0
    assert all(name in out for name in listed)


def test_one_program(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = ask(capsys, "programs", "ntrans")
    assert (code, out.strip()) == (0, wb.programs.describe("ntrans"))
    assert len(answer(capsys, "programs", "ntrans")["programs"]) == 1


# ---------------------------------------------------------------------------------------------------------------- show
def test_show_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    values = answer(capsys, "show", "gqa", "--set", "batch=2", "rows=4")
    graph = wb.programs.get("gqa", batch=2, rows=4)
    assert values["hash"] == graph.hash
    assert values["structure_hash"] == graph.structure_hash
    assert (values["nodes"], values["levels"]) == (3, {"kernel": 3, "block": 0, "thread": 0})
    assert values["inputs"][0]["shape"] == [4, 4, 64]
    assert ElementTree.fromstring(values["svg"]).tag.endswith("svg")
    code, out, _ = ask(capsys, "show", "gqa", "--set", "batch=2", "rows=4")
    assert code == 0
    assert graph.describe() in out
    assert graph.hash in out


def test_show_counts_the_nodes_of_every_level(capsys: pytest.CaptureFixture[str]) -> None:
    values = answer(capsys, "show", "gqa", "--known-good")
    assert values["levels"]["kernel"] == 2
    assert values["levels"]["block"] == sum(
        len(node.block.nodes) for node in wb.programs.known_good("gqa")[0].graph_defined
    )
    assert values["graphs"] == 2


@pytest.mark.parametrize("suffix", [".svg", ".html", ".json", ".txt"])
def test_show_writes_files(capsys: pytest.CaptureFixture[str], tmp_path: Path, suffix: str) -> None:
    out = tmp_path / f"graph{suffix}"
    values = answer(capsys, "show", "lora", "--known-good", "1", "-o", out)
    assert values["out"] == str(out)
    text = out.read_text(encoding="utf-8")
    if suffix == ".svg":
        assert values["svg"] == str(out)
        assert ElementTree.fromstring(text).tag.endswith("svg")
    elif suffix == ".html":
        assert text.startswith("<!doctype html>")
        assert text.count("<svg") == 1
    else:  # what was written can be shown, and is the same graph
        again = answer(capsys, "show", out)
        assert again["hash"] == values["hash"] == wb.programs.known_good("lora")[1].hash


def test_show_picks_a_graph_of_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "two.json"
    graphs = wb.programs.known_good("rms_norm_linear")
    wb.save(path, graphs)
    assert answer(capsys, "show", path)["hash"] == graphs[0].hash
    assert answer(capsys, "show", path, "--index", "1")["hash"] == graphs[1].hash
    assert "there is no 2" in complaint(capsys, "show", path, "--index", "2")
    assert "there is no -1" in complaint(capsys, "show", path, "--index", "-1")


def test_show_reads_style_and_dtype_either_way(capsys: pytest.CaptureFixture[str]) -> None:
    by_option = answer(capsys, "show", "rms_norm_linear", "--style", "mirage", "--dtype", "bfloat16", *SMALL)
    by_setting = answer(capsys, "show", *SMALL, "style=mirage", "dtype=bfloat16", "rms_norm_linear")
    assert by_option["hash"] == by_setting["hash"]
    assert [tensor["name"] for tensor in by_option["inputs"]] == ["X", "W"]
    assert by_option["inputs"][0]["dtype"] == "bfloat16"


def test_a_picture_that_hides_nodes_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    few = answer(capsys, "show", "gqa", "--known-good", "--max-nodes", "4")["svg"]
    every = answer(capsys, "show", "gqa", "--known-good", "--max-nodes", "0")["svg"]
    assert " 0 nodes hidden" in every
    assert " 0 nodes hidden" not in few
    assert "nodes hidden" in few
    assert few.count("<g ") < every.count("<g ")


# --------------------------------------------------------------------------------------------------------------- check
def test_check_a_program(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    values = answer(capsys, "check", *SMALL, "-o", tmp_path / "pictures")
    assert values["program"] == "rms_norm_linear"
    assert values["parameters"] == {"batch": 3, "hidden": 10, "out": 7}
    assert values["equal"] is True
    assert len(values["known_good"]) == 2
    for entry in values["known_good"]:
        assert entry["relative_error"] < 1e-12
        assert entry["equal"] is True
        assert Path(entry["svg"]).exists()
    assert Path(values["svg"]).read_text(encoding="utf-8").count("<svg") == 1
    code, out, _ = ask(capsys, "check", *SMALL)
    assert code == 0
    assert "known good 1: equal" in out


def test_check_says_no_when_a_graph_differs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "TOLERANCE", 1e-40)
    values = answer(capsys, "check", *SMALL, code=1)
    assert values["equal"] is False
    code, out, err = ask(capsys, "check", *SMALL)
    assert (code, err) == (1, "")
    assert "DIFFERENT" in out


def test_check_prints_no_infinity_as_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "relative_error", lambda found, expected: float("inf"))
    assert answer(capsys, "check", *SMALL, code=1)["known_good"][0]["relative_error"] is None


def test_check_depends_on_the_seed_only(capsys: pytest.CaptureFixture[str]) -> None:
    errors = [
        [entry["relative_error"] for entry in answer(capsys, "check", *SMALL, "--seed", seed)["known_good"]]
        for seed in ("1", "1", "2")
    ]
    assert errors[0] == errors[1] != errors[2]


def test_check_refuses_what_exceeds_memory(capsys: pytest.CaptureFixture[str]) -> None:
    assert "this machine has" in complaint(capsys, "check", "--set", "hidden=1000000", "out=1000000")


# -------------------------------------------------------------------------------------------------------------- doctor
def test_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    values = answer(capsys, "doctor")
    for name in ("gpu", "cupy", "nvrtc", "nvcc", "ncu", "dot", "jupyterlab"):
        finding = values[name]
        assert set(finding) == {"ok", "version", "cure"}
        assert finding["ok"] is (finding["cure"] is None)
        assert finding["version"] or not finding["ok"]
    assert values["dot"]["ok"], "graphviz-pure is a dependency"


def test_doctor_survives_what_it_probes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor, "PROBE_TIMEOUT_S", 2.0)
    crash = doctor._probe("import os; os.abort()", "cure")
    hang = doctor._probe("while True: pass", "cure")
    wrong = doctor._probe("import nothing_of_this_name", "cure")
    right = doctor._probe("print('noise'); print('\"1.2\"')", "cure")
    assert [finding.ok for finding in (crash, hang, wrong, right)] == [False, False, False, True]
    assert hang.version == "no answer within 2 s"
    assert "nothing_of_this_name" in str(wrong.version)
    assert (right.version, right.cure) == ("1.2", None)
    tool = tmp_path / "nvcc"
    tool.write_text("#!/bin/sh\necho nonsense\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not doctor.look_for_nvcc().ok
    tool.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 13.0, V13.0.88'\n")
    assert doctor.look_for_nvcc().version == "13.0.88"
    monkeypatch.setenv("PATH", "")
    assert "graphviz-pure" in str(doctor.look_for_dot().version)
    assert doctor.look_for_ncu().cure is not None or Path("/usr/local/cuda/bin/ncu").exists()


# ----------------------------------------------------------------------------------------------------- usage and errors
@pytest.mark.parametrize("name", sorted(PROMISED))
def test_commands_not_built_say_so(capsys: pytest.CaptureFixture[str], name: str) -> None:
    words = {"verify": ["a.json", "b.json"], "search": ["gqa"], "optimize": ["gqa"], "emit": ["gqa"], "replay": ["run"]}
    assert f"{name} is not built yet" in complaint(capsys, name, *words.get(name, []))


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


# -------------------------------------------------------------------------------------------------------------- settings
def test_settings_end_at_the_first_token_without_an_equals_sign() -> None:
    assert split_settings(["--set", "a=1", "b=2", "gqa", "c=3"]) == (["gqa", "c=3"], {"a": "1", "b": "2"})
    assert split_settings(["gqa", "--set=a=1", "b=2", "-o", "x=y.svg"]) == (
        ["gqa", "-o", "x=y.svg"],
        {"a": "1", "b": "2"},
    )
    assert split_settings(["--set", "a=b=c", "--set", "d=1"]) == ([], {"a": "b=c", "d": "1"})
    assert split_settings(["x", "--", "--set", "a=1"]) == (["x", "--", "--set", "a=1"], {})
    with pytest.raises(UsageError):
        split_settings(["--set", "--json"])


def test_json_may_stand_before_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = ask(capsys, "--json", "programs", "gqa")
    assert code == 0
    assert json.loads(out)["programs"][0]["name"] == "gqa"


@pytest.mark.parametrize("name", sorted([*COMMANDS, *PROMISED]))
def test_help_of_every_command(capsys: pytest.CaptureFixture[str], name: str) -> None:
    code, out, err = ask(capsys, name, "--help")
    assert (code, err) == (0, "")
    assert out.startswith(f"usage: workbench {name}")
    assert "--json" in out
    overview = ask(capsys, "--help")
    assert overview[0] == 0
    assert name in overview[1]


# -------------------------------------------------------------------------------------------------------- as a process
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
        "import sys, time, workbench.commands.check as check\n"
        "from workbench.cli import main\n"
        "def wait(*_):\n    print('ready', flush=True)\n    time.sleep(50)\n"
        "check.evaluate = wait\n"
        "sys.exit(main(['check', '--set', 'batch=1', 'hidden=1', 'out=1']))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    start = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (130, "workbench: interrupted\n")
    assert time.monotonic() - start < 10
