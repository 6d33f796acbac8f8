# SPDX-License-Identifier: Apache-2.0
"""Asks the facts of this node: the driver's library, files of Linux, and commands. No root.

The table (checks.yaml) says by ``ask`` where a fact comes from: ``nvml NAME``, ``file GLOB``,
``node NAME`` or ``command TEXT``. A fact that cannot be asked is absent, and the reason is kept.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from llmb_workloads import nvml

COMMAND_SECONDS = 20
_GB = 1e9
_NVLINKS = 18  # NVML_NVLINK_MAX_LINKS
_MIB_PER_KIB = 1024

Outcome = dict[str, Any]  # {"value": V} or {"absent": TEXT}


def ask_all(table: Mapping[str, Any], open_library: nvml.OpenLibrary = ctypes.CDLL) -> Outcome:
    """Return {"value"} or {"absent"} of each fact of the table."""
    with nvml.opened(open_library) as library:
        gpus = [] if library is None else nvml.gpus_of(library)
        return {name: _ask(str(fact["ask"]), library, gpus) for name, fact in table.items()}


def _ask(question: str, library: Any, gpus: list[Any]) -> Outcome:
    kind, _, name = question.partition(" ")
    try:
        if kind == "nvml":
            return _of_driver(name, library, gpus)
        if kind == "file":
            return _of_files(name)
        if kind == "node":
            return _answer(_NODE[name](), "this system does not have it")
        return _of_command(name)
    except OSError as error:
        return {"absent": str(error)}


def _answer(value: Any, reason: str) -> Outcome:
    return {"absent": reason} if value is None or value == [] else {"value": value}


def _of_driver(name: str, library: Any, gpus: list[Any]) -> Outcome:
    """Ask NVIDIA's library: a value of each GPU, or one of the node."""
    if library is None:
        return {"absent": "no NVIDIA driver"}
    if name == "gpus":
        return {"value": len(gpus)}
    if name == "driver":
        return _answer(
            nvml.read_text(library, "nvmlSystemGetDriverVersion"), "the driver is silent"
        )
    if not gpus:
        return {"absent": "no GPU"}
    values = [_PER_GPU[name](library, gpu) for gpu in gpus]
    return {"absent": "the driver does not have it"} if None in values else {"value": values}


def _text(function: str) -> Callable[[Any, Any], str | None]:
    return lambda library, gpu: nvml.read_text(library, function, gpu)


def _number(function: str, *arguments: Any, unit: float = 1) -> Callable[[Any, Any], float | None]:
    def read(library: Any, gpu: Any) -> float | None:
        value = nvml.read_number(library, function, gpu, *arguments)
        return value if value is None or unit == 1 else value / unit

    return read


def _active_links(library: Any, gpu: Any) -> int | None:
    """Return how many NVLinks of a GPU are up, None for a GPU without any."""
    states = [
        nvml.read_number(library, "nvmlDeviceGetNvLinkState", gpu, ctypes.c_uint(link))
        for link in range(_NVLINKS)
    ]
    active = [state for state in states if state is not None]
    return sum(active) if active else None


def _slowed(library: Any, gpu: Any) -> int | None:
    """Return the bits of hardware and heat among the reasons for low clocks."""
    bits = nvml.clock_reasons(library, gpu)
    names = ("hw_slowdown", "sw_thermal", "hw_thermal", "hw_power_brake")
    return None if bits is None else bits & sum(nvml.REASONS[name] for name in names)


_PER_GPU: dict[str, Callable[[Any, Any], Any]] = {
    "name": _text("nvmlDeviceGetName"),
    "vbios": _text("nvmlDeviceGetVbiosVersion"),
    "ecc_uncorrected": nvml.uncorrected_errors,
    "remap_pending": nvml.remap_pending,
    "remap_failed": nvml.remap_failed,
    "nvlinks_up": _active_links,
    "pcie_width": _number("nvmlDeviceGetCurrPcieLinkWidth"),
    "max_sm_clock": _number("nvmlDeviceGetMaxClockInfo", ctypes.c_int(nvml.SM_CLOCK)),
    "power_limit": _number("nvmlDeviceGetEnforcedPowerLimit", unit=1000),
    "slowed": _slowed,
    "temperature": nvml.temperature,
}


def _of_files(pattern: str) -> Outcome:
    """Return the text of each file, one value if all are equal."""
    paths = sorted(Path("/").glob(pattern.lstrip("/")))
    texts = [path.read_text(encoding="utf-8", errors="replace").strip() for path in paths]
    values = sorted(set(texts))
    if not values:
        return {"absent": f"there is no {pattern}"}
    return {"value": values[0] if len(values) == 1 else ", ".join(values)}


def _of_command(text: str, seconds: float = COMMAND_SECONDS) -> Outcome:
    """Return what a command prints, as a number if it is one."""
    try:
        process = subprocess.run(
            ["bash", "-c", text],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"absent": f"'{text}' did not end within {seconds:g} s"}
    printed = process.stdout.strip()
    error = (process.stderr.strip().splitlines() or [""])[-1]
    if process.returncode != 0:
        return {"absent": f"'{text}' exits with {process.returncode}: {error or 'no message'}"}
    if not printed:
        return {"absent": f"'{text}' prints no value{f', but the error {error}' if error else ''}"}
    try:
        return {"value": float(printed)}
    except ValueError:
        return {"value": printed}


def number_of(text: str, seconds: float = COMMAND_SECONDS) -> Outcome:
    """Run a command that measures, and return its number."""
    outcome = _of_command(text, seconds)
    if "value" in outcome and not isinstance(outcome["value"], float):
        return {"fault": f"'{text}' prints no number: {outcome['value'][:80]}"}
    return outcome if "value" in outcome else {"fault": outcome["absent"]}


def _memory() -> float | None:
    """Return the memory of the node in GB."""
    lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    total = next((line.split()[1] for line in lines if line.startswith("MemTotal:")), None)
    return None if total is None else round(int(total) * _MIB_PER_KIB / _GB)


def _huge_pages() -> str | None:
    """Return the word in brackets: always, madvise or never."""
    text = Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text(encoding="utf-8")
    return next((word.strip("[]") for word in text.split() if word.startswith("[")), None)


def _ports(field: str) -> list[str]:
    return [
        path.read_text(encoding="utf-8").strip()
        for path in sorted(Path("/sys/class/infiniband").glob(f"*/ports/*/{field}"))
    ]


def _ports_down() -> int | None:
    """Return how many InfiniBand ports are not active, None without ports."""
    states = _ports("state")
    return sum("ACTIVE" not in state for state in states) if states else None


def _port_rates() -> str | None:
    """Return the rates of the InfiniBand ports, ``8 x 400 Gb/sec (4X NDR)``."""
    rates = _ports("rate")
    counts = {rate: rates.count(rate) for rate in sorted(set(rates))}
    return ", ".join(f"{count} x {rate}" for rate, count in counts.items()) or None


def _imex_channels() -> int | None:
    """Return the IMEX channels of a rack of GPUs with NVLink, None without the driver's folder."""
    folder = Path("/dev/nvidia-caps-imex-channels")
    return len([*folder.iterdir()]) if folder.is_dir() else None


_NODE: dict[str, Callable[[], Any]] = {
    "kernel": lambda: os.uname().release,
    "cores": lambda: len(os.sched_getaffinity(0)),
    "memory": _memory,
    "huge_pages": _huge_pages,
    "ports_down": _ports_down,
    "port_rates": _port_rates,
    "imex_channels": _imex_channels,
    "free_temporary": lambda: round(shutil.disk_usage(temporary()).free / _GB, 1),
}
#: The names that ``nvml NAME`` and ``node NAME`` may ask for.
NVML_NAMES = ("gpus", "driver", *_PER_GPU)
NODE_NAMES = tuple(_NODE)


def temporary() -> str:
    """Return the folder for temporary files of this node."""
    return os.environ.get("TMPDIR") or "/tmp"
