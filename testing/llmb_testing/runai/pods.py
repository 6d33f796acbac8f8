# SPDX-License-Identifier: Apache-2.0
"""The pods of a workload as processes of this machine, with the variables that Kubernetes' operator gives them."""

import contextlib
import os
import shlex
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from llmb.system import shell
from llmb_testing.ports import hold_port, number_of


class Pods:
    """The ``count`` pods of the workload ``name``; what each prints goes to a file in ``folder``.

    ``secrets``: those of Kubernetes, by name and key. A volume's path must be this machine's own.
    """

    def __init__(
        self, name: str, spec: Mapping[str, Any], count: int, secrets: Mapping[str, Mapping[str, str]], folder: Path
    ) -> None:
        argv = [*shlex.split(spec["command"]), *shlex.split(spec.get("args") or "")]
        base = {"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8"}
        own = {one["name"]: _value(one, secrets) for one in spec.get("environmentVariables") or ()}
        self._held = hold_port()  # for the master, whose Python takes a while to listen on it
        self.processes = []
        folder.mkdir(parents=True, exist_ok=True)
        for rank in range(count):
            host = f"{name}-master-0" if rank == 0 else f"{name}-worker-{rank - 1}"
            operator = {
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(number_of(self._held)),
                "WORLD_SIZE": str(count),
                "RANK": str(rank),
                "HOSTNAME": host,
            }
            environment = {**base, **(operator if count > 1 else {"HOSTNAME": name}), **own}
            log = folder / f"{host}.log"
            cwd = Path(spec.get("workingDir") or "/")
            self.processes.append(shell.spawn(argv, env=environment, cwd=cwd, log=log, session=True))

    def codes(self) -> list[int | None]:
        """Each pod's exit code, None while it runs."""
        return [process.poll() for process in self.processes]

    def terminate(self) -> None:
        """Tell all to end, as a kubelet does: SIGTERM to the first process of each."""
        for process in self.processes:
            if process.poll() is None:
                process.terminate()

    def kill(self) -> None:
        """End all that the pods have started, at once: also what is in a group or session of its own."""
        for process in self.processes:
            for below in _below(process.pid):
                with contextlib.suppress(psutil.Error):
                    below.kill()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._held.close()


def _below(pid: int) -> list[psutil.Process]:
    """What a process has started, and they in turn; nothing where it has ended."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _value(variable: Mapping[str, Any], secrets: Mapping[str, Mapping[str, str]]) -> str:
    if "secret" in variable:
        return secrets[variable["secret"]["name"]][variable["secret"]["key"]]
    return str(variable.get("value", ""))  # what a config map or a field of the pod would give is not known here
