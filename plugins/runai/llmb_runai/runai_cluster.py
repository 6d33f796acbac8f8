# SPDX-License-Identifier: Apache-2.0
"""A project of Run:ai as its user sees it: creates workloads, polls many at once, stops them."""

import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from llmb import api
from llmb.api import ClusterConfig, Fault, JobState, Launch, LlmbError, RunRecord, Stamp, as_fault
from llmb_runai import phases, pod_script, request, runai_checks, token, workloads
from llmb_runai.advice import advice
from llmb_runai.rest import RestClient
from llmb_runai.rest_errors import BrokenGatewayError, RefusedRequestError, is_of_one

PACE = api.Pace(parallel=4, poll=2.0, slowest_poll=15.0, arrival_timeout=10.0)
YOUNG = 300.0  # seconds after the submission in which Run:ai may not list a workload yet
_ASKED = 3  # runs of one poll whose details are requested one by one: why they wait or have failed
_PLACED = 8  # runs of one poll whose pods are requested, to know their nodes
# attempts to create a workload while a gateway fails and Run:ai does not have its name
_CREATIONS = 3
_WAITS = "pendingSchedulingMessages"
# the first of several concurrent runs signs in and stages the programs for the others
_once = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunaiCluster:
    """The cluster type ``runai``."""

    config: ClusterConfig
    #: The variables of the submitting shell.
    environ: Mapping[str, str]
    #: The folder of the staged programs.
    programs: Path
    pace: api.Pace = PACE
    #: Seconds before a second attempt at a request.
    first_pause: float = 0.5
    #: The signed-in API, once it is needed.
    apis: list[workloads.Api] = field(default_factory=list)

    @property
    def api(self) -> workloads.Api:
        """The API. Raises LlmbError without credentials."""
        with _once:
            if not self.apis:
                runai = request.section(self.config)
                credentials = token.find_credentials(runai, self.environ)
                client = RestClient(runai.base_url, credentials, first_pause=self.first_pause)
                self.apis.append(workloads.Api(client=client, runai=runai))
            return self.apis[0]

    def identity(self) -> str:
        """The configured project, cluster and address. Raises LlmbError without a runai section."""
        runai = request.section(self.config)
        cluster = f" on cluster {runai.cluster}" if runai.cluster is not None else ""
        return f"project {runai.project}{cluster} of {runai.base_url.rstrip('/')}"

    def preflight(self, launches: Sequence[Launch]) -> list[Fault]:
        """Every fault that prevents these launches, empty when there is none."""
        try:
            runai = request.section(self.config)
        except LlmbError as error:
            return [as_fault(error)]
        faults = runai_checks.check(launches, self.config, runai, self.programs)
        try:
            # asks for what Run:ai rejects of the configuration: address, sign-in, project
            _ = self.api.project
        except LlmbError as error:
            faults.append(as_fault(error))
        return list(dict.fromkeys(faults))

    def faults_here(self, launches: Sequence[Launch]) -> list[Fault]:
        """The faults that a dry run can see. Calls no API."""
        try:
            runai = request.section(self.config)
        except LlmbError as error:
            return [as_fault(error)]
        return runai_checks.faults_here(launches, self.config, runai, self.programs)

    def faults_of_secrets(self, launches: Sequence[Launch]) -> list[Fault]:
        """The secrets that these launches lack: pods get them from Kubernetes, not from this
        shell.
        """
        runai = self.config.section
        return (
            [] if runai is None else [*runai_checks.faults_of_secrets(launches, self.config, runai)]
        )

    def render(self, launch: Launch, stamp: Stamp) -> str:
        """The script of ``launch``, with the request at its top. Pure. Raises UsageError for what
        bash cannot take.
        """
        return pod_script.render(launch, stamp, self.config, self.programs)

    def submit(self, run: RunRecord) -> str:
        """Create the run's workload. Return its id. Raises LlmbError for a refusal, UnclearError
        where no answer came.
        """
        self._stage()
        kind, content = request.from_script(run.script.read_text(encoding="utf-8"))
        variables = content["spec"]["environmentVariables"]
        content["spec"]["environmentVariables"] = [
            variable for variable in map(self._filled, variables) if variable is not None
        ]
        broken: BrokenGatewayError | None = None
        fault: LlmbError
        for attempt in range(_CREATIONS):
            time.sleep(self.first_pause * attempt)
            try:
                return self.api.create(kind, content)
            except BrokenGatewayError as error:
                fault = broken = error
            except RefusedRequestError as error:
                fault = broken or error  # perhaps because an earlier attempt created it
            if (existing := self._existing(run, fault)) is not None:
                return existing
            if fault is not broken:
                break
        raise fault

    def _existing(self, run: RunRecord, fault: LlmbError) -> str | None:
        """The id of the run's workload, looked up by name. Raises ``fault`` where that fails as
        well.
        """
        try:
            return self.find([run]).get(run.id)
        except LlmbError:
            raise fault from None

    def find(self, runs: Sequence[RunRecord]) -> Mapping[str, str]:
        """The ids of those runs that Run:ai has under their names, also deleted ones. Raises
        LlmbError.

        A run that had started and was deleted permanently is known by its name only.
        """
        if not runs:
            return {}
        since = min(run.submitted_at for run in runs)
        by_name = {name_of(run): run for run in runs}
        ids: dict[str, str] = {}
        for deleted in (False, True):
            names = [name for name, run in by_name.items() if run.id not in ids]
            listed = self.api.by_names(names, since, deleted=deleted) if names else {}
            ids |= {by_name[name].id: str(workload["id"]) for name, workload in listed.items()}
        for name, run in by_name.items():
            if run.id not in ids and api.job_by_files(run) is not None:
                ids[run.id] = name
        return ids

    def poll(self, runs: Sequence[RunRecord]) -> Mapping[str, JobState]:
        """The state of each run by its id, with one request for each page of workloads. Raises
        LlmbError.
        """
        api, now = self.api, time.time()
        by_workload = {key: run for run in runs if (key := _id_of(run)) is not None}
        workloads, refusals = api.by_ids(
            list(by_workload), min((run.submitted_at for run in runs), default=now)
        )
        states = {
            run.id: phases.of_workload(run, workloads[key], now)
            for key, run in by_workload.items()
            if key in workloads
        }
        states |= self._waiting(
            {key: run for key, run in by_workload.items() if key in workloads}, workloads, now
        )
        for key, state in self._explained(states, by_workload).items():
            states[key] = (
                replace(state, fix=advice(state.reason)) if state.state in phases.WAITING else state
            )
        states |= self._placed(states, by_workload)
        states |= {
            by_workload[key].id: _unshown(by_workload[key], fault)
            for key, fault in refusals.items()
        }
        missing = [run for run in runs if run.id not in states]
        since = min((run.submitted_at for run in missing), default=now)
        deleted = (
            api.by_names([name_of(run) for run in missing], since, deleted=True) if missing else {}
        )
        for run in missing:
            data = deleted.get(name_of(run))
            states[run.id] = (
                phases.of_deleted(run, data, now) if data is not None else _vanished(run, now)
            )
        if refusals and all(state.is_doubtful for state in states.values()):
            raise next(iter(refusals.values()))
        return states

    def cancel(self, runs: Sequence[RunRecord]) -> None:
        """Stop these runs, waiting or running. Their workloads stay in Run:ai as stopped. Raises
        LlmbError.
        """
        ids = self.find([run for run in runs if run.scheduler_id is None])
        known = [run.submitted(ids[run.id]) if run.id in ids else run for run in runs]
        targets = [(key, run) for run in known if (key := _id_of(run)) is not None]
        faults = dict[str, LlmbError]()
        for number, (key, run) in enumerate(targets):
            try:
                self.api.suspend(request.kind_of(run.launch), key)
            except LlmbError as error:
                if not is_of_one(error):  # the others would fail too, each after a long wait
                    faults |= {remaining.id: error for _, remaining in targets[number:]}
                    break
                if not self._is_ending(key):
                    faults[run.id] = error
        if faults:
            raise _not_stopped(faults)

    def _is_ending(self, workload_id: str) -> bool:
        """Return True if a workload has ended or is being stopped: it needs no second request."""
        try:
            data = self.api.by_id(workload_id)
        except LlmbError:
            return False
        return data is None or phases.PHASES.get(str(data.get("phase"))) in phases.ENDING

    def _stage(self) -> None:
        """Stage the programs, once: reading all of them for each job takes longer than its
        submission.
        """
        with _once:
            api.stage_programs(self.config, self.programs)

    def _filled(self, variable: dict[str, object]) -> dict[str, object] | None:
        """A variable of the request with the shell's value, or None where the shell has none."""
        name = str(variable["name"])
        if variable.get("value") != request.placeholder(name):
            return variable
        return {"name": name, "value": self.environ[name]} if name in self.environ else None

    def _waiting(
        self,
        runs: Mapping[str, RunRecord],
        workloads: Mapping[str, Mapping[str, object]],
        now: float,
    ) -> dict[str, JobState]:
        """The states of a few waiting runs, with the scheduler's reasons, which lists do not
        have.
        """
        states = dict[str, JobState]()
        listed = [
            key
            for key in runs
            if workloads[key].get("phase") == "Pending" and _WAITS not in workloads[key]
        ]
        for key in listed[:_ASKED]:
            try:
                data = self.api.by_id(key)
            except LlmbError:  # the state is known without it
                continue
            if data is not None:
                states[runs[key].id] = phases.of_workload(runs[key], data, now)
        return states

    def _placed(
        self, states: Mapping[str, JobState], by_workload: Mapping[str, RunRecord]
    ) -> dict[str, JobState]:
        """The states of a few runs that have started, with the nodes of their pods, where no
        earlier poll had them.
        """
        started = [
            (key, run)
            for key, run in by_workload.items()
            if run.id in states and states[run.id].started
        ]
        unplaced = [
            (key, run)
            for key, run in started
            if not (state := api.seen_state(run)) or not state.nodes
        ]
        placed = dict[str, JobState]()
        for key, run in unplaced[:_PLACED]:
            try:
                placed[run.id] = replace(states[run.id], nodes=api.fold_nodes(self.api.nodes(key)))
            except LlmbError:  # the state is known without them
                break
        return placed

    def _explained(
        self, states: dict[str, JobState], by_workload: Mapping[str, RunRecord]
    ) -> dict[str, JobState]:
        """Return ``states`` with Kubernetes' warnings about a few runs that start or have failed
        without a reason.
        """
        unexplained = []
        for key, run in by_workload.items():
            state = states.get(run.id)
            failed = state is not None and state.state == "FAILED" and state.exit_code is None
            if state is not None and not state.reason and (failed or state.state == "CONFIGURING"):
                unexplained.append((key, run))
        for key, run in unexplained[:_ASKED]:
            try:
                events = self.api.events(key)
            except LlmbError:  # the state is known without it
                continue
            warned = next((event for event in events if event.get("type") == "Warning"), None)
            if warned is not None:
                reason = ": ".join(
                    str(warned[part]) for part in ("reason", "message") if warned.get(part)
                )
                states[run.id] = replace(states[run.id], reason=reason)
        return states


def create(config: ClusterConfig) -> RunaiCluster:
    """The configured project. The API is called and secrets are read only when needed."""
    return RunaiCluster(config=config, environ=os.environ, programs=api.programs_folder(config))


def name_of(run: RunRecord) -> str:
    """The run's name in Run:ai."""
    return request.workload_name(run.launch, run.stamp)


def _id_of(run: RunRecord) -> str | None:
    """The id of the run's workload. None for a run that ``find`` knows by its name alone: the API
    takes ids only, and it refuses other words, perhaps as invalid and not as missing.
    """
    return None if run.scheduler_id == name_of(run) else run.scheduler_id


def _unshown(run: RunRecord, fault: LlmbError) -> JobState:
    """The state of a run whose workload the API refuses to show: from its files, or the last."""
    if (end := phases.of_files(run)) is not None:
        return end
    return (api.seen_state(run) or JobState(state="UNKNOWN")).unanswered(fault.message)


def _not_stopped(faults: Mapping[str, LlmbError]) -> LlmbError:
    """The error for runs that could not be stopped, by their ids."""
    first = next(iter(faults.values()))
    reasons = "; ".join(dict.fromkeys(fault.message for fault in faults.values()))
    hint = first.hint
    if isinstance(first, RefusedRequestError):
        hint = (
            f"llmb-run jobs cancel {' '.join(faults)} tries again; Run:ai's web page stops them too"
        )
    return LlmbError(
        f"{', '.join(faults)} may still run: {reasons}",
        hint=hint,
        code=first.code,
        value=tuple(faults),
    )


def _vanished(run: RunRecord, now: float) -> JobState:
    """The state of a run that Run:ai does not have."""
    if (end := phases.of_files(run)) is not None:
        return replace(
            end, reason=end.reason or "from its own files; Run:ai no longer has its workload"
        )
    state = api.seen_state(run) or JobState(state="UNKNOWN")
    if now - run.submitted_at < YOUNG:
        return replace(state, reason="Run:ai does not list its workload yet")
    return JobState(
        state="LOST",
        reason="Run:ai no longer has its workload, and it recorded no end;"
        f" last seen {state.state}",
    )
