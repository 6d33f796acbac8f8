# SPDX-License-Identifier: Apache-2.0
"""Submits, polls and cancels runs on the machines of the section ``ssh``.

A job is a process ``flock LOCK bash SCRIPT llmb-job ID`` on its machine: flock makes jobs wait for
each other, and the last words identify the job in a list of processes.
"""

import os
import shlex
import subprocess
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from llmb import api
from llmb_ssh import SshConfig

PACE = api.Pace(parallel=4, poll=1.0, slowest_poll=10.0, arrival_timeout=10.0)
NO_CONNECTION = 255  # the exit code of ssh itself
CANCELLED = "ssh-cancelled"  # a file of the run
UNKNOWN = api.JobState(state="UNKNOWN")
_LIST = "pgrep -af 'llmb-job [0-9a-z-]+$' || test $? = 1"
_START = """\
umask {umask}
{exports}
pgrep -f 'llmb-job {id}$' > /dev/null && exit 0
setsid -f flock "${{TMPDIR:-/tmp}}/llmb-ssh-$(id -u).lock" bash {script} llmb-job {id} < /dev/null > /dev/null 2>&1
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SshCluster:
    """The machines of ``section``; ``environ``: the submitting environment."""

    config: api.ClusterConfig
    section: SshConfig
    environ: Mapping[str, str]
    pace: api.Pace = PACE

    def identity(self) -> str:
        """The machines."""
        return f"the machines {', '.join(self.section.hosts)}"

    def preflight(self, launches: Sequence[api.Launch]) -> list[api.Fault]:
        """Every fault that prevents these launches."""
        faults = api.launch_faults(launches, self.config, self.environ)
        for launch in launches:
            if launch.nodes > 1:
                message = (
                    f"{launch.name} needs {launch.nodes} nodes, and a job of cluster type ssh has"
                    " one machine"
                )
                faults.append(
                    api.Fault(message=message, hint="choose a smaller scale", code="too-many-nodes")
                )
        return faults

    def render(self, launch: api.Launch, stamp: api.Stamp) -> str:
        """The script that runs on the machine."""
        return api.node_script(launch, stamp, self.config, job=shlex.quote(self.job(stamp.id)))

    def host(self, run_id: str) -> str:
        """The machine of a run, always the same one: a run that is submitted twice meets itself
        there.
        """
        return self.section.hosts[zlib.crc32(run_id.encode()) % len(self.section.hosts)]

    def job(self, run_id: str) -> str:
        """The id of a run's job: its machine, and its own id."""
        return f"{self.host(run_id)}:{run_id}"

    def submit(self, run: api.RunRecord) -> str:
        """Start the run's job, which waits for those before it."""
        api.stage_programs(self.config)
        variables = api.job_environment(run.launch, self.config, self.environ)
        exports = "\n".join(
            f"export {name}={shlex.quote(value)}" for name, value in variables.items()
        )
        script, umask = shlex.quote(str(run.script)), f"{~run.place.stat().st_mode & 0o077:03o}"
        # By stdin: the words of a command are visible to every user of the machine, and some values
        # are secrets.
        self._ask(
            self.host(run.stamp.id),
            _START.format(umask=umask, exports=exports, script=script, id=run.stamp.id),
        )
        return self.job(run.stamp.id)

    def find(self, runs: Sequence[api.RunRecord]) -> Mapping[str, str]:
        """The jobs of those runs that wait or run, or have begun. Raises UnclearError where a
        machine is silent.
        """
        known = {run.id: api.job_by_files(run) for run in runs}
        for host, own in self._by_host([run for run in runs if known[run.id] is None]).items():
            alive = self._alive(host)
            known |= {run.id: self.job(run.stamp.id) for run in own if run.stamp.id in alive}
        return {run_id: job for run_id, job in known.items() if job is not None}

    def poll(self, runs: Sequence[api.RunRecord]) -> Mapping[str, api.JobState]:
        """The states, with one connection to each machine; a silent one leaves the states of its
        own runs open.
        """
        states = {run.id: api.state_by_files(run) or UNKNOWN for run in runs}
        for host, own in self._by_host([run for run in runs if not states[run.id].is_end]).items():
            try:
                alive = self._alive(host)
            except api.UnclearError as error:
                states |= {run.id: states[run.id].unanswered(error.message) for run in own}
            else:
                states |= {run.id: _state(run, is_alive=run.stamp.id in alive) for run in own}
        return states

    def cancel(self, runs: Sequence[api.RunRecord]) -> None:
        """End these jobs; one that waits never starts. Raises UnclearError at the end where a
        machine is silent.
        """
        for run in runs:
            (run.place / CANCELLED).touch()
        silent = None
        for host, own in self._by_host(runs).items():
            ids = "|".join(run.stamp.id for run in own)
            try:
                self._ask(host, f"pkill -TERM -f 'llmb-job ({ids})$' || test $? = 1")
            except api.UnclearError as error:
                silent = error
        if silent is not None:
            raise silent

    def _by_host(self, runs: Sequence[api.RunRecord]) -> dict[str, list[api.RunRecord]]:
        hosts = dict.fromkeys(self.host(run.stamp.id) for run in runs)
        return {host: [run for run in runs if self.host(run.stamp.id) == host] for host in hosts}

    def _alive(self, host: str) -> set[str]:
        """The runs whose jobs wait or run on a machine. Raises UnclearError where it does not
        answer.
        """
        return {line.split()[-1] for line in self._ask(host, _LIST).splitlines()}

    def _ask(self, host: str, script: str) -> str:
        """What ``script`` prints on a machine. Raises LlmbError, UnclearError where the machine
        does not answer.
        """
        argv = [*self.section.command, host, "bash -s"]
        try:
            done = subprocess.run(
                argv,
                input=script,
                timeout=self.section.timeout,
                capture_output=True,
                text=True,
                check=False,
            )
        except (subprocess.TimeoutExpired, OSError) as error:
            raise api.UnclearError(
                f"{host} does not answer: {error}", code="ssh-silent", key=host
            ) from error
        if done.returncode == NO_CONNECTION:
            raise api.UnclearError(
                f"{host} does not answer: {done.stderr.strip()}", code="ssh-silent", key=host
            )
        if done.returncode != 0:
            raise api.LlmbError(f"{host}: {done.stderr.strip()}", code="ssh-refused", key=host)
        return done.stdout


def _state(run: api.RunRecord, *, is_alive: bool) -> api.JobState:
    """The state by the run's files, and by whether its job is in the machine's list of
    processes.
    """
    found = api.state_by_files(run)
    if found is not None and found.is_end:
        return found
    if is_alive:
        return found or api.JobState(state="PENDING", reason="other jobs run on its machine")
    if (run.place / CANCELLED).exists():
        return api.JobState(state="CANCELLED", reason="cancelled before it started")
    return api.JobState(state="LOST", reason="its machine has no process of it, and it left no end")


def create(config: api.ClusterConfig) -> SshCluster:
    """The machines of a configuration."""
    return SshCluster(config=config, section=config.section, environ=os.environ)
