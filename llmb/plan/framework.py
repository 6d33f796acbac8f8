# SPDX-License-Identifier: Apache-2.0
"""Chooses an entry's framework and release of Megatron-Bridge, by default the install's."""

from collections.abc import Collection, Iterable, Sequence

from llmb.contract.entry import JobEntry
from llmb.contract.schema import ClusterConfig
from llmb.contract.spec import NEMO, Size, Workload
from llmb.core.names import suggest
from llmb.core.values import dataclass
from llmb.errors import UsageError
from llmb.plan import bridge_rows
from llmb.plan.bridge_rows import (
    BRIDGE,
    FP8_MEANINGS,
    releases,
    table_of,
    with_bridge,
)
from llmb.plan.images import recorded_contents
from llmb.plan.installed import Installed, installed


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The framework of a job, the image release of Megatron-Bridge, and the workload's rows."""

    name: str
    release: str | None
    workload: Workload
    #: The choice that nothing made, for users: neither they nor the installation.
    note: str | None = None


def framework_of(
    entry: JobEntry,
    workload: Workload,
    size: str,
    config: ClusterConfig,
    gpu_type: str,
) -> Choice:
    """Return the framework of an entry's jobs, as its settings select it.

    An ``image`` of a release of Megatron-Bridge selects that release. By default it is
    Megatron-Bridge if the installation has it alone, or if the size has no other row for the
    GPU type, with an installed release, else the newest that has all dtypes. Raises UsageError for
    a framework or a release that the size does not have, and for an image of NVIDIA that is known
    to have another library.
    """
    gpu, install = config.rows_for(gpu_type), installed(workload.key, config)
    settings = entry.settings
    framework, release, image = settings.framework, settings.release, settings.image
    library = _library_in(image, config) if image is not None else None
    image_release = bridge_rows.nvidia_release(image) if image is not None else None
    image_release = image_release or bridge_rows.release_of_library(library)
    if (
        release is None
        and framework != workload.framework
        and size in table_of(workload).sizes
        and image_release in releases()
    ):
        release = image_release
    note, own = None, workload.framework
    _check_known(workload, size, framework)
    if not framework:
        framework = BRIDGE if release is not None else _default(workload, size, gpu, install)
        is_decided = install.framework is not None or config.traits.trains == "torch"
        if framework == own and image is None and not is_decided:
            note = _other_framework(workload, size, gpu)
    if framework == own and release is not None:
        title = title_of(own, workload)
        message = (
            f"{workload.key} {size}: 'release' selects an image of Megatron-Bridge, not of {title}"
        )
        hint = "omit it, or --framework bridge"
        raise UsageError(
            message, hint=hint, code="release-without-bridge", key="release", value=release
        )
    chosen = Choice(name=own, release=None, workload=workload, note=note)
    if framework != own:
        chosen = _bridge(workload, size, gpu, release, entry.dtypes, install.releases)
    if image is not None and image_release is not None:
        _check_image(image, image_release, chosen, workload.sizes[size], f"{workload.key} {size}")
    if chosen.release is not None:
        _check_library(image or releases()[chosen.release].image, chosen, config)
    return chosen


def _library_in(image: str, config: ClusterConfig) -> str | None:
    """Return the version of Megatron-Bridge in ``image``, or None if it is not recorded."""
    if not config.traits.uses_images or config.traits.pulls_images:
        return None
    return recorded_contents(image, config).get("megatron-bridge")


def _check_library(image: str, chosen: Choice, config: ClusterConfig) -> None:
    """Raise UsageError if the image's Megatron-Bridge is not that of the release.

    The program would refuse it, but only after the job has waited for its nodes.
    """
    version = _library_in(image, config)
    required = releases()[chosen.release or ""].bridge
    if version is None or bridge_rows.is_same_minor(version, required):
        return
    other = bridge_rows.release_of_library(version)
    hint = (
        f"--release {other} --image {image}"
        if other is not None
        else f"llmb has configurations for megatron-bridge {', '.join(_versions())}"
    )
    message = f"{image} contains megatron-bridge {version}"
    raise UsageError(
        f"{message}, and release {chosen.release} is for {required}",
        hint=hint,
        code="image-of-other-library",
        key="image",
        value=image,
    )


def _versions() -> list[str]:
    return [release.bridge for release in releases().values()]


def _check_image(image: str, release: str, chosen: Choice, size: Size, label: str) -> None:
    """Raise UsageError for NVIDIA's ``image`` of release ``release`` if it cannot train the job.

    The program would refuse it, but only after the job has waited for its nodes.
    """
    if chosen.name == BRIDGE and release != chosen.release:
        message = (
            f"{label}: {image} is not the image of release {chosen.release} of Megatron-Bridge"
        )
        has = release in releases()
        hint = (
            f"--release {release}"
            if has
            else f"omit it; llmb has configurations for the images {', '.join(releases())}"
        )
        raise UsageError(
            message, hint=hint, code="image-of-other-release", key="image", value=image
        )
    if (
        chosen.name != BRIDGE
        and size.nemo is not None
        and (release in releases() or release[:5] > bridge_rows.NEMO_UNTIL)
    ):
        message = f"{label}: {image} is for Megatron-Bridge, and this job trains with NeMo"
        hint = (
            "omit the image, or --framework"
            f" bridge{f' --release {release}' if release in releases() else ''}"
        )
        raise UsageError(
            message, hint=hint, code="image-of-other-framework", key="image", value=image
        )


def _default(workload: Workload, size: str, gpu: str, install: Installed) -> str:
    own = workload.framework
    if workload.bridge is None:
        return own
    has_rows = bool(workload.sizes[size].dtypes(gpu))
    if has_rows and install.framework != BRIDGE:
        return own
    return BRIDGE if releases_of(workload, size, gpu) else own


def _other_framework(workload: Workload, size: str, gpu: str) -> str | None:
    available = releases_of(workload, size, gpu)
    if not available:
        return None
    title = title_of(workload.framework, workload)
    return (
        f"{workload.key} {size} trains with {title}; Megatron-Bridge {available[0]} has it too:"
        " --framework bridge"
    )


def _bridge(
    workload: Workload,
    size: str,
    gpu: str,
    release: str | None,
    dtypes: Collection[str],
    installed_releases: Sequence[str],
) -> Choice:
    bridge_size = table_of(workload).sizes.get(size)
    if bridge_size is None:
        sizes = list(table_of(workload).sizes)
        hint = f"of {workload.key} it trains {', '.join(sizes)}" if sizes else "omit it"
        message = f"{workload.key} {size} has no configuration for Megatron-Bridge"
        raise UsageError(
            message, hint=hint, code="framework-unsupported", key="framework", value=BRIDGE
        )
    if release is not None and release not in bridge_size.rows:
        hint = suggest(release, list(bridge_size.rows))
        message = f"{workload.key} {size} has no release '{release}' of Megatron-Bridge"
        raise UsageError(message, hint=hint, code="release-unknown", key="release", value=release)
    usable = (
        releases_of(workload, size, gpu, dtypes)
        or releases_of(workload, size, gpu)
        or list(bridge_size.rows)
    )
    if release is None:
        release = next((name for name in installed_releases if name in usable), usable[0])
    return Choice(name=BRIDGE, release=release, workload=with_bridge(workload, release))


def releases_of(workload: Workload, size: str, gpu: str, dtypes: Collection[str] = ()) -> list[str]:
    """Return the image releases that have ``size`` on ``gpu`` with all ``dtypes``, newest first."""
    by_release = dict[str, set[str]]()
    for release, row in table_of(workload).of(size):
        if any(row.fits(gpu, dtype) for dtype in row.dtype):
            by_release.setdefault(release, set()).update(row.dtype)
    return [
        name
        for name, available in by_release.items()
        if all(
            any(bridge_rows.spelled(dtype, available, fp8) in available for fp8 in FP8_MEANINGS)
            for dtype in dtypes
        )
    ]


def bridge_dtypes(workload: Workload, size: str, gpu: str) -> list[str]:
    rows = (row for _, row in table_of(workload).of(size))
    return list(dict.fromkeys(dtype for row in rows for dtype in row.dtype if row.fits(gpu, dtype)))


def discovered(
    workload: Workload,
    gpu: str,
    install: Installed,
    framework: str | None = None,
    release: str | None = None,
) -> Choice | None:
    """Return the one framework, and release, of all discovered sizes, or None without any.

    Without ``framework`` and ``release``, it is Megatron-Bridge if the installation has it alone,
    or if no other row is for the GPU type.
    """
    own = Choice(name=workload.framework, release=None, workload=workload)
    is_chosen = framework not in (None, own.name) or release is not None
    if framework == own.name or (workload.bridge is None and not is_chosen):
        return own
    if framework not in (None, BRIDGE):
        return None
    sizes = (
        entry
        for entry in workload.sizes.values()
        if entry.discover is None or gpu in entry.discover
    )
    if not is_chosen and install.framework != BRIDGE and any(entry.dtypes(gpu) for entry in sizes):
        return own
    table = table_of(workload)
    for name in [release] if release is not None else [*install.releases, *releases()]:
        if any(
            entry == name and gpu in row.gpu
            for size in table.sizes
            for entry, row in table.of(size)
        ):
            return Choice(name=BRIDGE, release=name, workload=with_bridge(workload, name))
    return None if is_chosen else own


def sizes_on(workload: Workload, gpu: str) -> list[str]:
    sizes = workload.on(gpu)
    return [name for name in workload.sizes if name in sizes or bridge_dtypes(workload, name, gpu)]


def title_of(name: str, workload: Workload) -> str:
    """Return the name of a framework for people."""
    return workload.frameworks[name].title if name in workload.frameworks else name


def _check_known(workload: Workload, size: str, name: str) -> None:
    """Raise UsageError for a framework that is unknown or has no rows of the size."""
    if not name or name in (workload.framework, BRIDGE):
        return
    check_framework(name, [*workload.frameworks])
    hint = f"omit it: {title_of(workload.framework, workload)} trains {workload.key}"
    raise UsageError(
        f"{workload.key} {size} has no configuration for {title_of(name, workload)}",
        hint=hint,
        code="framework-unsupported",
        key="framework",
        value=name,
    )


def frameworks_in(workloads: Iterable[Workload]) -> list[str]:
    """Return the names of the frameworks that train ``workloads``."""
    return list(dict.fromkeys([NEMO, BRIDGE, *(workload.framework for workload in workloads)]))


def check_framework(name: str, frameworks: Collection[str]) -> None:
    """Raise UsageError for a framework that is none of ``frameworks``."""
    if name not in frameworks:
        message = f"no framework '{name}'"
        raise UsageError(
            message,
            hint=suggest(name, frameworks),
            code="framework-unknown",
            key="framework",
            value=name,
        )
