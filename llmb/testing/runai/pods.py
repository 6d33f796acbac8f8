# SPDX-License-Identifier: Apache-2.0
"""The pods of a workload as processes of this machine, with the variables that Kubernetes' operator gives them."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llmb import shell
from llmb.clusters.local.ranks import free_port


class Pods:
    """The ``count`` pods of the workload ``name``; what each prints goes to a file in ``folder``.

    ``secrets``: those of Kubernetes, by name and key. A volume's path must be this machine's own.
    """

    def __init__(
        self, name: str, spec: Mapping[str, Any], count: int, secrets: Mapping[str, Mapping[str, str]], folder: Path
    ) -> None:
        argv = [*shlex.split(spec["command"]), *shlex.split(spec.get("args", ""))]
        base = {"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8"}
        own = {one["name"]: _value(one, secrets) for one in spec.get("environmentVariables", ())}
        port = free_port()
        self.processes = []
        folder.mkdir(parents=True, exist_ok=True)
        for rank in range(count):
            host = f"{name}-master-0" if rank == 0 else f"{name}-worker-{rank - 1}"
            operator = {
                "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(count), "RANK": str(rank),
                "HOSTNAME": host,
            }  # fmt: skip
            environment = {**base, **(operator if count > 1 else {"HOSTNAME": name}), **own}
            log = folder / f"{host}.log"
            cwd = Path(spec.get("workingDir", "/"))
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
        """End all that the pods have started, at once."""
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _value(variable: Mapping[str, Any], secrets: Mapping[str, Mapping[str, str]]) -> str:
    if "secret" in variable:
        return secrets[variable["secret"]["name"]][variable["secret"]["key"]]
    return str(variable["value"])
