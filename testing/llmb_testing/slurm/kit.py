# SPDX-License-Identifier: Apache-2.0
"""Starts and stops a Slurm cluster for tests, and makes it fail in the ways real clusters fail."""

from __future__ import annotations

import contextlib
import getpass
import os
import random
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from llmb.core import files, shell
from llmb.core.process import host_name
from llmb.errors import LlmbError
from llmb_testing.ports import Ports
from llmb_testing.slurm import daemons
from llmb_testing.slurm.daemons import START_SECONDS, path_of, search_path
from llmb_testing.slurm.files import ACCOUNT, Location, Shape, gres_conf, slurm_conf, slurmdbd_conf

_LONGEST_FOLDER = 70  # characters: the limit for paths of sockets is 107


class SlurmKit:
    """A cluster of ``shape`` with all its files in one folder. A context manager that starts and
    removes it.

    As root it runs jobs of every user, otherwise only those of its own user. ``beside`` is a started
    cluster whose accounting it shares, so that the commands of each reach the other with -M.
    """

    def __init__(
        self,
        shape: Shape | None = None,
        folder: Path | None = None,
        *,
        beside: SlurmKit | None = None,
    ) -> None:
        self.shape = shape or Shape()
        self.folder = folder or Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
        if len(str(self.folder)) > _LONGEST_FOLDER:
            message = f"{self.folder}: path too long for the sockets of a cluster"
            raise LlmbError(message, hint="use a folder below /tmp", code="path-too-long")
        self._ports = Ports(self.shape.nodes + 2)
        self.location: Location = Location(
            folder=self.folder,
            user=getpass.getuser(),
            host=host_name(),
            port=self._ports.first,
            beside=beside.location if beside is not None else None,
        )
        self._first_job = self.location.first_job

    def __enter__(self) -> SlurmKit:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def environ(self) -> dict[str, str]:
        """The variables that make Slurm's commands use this cluster."""
        return {"SLURM_CONF": str(self.folder / "etc" / "slurm.conf")}

    @property
    def nodes(self) -> list[str]:
        """The names of the nodes."""
        return [f"n{number}" for number in range(1, self.shape.nodes + 1)]

    def run(self, *argv: str, timeout: float = 60.0) -> str:
        """Run a Slurm command and return its output. Raises LlmbError if it fails."""
        process = shell.run([path_of(argv[0]), *argv[1:]], env=self._environment(), timeout=timeout)
        if process.code:
            raise LlmbError(f"{' '.join(argv)}: {process.err.strip()}")
        return process.out

    def start(self) -> None:
        """Write the configuration and start every daemon that does not run. Raises LlmbError that
        names the log.
        """
        self._write()
        if self.location.beside is not None:
            self._register()
        else:
            self._daemon("munged", self._munged_argv(), self._munge_answers)
            if self.shape.accounting:
                self.start_accounting()
        self.start_controller()
        for node in self.nodes:
            self._daemon(f"slurmd.{node}", [path_of("slurmd"), "-N", node])
        daemons.wait_for(
            self._all_idle,
            START_SECONDS,
            f"all nodes to be idle; see {self.folder}/log/slurmctld.log",
        )

    def stop(self) -> None:
        """Cancel every job and stop every daemon."""
        if self._runs("slurmctld"):
            with contextlib.suppress(LlmbError):
                self.resume("slurmctld")
                self.resume("slurmdbd")
                self.run("scancel", "--full", f"--user={self.location.user}")
                daemons.wait_for(self.is_empty, 5.0, "the jobs to end")
        for node in self.nodes:
            self.kill_node(node)
        for name in ("slurmctld", "slurmdbd", "mariadbd", "munged"):
            daemons.end(self._pid_file(name), name)
        self._ports.close()

    def start_controller(self) -> None:
        """Start slurmctld and wait until it answers."""
        self._daemon(
            "slurmctld", [path_of("slurmctld")], lambda: "is UP" in self.run("scontrol", "ping")
        )

    def stop_controller(self) -> None:
        """Stop slurmctld. Jobs continue."""
        daemons.end(self._pid_file("slurmctld"), "slurmctld")

    def stop_accounting(self) -> None:
        """Stop slurmdbd. The controller keeps its messages to slurmdbd until it is back."""
        daemons.end(self._pid_file("slurmdbd"), "slurmdbd")

    def forget_jobs(self, *, next_job: int | None = None) -> None:
        """Restart slurmctld without its records of jobs, as if MinJobAge had passed. No job may be
        running. Ids of jobs go on: accounting still has the jobs of the earlier ones.

        Or they go on from ``next_job``, as when slurmctld has lost its StateSaveLocation.
        """
        match = re.search(r"NEXT_JOB_ID\s*=\s*(\d+)", self.run("scontrol", "show", "config"))
        if match is None:
            raise LlmbError("scontrol show config has no NEXT_JOB_ID")
        self._first_job = int(match[1]) if next_job is None else next_job
        self._write()
        self.stop_controller()
        for path in (self.folder / "state").glob("job_state*"):
            path.unlink()
        self.start_controller()

    def kill_node(self, node: str) -> None:
        """Kill a node and everything that runs on it."""
        daemons.kill_with_steps(
            self._pid_file(f"slurmd.{node}"), self.folder / "log" / f"slurmd.{node}.log"
        )

    def start_node(self, node: str) -> None:
        """Restart a failed node and wait until jobs can use it."""
        self._daemon(f"slurmd.{node}", [path_of("slurmd"), "-N", node])
        daemons.wait_for(
            lambda: self._state(node).startswith(("idle", "mixed", "alloc")),
            START_SECONDS,
            f"node {node} to be usable",
        )

    def is_empty(self) -> bool:
        """Return True if no job is pending, running or completing, and the controller answers."""
        with contextlib.suppress(LlmbError):
            return not self.run("squeue", "--noheader")
        return False

    def fail_node(self, node: str) -> None:
        """Kill a node and tell the controller, which would notice by itself only after minutes."""
        self.kill_node(node)
        self.run("scontrol", "update", f"nodename={node}", "state=down", "reason=Not responding")

    def pause(self, name: str) -> None:
        """Suspend the daemon ``name`` (slurmctld, slurmdbd, slurmd.n1), so that it does not answer
        until ``resume``.
        """
        daemons.pause(self._pid_file(name), name.partition(".")[0])

    def resume(self, name: str) -> None:
        """Resume a suspended daemon."""
        daemons.resume(self._pid_file(name), name.partition(".")[0])

    def _environment(self) -> dict[str, str]:
        variables: Mapping[str, str] = {
            name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ
        }
        return {**variables, **self.environ, "PATH": search_path()}

    def _write(self) -> None:
        for name in (
            "etc",
            "run",
            "log",
            "state",
            "dev",
            *(f"spool/{node}" for node in self.nodes),
        ):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        etc = self.folder / "etc"
        for name, text in (
            ("slurm.conf", slurm_conf(self.shape, self.location, first_job=self._first_job)),
            ("gres.conf", gres_conf(self.shape, self.location)),
            ("plugstack.conf", ""),
            ("topology.conf", "".join(f"{line}\n" for line in self.shape.topology)),
            ("cgroup.conf", "CgroupPlugin=cgroup/v1\n"),
        ):
            files.write_text(etc / name, text)
        files.create_text(etc / "munge.key", random.SystemRandom().randbytes(512).hex(), mode=0o600)
        if self.shape.accounting and self.location.beside is None:
            files.write_text(etc / "slurmdbd.conf", slurmdbd_conf(self.location), mode=0o600)
        for number in range(self.shape.gpus):
            with contextlib.suppress(FileExistsError):
                (self.folder / "dev" / f"nvidia{number}").symlink_to("/dev/null")

    def _munged_argv(self) -> list[str]:
        folder = self.folder
        return [
            path_of("munged"),
            "--force",
            "--num-threads=4",
            f"--socket={self.location.socket}",
            f"--key-file={folder}/etc/munge.key",
            f"--pid-file={self._pid_file('munged')}",
            f"--log-file={folder}/log/munged.log",
            f"--seed-file={folder}/run/munged.seed",
        ]

    def _munge_answers(self) -> bool:
        return bool(self.run("munge", "-S", str(self.location.socket), "-n"))

    def start_accounting(self) -> None:
        """Start MariaDB and slurmdbd unless they run, and wait until slurmdbd answers."""
        if self._runs("slurmdbd"):
            return
        daemons.start_database(self.folder, self._pid_file("mariadbd"))
        variables = {"MYSQL_UNIX_PORT": str(daemons.socket_of(self.folder))}
        qos = ("sacctmgr", "--noheader", "show", "qos")
        self._daemon(
            "slurmdbd", [path_of("slurmdbd")], lambda: "normal" in self.run(*qos), variables
        )
        self._register()
        if ACCOUNT not in self._accounts("account").split():
            self.run("sacctmgr", "--immediate", "add", "account", ACCOUNT)
            self.run(
                "sacctmgr", "--immediate", "add", "user", self.location.user, f"account={ACCOUNT}"
            )
            with contextlib.suppress(LlmbError):  # root already has a default account
                user = self.location.user
                self.run(
                    "sacctmgr",
                    "--immediate",
                    "modify",
                    "user",
                    user,
                    "set",
                    f"defaultaccount={ACCOUNT}",
                )

    def _register(self) -> None:
        """Add the cluster, and this user's account, to the accounting."""
        if self.shape.name not in self._accounts("cluster").split():
            self.run("sacctmgr", "--immediate", "add", "cluster", self.shape.name)
            if self.location.beside is not None:
                cluster = f"cluster={self.shape.name}"
                user = (self.location.user, f"account={ACCOUNT}")
                self.run("sacctmgr", "--immediate", "add", "account", ACCOUNT, cluster)
                self.run("sacctmgr", "--immediate", "add", "user", *user, cluster)

    def _accounts(self, kind: str) -> str:
        return self.run("sacctmgr", "--noheader", "--parsable2", "show", kind, f"format={kind}")

    def _daemon(
        self,
        name: str,
        argv: Sequence[str],
        answers: Callable[[], bool] = lambda: True,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """Start the daemon ``name`` (``slurmd.NODE`` for a node) unless it runs, and wait until it
        answers.
        """
        program = name.partition(".")[0]
        if self._runs(name):
            return
        log = self.folder / "log" / f"{name}.start"
        if shell.run_logged(argv, log, env={**self._environment(), **(variables or {})}):
            raise LlmbError(
                f"{program} does not start: {log.read_text().strip()}",
                code="daemon-start",
                value=program,
            )

        def is_up() -> bool:
            with contextlib.suppress(LlmbError):  # no answer yet
                return self._runs(name) and answers()
            return False

        daemons.wait_for(is_up, START_SECONDS, f"{program} to answer; see {self.folder}/log")

    def _runs(self, name: str) -> bool:
        return daemons.process_of(self._pid_file(name), name.partition(".")[0]) is not None

    def _pid_file(self, name: str) -> Path:
        return self.folder / "run" / f"{name}.pid"

    def _state(self, node: str) -> str:
        return self.run("sinfo", "--noheader", f"--nodes={node}", "--format=%T").splitlines()[0]

    def _all_idle(self) -> bool:
        with contextlib.suppress(LlmbError):  # no answer in time
            shown = self.run("sinfo", "--noheader", "--Node", "--format=%N %T").splitlines()
            up = {
                line.split()[0]
                for line in shown
                if line.split()[1] in ("idle", "mixed", "allocated")
            }
            return up == {*self.nodes}
        return False
