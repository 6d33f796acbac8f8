# SPDX-License-Identifier: Apache-2.0
"""python -m llmb_nodes.program.diagnose --table=checks.json ...: this rank's part of a diagnosis.

Every rank is an agent: it waits for the file of the next round, and starts a process for its part
in a test. The first rank also starts the coordinator, which asks the strategy for rounds, writes
their files, and collects the results. Nothing but files in the run's folder goes between them, so
that a group which hangs stops nobody. The exit code is 0 whatever is found.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from llmb_nodes.program import collective, facts, strategy
from llmb_nodes.program.collective import write_text
from llmb_nodes.program.strategy import Diagnosis, GroupTest, Outcome, SearchPlan

SCHEMA = 1
FILE = "diagnosis.json"
NO_TORCH = "torch is not installed"
_AGENTS, _END = "agent-*.json", "diagnosis-ended"
_GRACE = 15.0  # seconds for the files of a group
_MOST = 200  # characters of an error


@dataclass(frozen=True)
class DiagnoseSettings:
    """The words of the command line and of the table."""

    seconds: float
    #: Seconds until a group is given up.
    limit: float
    #: Seconds until the diagnosis begins without the nodes that did not start.
    patience: float
    paths: tuple[str, ...]
    expected: float | None
    #: A command of the site that measures in place of the all-reduce.
    command: str


@dataclass(frozen=True)
class Place:
    """This process."""

    node: str
    node_rank: int
    local_rank: int
    local_world: int
    world: int
    folder: Path

    @property
    def poll(self) -> float:
        """Seconds between two looks at the folder, longer the more ranks look."""
        return max(0.2, self.world / 4000)


def main(arguments: Sequence[str]) -> int:
    """Run this rank's part, in the folder of the run."""
    warnings.filterwarnings("ignore", message=".*fork", category=DeprecationWarning)
    settings = read_settings(arguments)
    place = read_place(os.environ)
    coordinator = None
    if os.environ.get("LLMB_RANK", "0") == "0":
        coordinator = _start(lambda: Coordinator(settings, place).run())
    Agent(settings, place, coordinator).run()
    return 0


def read_settings(arguments: Sequence[str]) -> DiagnoseSettings:
    """Return the settings of the words and of the table that they name."""
    words = dict(word.lstrip("-").partition("=")[::2] for word in arguments)
    table = json.loads(Path(words["table"]).read_text(encoding="utf-8"))
    row = table["collective"]
    return DiagnoseSettings(
        seconds=float(words.get("seconds") or row["seconds"]),
        limit=float(row["limit"]),
        patience=float(table["patience"]),
        paths=tuple(words["paths"].split(",")),
        expected=float(words["expected"]) if words.get("expected") else None,
        command=str(row.get("command") or ""),
    )


def read_place(environ: Mapping[str, str]) -> Place:
    """Return this process by the variables of llmb and of Slurm, which names the node."""
    host = socket.gethostname().split(".")[0]
    return Place(
        node=environ.get("SLURMD_NODENAME") or host,
        node_rank=int(environ.get("LLMB_NODE_RANK", "0")),
        local_rank=int(environ.get("LLMB_LOCAL_RANK", "0")),
        local_world=int(environ.get("LOCAL_WORLD_SIZE", "1")),
        world=int(environ.get("WORLD_SIZE", "1")),
        folder=Path.cwd(),
    )


def switch_of(environ: Mapping[str, str]) -> str:
    """Return the switch or block that Slurm puts the node at, empty without a topology."""
    names = environ.get("SLURM_TOPOLOGY_ADDR", "").split(".")
    return names[-2] if len(names) > 1 else ""


def _start(work: Callable[[], None]) -> int:
    """Run ``work`` in a child process, and return its id."""
    sys.stdout.flush()
    sys.stderr.flush()
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        os.setpgid(0, 0)  # so that what it starts can be ended with it
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # Without the destructors of torch, which sometimes never return.
        os._exit(code)


def _kill(process: int) -> None:
    """Kill a child and what it has started. Nobody waits for one that hangs in a driver."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)


def _has_ended(process: int) -> bool:
    return os.waitpid(process, os.WNOHANG)[0] == process


class Agent:
    """Runs the tests of one rank."""

    def __init__(self, settings: DiagnoseSettings, place: Place, coordinator: int | None) -> None:
        self.settings, self.place, self.coordinator = settings, place, coordinator
        self.torch: Any = None
        self._children = [coordinator] if coordinator is not None else []

    def run(self) -> None:
        """Take part in every round until the diagnosis has ended."""
        signal.signal(signal.SIGTERM, self._stop)
        if not self.settings.command:
            with contextlib.suppress(ImportError):
                import torch

                self.torch = torch
        if self.place.local_rank == 0:
            self._register()
        number = 0
        while (groups := self._wait_for(number)) is not None:
            for index, group in enumerate(groups):
                if self.place.node in group["nodes"]:
                    self._take_part(number, index, group)
            number += 1

    def _stop(self, *_: object) -> None:
        for process in self._children:
            _kill(process)
        os._exit(128 + signal.SIGTERM)

    def _register(self) -> None:
        about = {
            "node": self.place.node,
            "rank": self.place.node_rank,
            "switch": switch_of(os.environ),
        }
        write_text(self.place.folder / f"agent-{self.place.node}.json", json.dumps(about))

    def _wait_for(self, number: int) -> list[dict[str, Any]] | None:
        """Return the groups of a round, None if there are no more."""
        path = self.place.folder / f"round-{number}.json"
        while not path.exists():
            if (self.place.folder / _END).exists():
                return None
            if self.coordinator is not None and _has_ended(self.coordinator):
                self.coordinator = None
                write_text(self.place.folder / _END, "")
            time.sleep(self.place.poll)
        groups: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
        return groups

    def _take_part(self, number: int, index: int, group: Mapping[str, Any]) -> None:
        """Run one test in a process, until it ends, another rank fails, or the time is over."""
        nodes = group["nodes"]
        rank = nodes.index(self.place.node) * self.place.local_world + self.place.local_rank
        files = _Files(self.place.folder, number, index)
        task = collective.GroupRank(
            rank=rank,
            world=len(nodes) * self.place.local_world,
            local_rank=self.place.local_rank,
            host=socket.gethostname(),
            address=files.address,
            seconds=self.settings.seconds,
            limit=self.settings.limit,
        )
        process = _start(lambda: self._measure(task, files, group))
        self._children.append(process)
        end = time.monotonic() + self.settings.limit
        while not _has_ended(process):
            is_over = files.result.exists() or (rank == 0 and files.faults())
            if is_over or time.monotonic() > end:
                _kill(process)
                break
            time.sleep(self.place.poll)
        self._children.remove(process)
        if rank == 0 and not files.result.exists():
            problem = files.faults() or f"it did not end within {self.settings.limit:g} s"
            write_text(files.result, json.dumps({"problem": problem}))

    def _measure(self, task: collective.GroupRank, files: _Files, group: Mapping[str, Any]) -> None:
        """Measure in the child process. The first rank writes the value, any rank its error."""
        if group["path"] == strategy.NETWORK:
            os.environ["NCCL_MNNVL_ENABLE"] = "0"
        try:
            value = self._value(task, files, group)
        # Whatever CUDA, NCCL or the site's command says is what the diagnosis is for.
        except Exception as error:
            lines = str(error).strip().splitlines() or [type(error).__name__]
            write_text(files.fault(task.rank), f"{self.place.node}: {lines[0][:_MOST]}")
            return
        if task.rank == 0:
            write_text(files.result, json.dumps({"value": value}))

    def _value(self, task: collective.GroupRank, files: _Files, group: Mapping[str, Any]) -> float:
        if self.settings.command:
            return self._run_command(task, files, group)
        if self.torch is None:
            raise RuntimeError(NO_TORCH)
        return collective.measure(task, self.torch)

    def _run_command(
        self, task: collective.GroupRank, files: _Files, group: Mapping[str, Any]
    ) -> float:
        os.environ["LLMB_GROUP"] = ",".join(group["nodes"])
        os.environ["LLMB_PATH"] = group["path"]
        os.environ["LLMB_GROUP_RANK"] = str(task.rank)
        os.environ["LLMB_GROUP_WORLD"] = str(task.world)
        answer = facts.number_of(self.settings.command, self.settings.limit)
        if "value" not in answer:
            raise RuntimeError(answer["fault"])
        write_text(files.completion(task.rank), "")
        # Unlike an all-reduce, a command may end on one rank and fail on another.
        while task.rank == 0 and not all(
            files.completion(rank).exists() for rank in range(task.world)
        ):
            time.sleep(self.place.poll)
        return float(answer["value"])


@dataclass(frozen=True)
class _Files:
    """The files of a group in the run's folder."""

    folder: Path
    number: int
    index: int

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}-{self.number}-{self.index}"

    @property
    def address(self) -> Path:
        return self._path("address")

    @property
    def result(self) -> Path:
        return self._path("group")

    def completion(self, rank: int) -> Path:
        """Return the file of a rank whose command has ended."""
        return self.folder / f"done-{self.number}-{self.index}-{rank}"

    def fault(self, rank: int) -> Path:
        """Return the file for the error of a rank."""
        return self.folder / f"fault-{self.number}-{self.index}-{rank}"

    def faults(self) -> str:
        """Return an error of a rank, the first one that was written, empty without any."""
        paths = [*self.folder.glob(f"fault-{self.number}-{self.index}-*")]
        paths = [path for path in paths if path.suffix != ".part"]
        first = min(paths, key=lambda path: path.stat().st_mtime, default=None)
        return first.read_text(encoding="utf-8") if first is not None else ""


class Coordinator:
    """Runs the rounds that the strategy wants."""

    def __init__(self, settings: DiagnoseSettings, place: Place) -> None:
        self.settings, self.place = settings, place
        self.history: list[list[tuple[GroupTest, Outcome]]] = []

    def run(self) -> None:
        """Run all rounds, and write the file of the diagnosis after each."""
        plan = self._plan()
        try:
            while True:
                self._write(plan)
                tests = strategy.next_round(plan, self.history)
                if isinstance(tests, Diagnosis):
                    break
                outcomes = self._run_round(tests)
                self.history.append([*zip(tests, outcomes, strict=True)])
                self._print_round(outcomes)
            self._print_end()
        finally:
            write_text(self.place.folder / _END, "")

    def _plan(self) -> SearchPlan:
        """Return the plan for all nodes that have started."""
        expected = self.place.world // self.place.local_world
        end = time.monotonic() + self.settings.patience
        while True:
            paths = [*self.place.folder.glob(_AGENTS)]
            if len(paths) >= expected or time.monotonic() > end:
                break
            time.sleep(self.place.poll)
        agents = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
        agents.sort(key=lambda agent: (agent["rank"], agent["node"]))
        return SearchPlan(
            nodes=tuple(agent["node"] for agent in agents),
            switches={agent["node"]: agent["switch"] for agent in agents if agent["switch"]},
            paths=self.settings.paths,
            expected=self.settings.expected,
        )

    def _run_round(self, tests: Sequence[GroupTest]) -> list[Outcome]:
        number = len(self.history)
        files = [_Files(self.place.folder, number, index) for index in range(len(tests))]
        text = json.dumps([asdict(test) for test in tests])
        write_text(self.place.folder / f"round-{number}.json", text)
        end = time.monotonic() + self.settings.limit + _GRACE
        while not all(group.result.exists() for group in files) and time.monotonic() < end:
            time.sleep(self.place.poll)
        return [_read(group.result) for group in files]

    def _write(self, plan: SearchPlan) -> None:
        rounds = [
            [{**asdict(test), **asdict(outcome)} for test, outcome in results]
            for results in self.history
        ]
        data = {"schema": SCHEMA, "plan": asdict(plan), "rounds": rounds}
        write_text(self.place.folder / FILE, json.dumps(data))

    def _print_round(self, outcomes: Sequence[Outcome]) -> None:
        stages = dict.fromkeys(test.stage for test, _ in self.history[-1])
        values = [outcome.value for outcome in outcomes if outcome.value is not None]
        shown = f"{min(values):.4g} to {max(values):.4g} GB/s" if values else "no value"
        print(
            f"node diagnosis: round {len(self.history)} ({', '.join(stages)}):"
            f" {len(outcomes)} groups, {shown}, {len(outcomes) - len(values)} did not end",
            flush=True,
        )

    def _print_end(self) -> None:
        """Print the line that llmb reads the log by."""
        values = [
            outcome.value
            for results in self.history
            for _, outcome in results
            if outcome.value is not None
        ]
        usual = strategy.usual_of(values)
        worst = 100 * min(values) / usual if usual else 0.0
        print(f"node diagnosis: slowest value {min(worst, 100.0):.2f} % of the usual", flush=True)


def _read(path: Path) -> Outcome:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return Outcome(problem="its first node did not answer")
    return Outcome(value=data.get("value"), problem=data.get("problem", ""))


def read(folder: Path) -> tuple[SearchPlan, list[list[tuple[GroupTest, Outcome]]]] | None:
    """Return the plan and the rounds of a diagnosis in a folder. None without a readable file."""
    try:
        data = json.loads((folder / FILE).read_text(encoding="utf-8"))
        if data["schema"] != SCHEMA:
            return None
        plan = data["plan"]
        rounds = [
            [
                (
                    GroupTest(
                        nodes=tuple(row["nodes"]),
                        stage=row["stage"],
                        path=row["path"],
                        about=tuple(row["about"]),
                    ),
                    Outcome(value=row["value"], problem=row["problem"]),
                )
                for row in results
            ]
            for results in data["rounds"]
        ]
        nodes, paths = tuple(plan["nodes"]), tuple(plan["paths"])
        return SearchPlan(nodes, plan["switches"], paths, plan["expected"]), rounds
    except (OSError, ValueError, KeyError, TypeError):
        return None


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)
