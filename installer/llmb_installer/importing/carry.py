# SPDX-License-Identifier: Apache-2.0
"""Plans an import as a value that can be shown, and carries it out; writes only to the target folder."""

import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from llmb.config import CONFIG_FILE
from llmb.config.exemplar import imported_folder, name_in_llmb
from llmb.errors import UsageError, os_errors
from llmb.results.find import find_logs, last_attempts
from llmb.runs import record as records, store
from llmb.system import files, locks, secrets
from llmb.system.shell import map_many
from llmb.text.names import as_keys
from llmb.workload.gpus import GpuTypes
from llmb.workload.spec import Workload
from llmb_installer import record
from llmb_installer.importing.finished import Common, FoundRun, NotTaken, find_run
from llmb_installer.importing.own_config import config_of, secret_items, secrets_of
from llmb_installer.importing.source import Item, Source, left, read_source
from llmb_installer.importing.sqsh import FoundImage, find_images, link_image, name_in_exemplar
from llmb_installer.planning.config import ConfigChange, write_config


def states_in(folder: Path) -> dict[str, str]:
    """Slurm's last known state of each job by its id, from the history that releases since 26.05 keep.

    The database is opened read-only, and without the files that SQLite makes beside one.
    """
    path = folder / ".llmb" / "jobs.sqlite3"
    if not path.is_file():
        return {}
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro&immutable=1", uri=True)) as history:
            rows = history.execute("SELECT job_id, slurm_state FROM jobs WHERE slurm_state IS NOT NULL").fetchall()
    except sqlite3.Error:  # damaged, or of a later version: the logs are enough
        return {}
    return {str(job): str(state).split()[0].upper() for job, state in rows if str(state).strip()}


_BEGUN = "import.json"  # in record.FOLDER: names the folder that is, or was, imported


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """What an import of ``source`` into ``target`` does; ``items``: everything that was found, taken or not.

    ``image_folder``: of the target; ``config``: the data of a new cluster_config.yaml, None where the target has one;
    ``secrets``: to be copied, with the user's consent; ``workloads``: those of the source that llmb offers.
    """

    source: Source
    target: Path
    image_folder: Path
    config: Mapping[str, Any] | None
    images: tuple[FoundImage, ...] = ()
    runs: tuple[FoundRun, ...] = ()
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    items: tuple[Item, ...] = ()
    workloads: tuple[str, ...] = ()

    @property
    def changes_nothing(self) -> bool:
        """Whether the target has everything already."""
        return not (self.config or self.images or self.runs or self.secrets)


def plan_import(
    folder: Path,
    into: Path | None,
    workloads: Mapping[str, Workload],
    types: GpuTypes,
    environ: Mapping[str, str],
    *,
    gpu_type: str | None = None,
    with_secrets: bool = False,
) -> Import:
    """What an import of ``folder`` would do. Writes nothing. Raises UsageError, LlmbError."""
    source = read_source(folder.resolve())
    target = (into or imported_folder(source.folder)).absolute()
    exists = _check_target(source, target)
    data, settings = config_of(source, target, gpu_type, types, list(workloads))
    if exists:
        own = record.config_of(target)
        settings = [Item(kind="setting", name=CONFIG_FILE, action="present", code="config-present")]
        root, kind = store.runs_root(own), gpu_type or source.gpu_type or own.gpu_type
        images_folder = own.install.image_folder or target / "images"
    else:
        root, kind, images_folder = target / "workloads", str(data["gpu_type"]), target / "images"
    common = Common(
        root=root,
        workloads=workloads,
        types=types,
        gpu_type=kind,
        gpus_per_node=_gpus(source),
        release=source.release,
        states=states_in(source.folder),
        now=time.time(),
    )
    runs, run_items = _runs(source, common)
    named = {name_in_exemplar(image): image for run in runs if (image := run.record.job.image)}
    images, image_items = find_images(source, named, images_folder)
    found = secrets_of(source)
    present = {name for name in found if environ.get(name)} | {*secrets.names()}
    secret_list = list(secret_items(found, present, take=with_secrets))
    offered = [key for key in as_keys(map(name_in_llmb, source.workloads), workloads) if key in workloads]
    return Import(
        source=source,
        target=target,
        image_folder=images_folder,
        config=None if exists else data,
        images=tuple(images),
        runs=tuple(run for run in runs if not (run.record.directory / records.RECORD).exists()),
        secrets={item.name: found[item.name] for item in secret_list if item.action == "take"},
        items=(*settings, *secret_list, *image_items, *_others(source, workloads), *run_items),
        workloads=tuple(offered),
    )


def _check_target(source: Source, target: Path) -> bool:
    """Whether the target is an install directory of llmb already. Raises UsageError for a folder of others."""
    real = target.resolve()
    if real == source.folder or source.folder in real.parents:
        message, hint = f"{target} is in the folder that is imported", "choose another: --into DIR"
        raise UsageError(f"{message}, which is not changed", hint=hint, code="import-into-source", key="--into")
    if (target / CONFIG_FILE).is_file():
        record.own_config(target)
        return True
    others = target.is_dir() and any(target.iterdir()) and not (target / record.FOLDER / _BEGUN).is_file()
    if others or (target.exists() and not target.is_dir()):
        hint = "choose another folder: --into DIR"
        message = f"{target} exists, and is no install directory"
        raise UsageError(message, hint=hint, code="import-into-other", key="--into", value=str(target))
    return False


def _gpus(source: Source) -> int | None:
    gres = str(source.gpu.get("gres") or "").rpartition(":")[2]
    return int(gres) if gres.isdigit() and int(gres) else None


def _runs(source: Source, common: Common) -> tuple[list[FoundRun], list[Item]]:
    """Every run of the source that can be taken, and what becomes of each log."""
    unreadable: list[OSError] = []
    logs = [log for start in _starts(source) for log in last_attempts(find_logs(start, unreadable.append))]
    runs: list[FoundRun] = []
    items = [left("run", str(one.filename), str(one.strerror), "folder-unreadable") for one in unreadable]
    for log, found in zip(logs, map_many(partial(find_run, common=common), logs), strict=True):
        name = str(log.relative_to(source.folder))
        if isinstance(found, NotTaken):
            items.append(left("run", name, found.reason, found.code))
            continue
        runs.append(found)
        there = (found.record.directory / records.RECORD).exists()
        what = f"{found.record.id}, {found.state.state.lower()}"
        items.append(
            Item(kind="run", name=name, action="present", detail=what, code="run-present")
            if there
            else Item(kind="run", name=name, detail=what)
        )
    return runs, items


def _starts(source: Source) -> Iterator[Path]:
    """The folders that have logs of runs; those of checkouts and environments beside them are not searched."""
    yield from sorted(path for path in source.folder.glob("workloads/*/experiments") if path.is_dir())
    if source.layout == "stage":
        yield from (path for name in ("results", "experiments") if (path := source.folder / name).is_dir())


def _others(source: Source, workloads: Mapping[str, Workload]) -> Iterator[Item]:
    """What llmb has no use for, or installs itself."""
    keys = dict(zip(source.workloads, as_keys(map(name_in_llmb, source.workloads), workloads), strict=True))
    for name, key in keys.items():
        if key not in workloads:
            yield left("workload", name, "no plugin of llmb offers it", "workload-not-offered")
    for name, path in source.venvs.items():
        yield left("environment", name, f"{path} launches NVIDIA's scripts, which llmb does not use", "venv-not-used")


def carry_out(plan: Import, *, checksums: bool, say: Callable[[str], None]) -> None:
    """Do it; ``say`` reports progress. An import that failed or was interrupted continues. Raises LlmbError."""
    if plan.changes_nothing:
        return
    message, hint = f"{plan.target} cannot be written", "choose another folder: --into DIR"
    with os_errors(message, hint=hint, code="folder-unwritable", key="--into", value=str(plan.target)):
        files.make_folder(plan.target / record.FOLDER)
        files.write_json(plan.target / record.FOLDER / _BEGUN, {"source": str(plan.source.folder)})
        with locks.hold(plan.target / record.FOLDER, record.LOCK):
            for number, run in enumerate(plan.runs, 1):
                _take(run)
                if number % 100 == 0:
                    say(f"{number} of {len(plan.runs)} runs")
            for image in plan.images:
                files.make_folder(plan.image_folder)
                if checksums and image.reference is not None:
                    say(f"reading {image.file} for its checksum")
                link_image(image, plan.image_folder, checksum=checksums)
            secrets.save(plan.secrets)
            if plan.config is not None:  # last: with it, the folder is an install directory
                write_config(plan.target, ConfigChange(data=dict(plan.config), changed=True, kept=()))


def _take(run: FoundRun) -> None:
    """Write the run's folder, its record last: without that, another import begins again."""
    own = run.record
    files.make_folder(own.work)
    for link, file in ((own.log, run.log), (own.batch_log, run.batch_log)):
        if file is not None and not link.is_symlink():
            link.symlink_to(file.absolute())
    store.save_state(own, run.state)
    records.save(own)


def summary_of(items: Sequence[Item]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for item in items:
        counts = found.setdefault(item.kind, {"take": 0, "present": 0, "leave": 0})
        counts[item.action] += 1
    return found
