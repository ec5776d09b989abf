"""On what was measured: GPU, driver, clocks and temperature as found, versions, date. Invariant: nothing is set, all is read."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from workbench import shipped
from workbench.device.launch import load_cupy

QUERY = ("name", "driver_version", "clocks.sm", "clocks.mem", "clocks.max.sm", "temperature.gpu", "power.draw")
PACKAGES = ("numpy", "cupy-cuda13x", "torch", "triton", "mugraph-workbench")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Provenance of a measurement; "" and None where the system does not tell.

    Attributes: clocks: sm, memory and the largest sm clock, with unit, when this was read; versions: by name; cores: of
    the host; date: UTC, ISO 8601; commit: of the workbench, with "+" where files differ from it.
    """

    gpu: str
    driver: str
    clocks: dict[str, str]
    temperature_c: str
    power_w: str
    cores: int | None
    versions: dict[str, str] = field(default_factory=dict)
    date: str = ""
    commit: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return asdict(self)


def read_machine() -> Machine:
    """Return what this machine is now. Raises: LaunchError when there is no GPU."""
    cupy = load_cupy()
    device = int(cupy.cuda.Device().id)
    said = ask("nvidia-smi", f"--id={device}", f"--query-gpu={','.join(QUERY)}", "--format=csv,noheader")
    found = [part.strip() for part in said.splitlines()[0].split(",")] if said else []
    found += [""] * (len(QUERY) - len(found))
    name, driver, sm, memory, most, temperature, power = found
    if not name:
        name = cupy.cuda.runtime.getDeviceProperties(device)["name"].decode()
    versions = {"python": platform.python_version(), **package_versions()}
    versions["cuda_runtime"] = str(cupy.cuda.runtime.runtimeGetVersion())
    versions["cuda_driver"] = str(cupy.cuda.runtime.driverGetVersion())
    return Machine(
        gpu=name,
        driver=driver,
        clocks={"sm": sm, "memory": memory, "sm_max": most},
        temperature_c=temperature,
        power_w=power,
        cores=os.cpu_count(),
        versions=versions,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        commit=commit_of_workbench(),
    )


def package_versions() -> dict[str, str]:
    """Return the versions of the packages that a time depends on, those that are installed."""
    found = {}
    for package in PACKAGES:
        try:
            found[package.partition("-cuda")[0]] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def commit_of_workbench() -> str:
    """Return $WORKBENCH_COMMIT where it is set, else the commit of the checkout the workbench runs from; "" if neither is."""
    given = os.environ.get("WORKBENCH_COMMIT")  # a copy of a checkout knows its commit from outside only
    folder = Path(shipped.__file__).resolve().parent.parent
    if given or not (folder / ".git").exists():
        return given or ""
    commit = ask("git", "-C", str(folder), "rev-parse", "--short=12", "HEAD")
    changed = ask("git", "-C", str(folder), "status", "--porcelain", "--untracked-files=no", "--", "workbench")
    return commit + ("+" if commit and changed else "")


def ask(*command: str) -> str:
    """Return what a command prints, "" where it is missing or fails."""
    if shutil.which(command[0]) is None:
        return ""
    try:
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ran.stdout.strip() if ran.returncode == 0 else ""
