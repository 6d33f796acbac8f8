# SPDX-License-Identifier: Apache-2.0
"""A benchmark of inference: a server and its client run beside each other on one allocation.

Both need only Python's standard library, so nothing is installed for them. Replace server.py by the
server that you want to measure.
"""

from pathlib import Path

from llmb import api

_HERE = Path(__file__).parent


@api.hookimpl
def llmb_workload() -> "api.Workload":
    return api.read_workload(_HERE / "workload.yaml")


@api.hookimpl
def llmb_launch(job: "api.Job") -> "api.Command":
    given = {"steps": str(job.max_steps), **job.parameters}
    return api.Command(
        start="once",
        server=api.Server(
            program=api.Program(argv=("python3", "server.py")), args=(job.model_size,)
        ),
        program=api.Program(argv=("python3", "client.py")),
        args=tuple(f"--{name}={value}" for name, value in given.items()),
        files=tuple(
            api.StagedFile(name=name, text=(_HERE / name).read_text(encoding="utf-8"))
            for name in ("server.py", "client.py")
        ),
    )
