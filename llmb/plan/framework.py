# SPDX-License-Identifier: Apache-2.0
"""Chooses a request's framework and release of Megatron-Bridge, by default the install's."""

from collections.abc import Collection
from dataclasses import dataclass

from llmb.contract.job import JobRequest
from llmb.contract.schema import ClusterConfig, InstallConfig
from llmb.contract.settings import NOTHING, Settings
from llmb.contract.spec import Size, Workload
from llmb.core.names import suggest
from llmb.errors import UsageError
from llmb.plan import bridge_rows
from llmb.plan.bridge_rows import BRIDGE, FRAMEWORKS, NEMO, releases, table_of, with_bridge


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """The framework of a job, the image release of Megatron-Bridge, and the workload's rows."""

    name: str
    release: str | None
    workload: Workload


def framework_of(
    request: JobRequest,
    workload: Workload,
    size: str,
    config: ClusterConfig,
    gpu_type: str,
    overrides: Settings = NOTHING,
) -> Framework:
    """Return the framework of a request's jobs, as ``overrides`` and the request select it.

    An ``image`` of a release of Megatron-Bridge selects that release. By default it is
    Megatron-Bridge if the install was made with it alone, or if the size has no other row for the
    GPU type, with the install's release, else the newest that has all dtypes. Raises UsageError for
    a framework or a release that the size does not have, and for an image of NVIDIA that is known
    to have another library.
    """
    gpu, install = config.rows_for(gpu_type), config.install
    framework, release = (
        overrides.framework or request.framework,
        overrides.release or request.release,
    )
    image = overrides.image or request.switches.image
    image_release = bridge_rows.nvidia_release(image) if image is not None else None
    if (
        release is None
        and framework != NEMO
        and size in table_of(workload).sizes
        and image_release in releases()
    ):
        release = image_release
    if framework is None:
        framework = BRIDGE if release is not None else _default(workload, size, gpu, install)
    if framework == NEMO and release is not None:
        message = (
            f"{workload.key} {size}: 'release' selects an image of Megatron-Bridge, not of NeMo"
        )
        hint = "omit it, or --framework bridge"
        raise UsageError(
            message, hint=hint, code="release-without-bridge", key="release", value=release
        )
    chosen = Framework(name=NEMO, release=None, workload=workload)
    if framework != NEMO:
        usual = release or install.bridge_release
        chosen = _bridge(workload, size, gpu, usual, request.dtypes, is_chosen=release is not None)
    if image is not None and image_release is not None:
        _check_image(image, image_release, chosen, workload.sizes[size], f"{workload.key} {size}")
    return chosen


def _check_image(image: str, release: str, chosen: Framework, size: Size, label: str) -> None:
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
        chosen.name == NEMO
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


def _default(workload: Workload, size: str, gpu: str, install: InstallConfig) -> str:
    if workload.bridge is None:
        return NEMO
    has_nemo = bool(workload.sizes[size].dtypes(gpu))
    if has_nemo and install.framework != BRIDGE:
        return NEMO
    return BRIDGE if releases_of(workload, size, gpu) else NEMO


def _bridge(
    workload: Workload,
    size: str,
    gpu: str,
    release: str | None,
    dtypes: Collection[str],
    *,
    is_chosen: bool,
) -> Framework:
    bridge_size = table_of(workload).sizes.get(size)
    if bridge_size is None:
        sizes = list(table_of(workload).sizes)
        hint = f"of {workload.key} it trains {', '.join(sizes)}" if sizes else "omit it"
        message = f"{workload.key} {size} has no configuration for Megatron-Bridge"
        raise UsageError(
            message, hint=hint, code="framework-unsupported", key="framework", value=BRIDGE
        )
    if is_chosen and release not in bridge_size.rows:
        hint = suggest(str(release), list(bridge_size.rows))
        message = f"{workload.key} {size} has no release '{release}' of Megatron-Bridge"
        raise UsageError(message, hint=hint, code="release-unknown", key="release", value=release)
    usable = (
        releases_of(workload, size, gpu, dtypes)
        or releases_of(workload, size, gpu)
        or list(bridge_size.rows)
    )
    if release is None or (not is_chosen and release not in usable):
        release = usable[0]
    return Framework(name=BRIDGE, release=release, workload=with_bridge(workload, release))


def releases_of(workload: Workload, size: str, gpu: str, dtypes: Collection[str] = ()) -> list[str]:
    """Return the image releases that have ``size`` on ``gpu`` with all ``dtypes``, newest first."""
    by_release = dict[str, set[str]]()
    for release, row in table_of(workload).of(size):
        if any(row.fits(gpu, dtype) for dtype in row.dtype):
            by_release.setdefault(release, set()).update(row.dtype)
    return [
        name
        for name, available in by_release.items()
        if all(bridge_rows.spelled(dtype, available) in available for dtype in dtypes)
    ]


def bridge_dtypes(workload: Workload, size: str, gpu: str) -> list[str]:
    rows = (row for _, row in table_of(workload).of(size))
    return list(dict.fromkeys(dtype for row in rows for dtype in row.dtype if row.fits(gpu, dtype)))


def discovered(
    workload: Workload,
    gpu: str,
    install: InstallConfig,
    framework: str | None = None,
    release: str | None = None,
) -> Framework | None:
    """Return the one framework, and release, of all discovered sizes, or None without any.

    Without ``framework`` and ``release``, it is Megatron-Bridge if the install was made with it
    alone, or if no other row is for the GPU type.
    """
    nemo = Framework(name=NEMO, release=None, workload=workload)
    is_chosen = framework == BRIDGE or release is not None
    if framework == NEMO or (workload.bridge is None and not is_chosen):
        return nemo
    sizes = (
        entry
        for entry in workload.sizes.values()
        if entry.discover is None or gpu in entry.discover
    )
    if not is_chosen and install.framework != BRIDGE and any(entry.dtypes(gpu) for entry in sizes):
        return nemo
    table = table_of(workload)
    for name in filter(
        None, [release] if release is not None else [install.bridge_release, *releases()]
    ):
        if any(
            entry == name and gpu in row.gpu
            for size in table.sizes
            for entry, row in table.of(size)
        ):
            return Framework(name=BRIDGE, release=name, workload=with_bridge(workload, name))
    return None if is_chosen else nemo


def sizes_on(workload: Workload, gpu: str) -> list[str]:
    sizes = workload.on(gpu)
    return [name for name in workload.sizes if name in sizes or bridge_dtypes(workload, name, gpu)]


def check_framework(name: str) -> None:
    """Raise UsageError for a framework that llmb does not know."""
    if name not in FRAMEWORKS:
        message = f"no framework '{name}'"
        raise UsageError(
            message,
            hint=suggest(name, FRAMEWORKS),
            code="framework-unknown",
            key="framework",
            value=name,
        )
