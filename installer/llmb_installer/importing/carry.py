# SPDX-License-Identifier: Apache-2.0
"""Plans an import as a value that can be shown, and carries it out.

Writes only to the target folder.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import Any

from llmb.contract import record as records
from llmb.contract.foreign_install import ForeignInstall
from llmb.contract.spec import Workload
from llmb.core import files, locks, secrets
from llmb.core.names import as_keys
from llmb.core.shell import map_many
from llmb.core.values import dataclass
from llmb.errors import UsageError, os_errors
from llmb.measure.find_logs import find_logs, last_attempts
from llmb.plan.locate import CONFIG_FILE
from llmb.plugins.foreign import imported_folder, is_own
from llmb.plugins.loaded import Plugins
from llmb.run import store
from llmb_installer import record
from llmb_installer.importing.finished import (
    Common,
    FoundRun,
    NotTaken,
    find_run,
    own_timestamp,
)
from llmb_installer.importing.item import ImportItem, leave
from llmb_installer.importing.own_config import (
    find_secrets,
    installed_frameworks,
    list_secrets,
    make_config,
)
from llmb_installer.importing.sqsh import FoundImage, find_images, link_image
from llmb_installer.planning.config import ConfigChange, write_config

_BEGUN = "import.json"  # in record.FOLDER: names the folder that is, or was, imported


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportPlan:
    """An import of ``source`` into ``target``.

    ``items`` is everything that was found, taken or not. ``image_folder`` is the target's.
    ``config`` is the data of a new cluster_config.yaml, None if the target has one. ``secrets`` are
    copied with the user's consent. ``workloads`` are the source's that llmb offers.
    """

    source: ForeignInstall
    target: Path
    image_folder: Path
    config: Mapping[str, Any] | None
    images: tuple[FoundImage, ...] = ()
    runs: tuple[FoundRun, ...] = ()
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    items: tuple[ImportItem, ...] = ()
    workloads: tuple[str, ...] = ()

    @property
    def changes_nothing(self) -> bool:
        """Return True if the target has everything already."""
        return not (self.config or self.images or self.runs or self.secrets)


def plan_import(
    folder: Path,
    into: Path | None,
    plugins: Plugins,
    environ: Mapping[str, str],
    *,
    gpu_type: str | None = None,
    with_secrets: bool = False,
) -> ImportPlan:
    """Plan an import of ``folder``. Writes nothing. Raises UsageError, LlmbError."""
    source = read_source(folder.resolve(), plugins)
    workloads, types = plugins.workloads(), plugins.gpu_types
    target = (into or imported_folder(source.folder)).absolute()
    exists = _check_target(source, target)
    data, settings = make_config(source, target, gpu_type, types, workloads)
    if exists:
        config = record.load_layered_config(target)
        settings = [
            ImportItem(kind="setting", name=CONFIG_FILE, action="present", code="config-present")
        ]
        root, kind = config.runs_root, gpu_type or source.gpu_type or config.gpu_type
        images_folder = config.install.image_folder or target / "images"
    else:
        root, kind, images_folder = target / "workloads", str(data["gpu_type"]), target / "images"
    common = Common(
        source=source,
        root=root,
        workloads=workloads,
        types=types,
        gpu_type=kind,
        gpus_per_node=_gpus(source),
        now=time.time(),
    )
    runs, run_items = _runs(common, plugins)
    named = {
        run.image_file: image
        for run in runs
        if (image := run.record.job.image) and run.image_file is not None
    }
    images, image_items = find_images(source.images, named, images_folder)
    data["install"] |= installed_frameworks(
        image.reference for image in images if image.reference is not None
    )
    values = find_secrets(source)
    known_secrets = {name for name in values if environ.get(name)} | {*secrets.names()}
    secret_list = list(list_secrets(values, known_secrets, take=with_secrets))
    offered = [key for key in as_keys(source.workloads, workloads) if key in workloads]
    return ImportPlan(
        source=source,
        target=target,
        image_folder=images_folder,
        config=None if exists else data,
        images=tuple(images),
        runs=tuple(run for run in runs if not (run.record.directory / records.RECORD).exists()),
        secrets={item.name: values[item.name] for item in secret_list if item.action == "take"},
        items=(*settings, *secret_list, *image_items, *_list_unused(source, workloads), *run_items),
        workloads=tuple(offered),
    )


def read_source(folder: Path, plugins: Plugins) -> ForeignInstall:
    """Read ``folder``. Raises UsageError if no plugin knows it."""
    if (folder / CONFIG_FILE).is_file() and is_own(folder):
        message = f"{folder / CONFIG_FILE} is llmb's own, not of another tool"
        hint = "llmb uses it as it is: --install DIR"
        raise UsageError(message, hint=hint, code="import-own", key="DIR", value=str(folder))
    found = plugins.foreign_install(folder)
    if found is None:
        message = (
            f"{folder} is no install directory of a tool that llmb can import"
            if folder.is_dir()
            else f"{folder} is not a folder"
        )
        hint = "name the folder that has the tool's configuration, images or runs"
        raise UsageError(message, hint=hint, code="import-nothing", key="DIR", value=str(folder))
    return found


def _check_target(source: ForeignInstall, target: Path) -> bool:
    """Return True if the target is an install directory of llmb already.

    Raises UsageError for a folder of others.
    """
    real = target.resolve()
    if real == source.folder or source.folder in real.parents:
        message, hint = f"{target} is in the folder that is imported", "choose another: --into DIR"
        raise UsageError(
            f"{message}, which is not changed", hint=hint, code="import-into-source", key="--into"
        )
    if (target / CONFIG_FILE).is_file():
        record.read_own_config(target)
        return True
    is_foreign = (
        target.is_dir()
        and any(target.iterdir())
        and not (target / record.FOLDER / _BEGUN).is_file()
    )
    if is_foreign or (target.exists() and not target.is_dir()):
        hint = "choose another folder: --into DIR"
        message = f"{target} exists, and is no install directory"
        raise UsageError(
            message, hint=hint, code="import-into-other", key="--into", value=str(target)
        )
    return False


def _gpus(source: ForeignInstall) -> int | None:
    gres = str(source.gpu.get("gres") or "").rpartition(":")[2]
    return int(gres) if gres.isdigit() and int(gres) else None


def _runs(common: Common, plugins: Plugins) -> tuple[list[FoundRun], list[ImportItem]]:
    """Every run of the source that can be taken, and what becomes of each log."""
    source = common.source
    unreadable: list[OSError] = []
    logs = [
        log for start in source.runs for log in last_attempts(find_logs(start, unreadable.append))
    ]
    runs: list[FoundRun] = []
    directories: set[Path] = set()
    items = [
        leave("run", str(error.filename), str(error.strerror), "folder-unreadable")
        for error in unreadable
    ]
    described = [
        (log, plugins.log_settings(log)) for log in logs
    ]  # other processes have no plugins
    find = partial(find_run, common=common)
    # The functions of a plugin's framework, which workloads have, cannot be sent to others.
    has_functions = plugins.has_hook("llmb_frameworks")
    found = [find(item) for item in described] if has_functions else map_many(find, described)
    for log, run in zip(logs, found, strict=True):
        name = str(log.relative_to(source.folder))
        if isinstance(run, NotTaken):
            items.append(leave("run", name, run.reason, run.code))
            continue
        if run.record.directory in directories:  # two jobs of one folder
            run = _apart(run)
        directories.add(run.record.directory)
        runs.append(run)
        is_present = (run.record.directory / records.RECORD).exists()
        detail = f"{run.record.id}, {run.state.state.lower()}"
        items.append(
            ImportItem(kind="run", name=name, action="present", detail=detail, code="run-present")
            if is_present
            else ImportItem(kind="run", name=name, detail=detail)
        )
    return runs, items


def _apart(run: FoundRun) -> FoundRun:
    """Return the run with a directory that no other run of the import has."""
    stamp = run.record.scheduler_id if run.record.scheduler_id else own_timestamp(run.log)
    directory = run.record.directory.with_name(f"{run.record.job.experiment_name}_{stamp}")
    return replace(run, record=replace(run.record, directory=directory))


def _list_unused(source: ForeignInstall, workloads: Mapping[str, Workload]) -> Iterator[ImportItem]:
    """Yield the items that llmb does not use, or installs itself."""
    keys = dict(zip(source.workloads, as_keys(source.workloads, workloads), strict=True))
    for name, key in keys.items():
        if key not in workloads:
            yield leave("workload", name, "no plugin of llmb offers it", "workload-not-offered")
    for name, path in source.venvs.items():
        yield leave(
            "environment",
            name,
            f"{path} launches {source.vendor}'s scripts, which llmb does not use",
            "venv-not-used",
        )


def carry_out(plan: ImportPlan, *, checksums: bool, say: Callable[[str], None]) -> None:
    """Do it.

    ``say`` reports progress. An import that failed or was interrupted continues. Raises LlmbError.
    """
    if plan.changes_nothing:
        return
    message, hint = f"{plan.target} cannot be written", "choose another folder: --into DIR"
    with os_errors(
        message, hint=hint, code="folder-unwritable", key="--into", value=str(plan.target)
    ):
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
                write_config(
                    plan.target, ConfigChange(data=dict(plan.config), changed=True, kept=())
                )


def _take(run: FoundRun) -> None:
    """Write the run's folder, its record last: without that, another import begins again."""
    run_record = run.record
    files.make_folder(run_record.work)
    for link, file in ((run_record.log, run.log), (run_record.batch_log, run.batch_log)):
        if file is not None and not link.is_symlink():
            link.symlink_to(file.absolute())
    store.save_state(run_record, run.state)
    records.save(run_record)


def count_items(items: Sequence[ImportItem]) -> dict[str, dict[str, int]]:
    summary: dict[str, dict[str, int]] = {}
    for item in items:
        counts = summary.setdefault(item.kind, {"take": 0, "present": 0, "leave": 0})
        counts[item.action] += 1
    return summary
