"""`workbench lab`: JupyterLab on the notebooks, or the launchpad alone as a page.

Invariant: the server listens on this machine only, under a token that is made anew each time; notebooks that lie inside an
installed package are copied before they are opened, so that nobody edits the package.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import webbrowser
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

import workbench
from workbench.commands.answer import Answer, Call, Json
from workbench.errors import UsageError
from workbench.shipped import shipped_path

COPIES = "workbench-notebooks"
CURE = "pip install 'mugraph-workbench[lab]'"
_QUIET = "--Application.log_level=WARN"
"""Otherwise the address drowns in what the server and its extensions say of themselves."""
_NO_SHIM = "--ServerApp.jpserver_extensions=notebook_shim=False"
"""It is there for extensions of before JupyterLab, and reads every setting of the server, deprecated ones with a warning."""
_PAGE = "import workbench as wb\n\npad = wb.widgets.Launchpad()\npad"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("notebook", nargs="?", metavar="NOTEBOOK", help="open this one; by default the list of all")
    parser.add_argument("--voila", action="store_true", help="the launchpad alone, as a page without code")
    parser.add_argument("--port", type=int, metavar="N", help="listen here; by default on a free port")
    parser.add_argument("--no-browser", action="store_true", help="print the address instead of opening it")
    parser.add_argument(
        "--folder", type=Path, metavar="DIR", help=f"where notebooks of an installed package are copied ({COPIES})"
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would be started, and start nothing")


def run(call: Call) -> Answer:
    """Start the server and wait until it is stopped. Raises: UsageError without it, or for a notebook that there is not."""
    arguments = call.arguments
    if call.settings:
        raise UsageError("lab takes no --set")
    module = "voila" if arguments.voila else "jupyterlab"
    if find_spec(module) is None:
        raise UsageError(f"{module} is not installed; {CURE}")
    if arguments.voila and arguments.notebook:
        raise UsageError("--voila shows the launchpad; leave the notebook away")
    port = arguments.port or free_port()
    if not 0 < port < 65536:
        raise UsageError(f"--port {port}: give a number between 1 and 65535")
    if arguments.port and not arguments.dry_run:
        check_port(port)
    token = secrets.token_hex(24)
    dry = bool(arguments.dry_run)
    with tempfile.TemporaryDirectory(prefix="workbench-") as work:
        if arguments.voila:
            page = Path(work) / "launchpad.ipynb"
            page.write_text(launchpad_notebook(), encoding="utf-8")
            # not on the command line, which other users of the machine can read
            (page.parent / "voila.json").write_text(json.dumps({"Voila": {"token": token}}), encoding="utf-8")
            command, url = voila_command(page, port), f"http://127.0.0.1:{port}/?token={token}"
            folder = page.parent
        else:
            folder = notebook_folder(arguments.folder or Path(COPIES), write=not dry)
            chosen = find_notebook(folder, arguments.notebook)
            command = lab_command(folder, port)
            tree = f"/tree/{chosen}" if chosen else ""
            url = f"http://127.0.0.1:{port}/lab{tree}?token={token}"
        values: dict[str, Json] = {"command": [*command], "url": url, "folder": str(folder), "server": module}
        if dry:
            return Answer(f"would start {module} at {url}\n{' '.join(command)}", values)
        told = invitation("the launchpad" if arguments.voila else f"the notebooks in {folder}", url, port)
        call.progress(f"starting {module}")
        opens = None if arguments.no_browser else url
        code = serve(command, told, port, token, opens=opens, quiet=bool(arguments.json))
    return Answer(f"{module} ended", {**values, "exit_code": code}, is_yes=code in (0, None))


def lab_command(folder: Path, port: int) -> list[str]:
    """Return the command that serves a folder of notebooks; it takes its token from the environment."""
    return [
        sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", f"--port={port}", "--ServerApp.port_retries=0",
        f"--ServerApp.root_dir={folder}", "--LabApp.news_url=None", _QUIET, _NO_SHIM, *_as_root(),
    ]  # fmt: skip


def voila_command(page: Path, port: int) -> list[str]:
    """Return the command that shows one notebook as a page; its token stands in a file beside the notebook."""
    return [
        sys.executable, "-m", "voila", str(page), "--no-browser", f"--port={port}", "--Voila.ip=127.0.0.1",
        f"--Voila.config_file_paths={page.parent}", "--theme=light", _QUIET,
    ]  # fmt: skip


def _as_root() -> list[str]:
    return ["--ServerApp.allow_root=True"] if getattr(os, "geteuid", lambda: 1)() == 0 else []


def invitation(what: str, url: str, port: int) -> str:
    """Return what is said as soon as the server answers: the address in a line of its own, and who can open it."""
    return (
        f"workbench: open {what} at\n\n    {url}\n\n"
        f"on this machine (from another: ssh -L {port}:127.0.0.1:{port} to here first); Ctrl-C ends it"
    )


def serve(command: list[str], told: str, port: int, token: str, *, opens: str | None, quiet: bool) -> int:
    """Run a server until it ends, Ctrl-C, or this process is asked to end; return its exit code, 0 after Ctrl-C.

    told: printed to standard error as soon as the server listens on the port; opens: an address for the browser, then.
    """
    before = signal.signal(signal.SIGTERM, _end) if threading.current_thread() is threading.main_thread() else None
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL if quiet else None, env={**os.environ, "JUPYTER_TOKEN": token}
    )
    try:
        while process.poll() is None and not is_listening(port):
            time.sleep(0.1)
        if process.poll() is None:
            print(told, file=sys.stderr, flush=True)
            if opens:
                threading.Thread(target=webbrowser.open, args=(opens,), daemon=True).start()
        return process.wait()
    except KeyboardInterrupt:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        return 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        if before is not None:
            signal.signal(signal.SIGTERM, before)


def _end(number: int, frame: FrameType | None) -> None:
    """End as on Ctrl-C, so that the server does not outlive its command."""
    raise KeyboardInterrupt


def notebook_folder(copies: Path, *, write: bool = True) -> Path:
    """Return the folder to open: the repository's own, or, of an installed package, a copy in which nothing is overwritten.

    Raises: OSError where the copy cannot be written.
    """
    shipped = Path(str(shipped_path("notebooks")))
    if Path(workbench.__file__).resolve().parent not in shipped.resolve().parents:
        return shipped
    if write:
        copies.mkdir(parents=True, exist_ok=True)
        for source in sorted(shipped.rglob("*")):
            target = copies / source.relative_to(shipped)
            if source.is_dir():
                target.mkdir(exist_ok=True)
            elif not target.exists():
                shutil.copyfile(source, target)
    return copies.resolve()


def find_notebook(folder: Path, name: str | None) -> str:
    """Return a notebook's path below a folder, "" for none. name: its file name, with or without .ipynb, or its number.

    Raises: UsageError for one that there is not.
    """
    if not name:
        return ""
    found = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.ipynb"))
    for path in found:
        stem = Path(path).stem
        if name in (path, stem, Path(path).name) or stem.partition("_")[0] == name.zfill(2):
            return path
    raise UsageError(f"no notebook {name!r}; there are: {', '.join(found) or 'none yet'}")


def launchpad_notebook() -> str:
    """Return a notebook that shows the launchpad and nothing else."""
    cell: dict[str, object] = {
        "cell_type": "code",
        "id": "launchpad",
        "metadata": {},
        "execution_count": None,
        "outputs": [],
        "source": _PAGE,
    }
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": kernel, "cells": [cell]})


def check_port(port: int) -> None:
    """Raises: UsageError for a port that a server cannot listen on."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # one that was left a moment ago is free
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            why = "is taken" if error.errno == errno.EADDRINUSE else f"cannot be used ({error.strerror})"
            raise UsageError(f"--port {port} {why}; leave it away for a free one, or give another") from error


def is_listening(port: int) -> bool:
    """Return whether somebody on this machine listens on a port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def free_port() -> int:
    """Return a port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
