# SPDX-License-Identifier: Apache-2.0
"""Chooses the framework of a request and the image release of Megatron-Bridge; by default what GPU and install have."""

from collections.abc import Collection
from dataclasses import dataclass

from llmb.config import ClusterConfig
from llmb.config.schema import InstallConfig
from llmb.errors import UsageError
from llmb.planning.job_spec import NO_OVERRIDES, JobOverrides
from llmb.runs.job import JobRequest
from llmb.text.names import suggest
from llmb.workload import bridge
from llmb.workload.bridge import BRIDGE, FRAMEWORKS, NEMO, releases, table_of, with_bridge
from llmb.workload.spec import Size, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """The framework ``name`` of a job, the image ``release`` of Megatron-Bridge, and the workload with its rows."""

    name: str
    release: str | None
    workload: Workload


def framework_of(
    request: JobRequest,
    workload: Workload,
    size: str,
    config: ClusterConfig,
    gpu_type: str,
    overrides: JobOverrides = NO_OVERRIDES,
) -> Framework:
    """The framework of a request's jobs, ``size`` on ``gpu_type``, as ``overrides`` and the request select it.

    An ``image`` of a release of Megatron-Bridge selects that release. By default Megatron-Bridge where the install was
    made with it alone, or where the size has no other row for the GPU type; of its releases the install's, else the
    newest that has all dtypes. Raises UsageError for a framework or a release that the size does not have, and for
    an image of NVIDIA that is known to have another library.
    """
    gpu, install = config.rows_for(gpu_type), config.install
    framework, release = overrides.framework or request.framework, overrides.release or request.release
    image = overrides.switches.image or request.switches.image
    own = bridge.nvidia_release(image) if image is not None else None
    if release is None and framework != NEMO and size in table_of(workload).sizes and own in releases():
        release = own
    if framework is None:
        framework = BRIDGE if release is not None else _default(workload, size, gpu, install)
    if framework == NEMO and release is not None:
        message = f"{workload.key} {size}: 'release' selects an image of Megatron-Bridge, not of NeMo"
        hint = "omit it, or --framework bridge"
        raise UsageError(message, hint=hint, code="release-without-bridge", key="release", value=release)
    chosen = Framework(name=NEMO, release=None, workload=workload)
    if framework != NEMO:
        usual = release or install.bridge_release
        chosen = _bridge(workload, size, gpu, usual, request.dtypes, asked=release is not None)
    if image is not None and own is not None:
        _check_image(image, own, chosen, workload.sizes[size], f"{workload.key} {size}")
    return chosen


def _check_image(image: str, own: str, chosen: Framework, size: Size, label: str) -> None:
    """Raise UsageError for NVIDIA's ``image`` of release ``own`` if it cannot train the job.

    The program would refuse it, but only after the job has waited for its nodes.
    """
    if chosen.name == BRIDGE and own != chosen.release:
        message = f"{label}: {image} is not the image of release {chosen.release} of Megatron-Bridge"
        has = own in releases()
        hint = f"--release {own}" if has else f"omit it; llmb has configurations for the images {', '.join(releases())}"
        raise UsageError(message, hint=hint, code="image-of-other-release", key="image", value=image)
    if chosen.name == NEMO and size.nemo is not None and (own in releases() or own[:5] > bridge.NEMO_UNTIL):
        message = f"{label}: {image} is for Megatron-Bridge, and this job trains with NeMo"
        hint = f"omit the image, or --framework bridge{f' --release {own}' if own in releases() else ''}"
        raise UsageError(message, hint=hint, code="image-of-other-framework", key="image", value=image)


def _default(workload: Workload, size: str, gpu: str, install: InstallConfig) -> str:
    if workload.bridge is None:
        return NEMO
    has_nemo = bool(workload.sizes[size].dtypes(gpu))
    if has_nemo and install.framework != BRIDGE:
        return NEMO
    return BRIDGE if releases_of(workload, size, gpu) else NEMO


def _bridge(
    workload: Workload, size: str, gpu: str, release: str | None, dtypes: Collection[str], *, asked: bool
) -> Framework:
    own = table_of(workload).sizes.get(size)
    if own is None:
        known = list(table_of(workload).sizes)
        hint = f"of {workload.key} it trains {', '.join(known)}" if known else "omit it"
        message = f"{workload.key} {size} has no configuration for Megatron-Bridge"
        raise UsageError(message, hint=hint, code="framework-unsupported", key="framework", value=BRIDGE)
    if asked and release not in own.rows:
        hint = suggest(str(release), list(own.rows))
        message = f"{workload.key} {size} has no release '{release}' of Megatron-Bridge"
        raise UsageError(message, hint=hint, code="release-unknown", key="release", value=release)
    here = releases_of(workload, size, gpu, dtypes) or releases_of(workload, size, gpu) or list(own.rows)
    if release is None or (not asked and release not in here):
        release = here[0]
    return Framework(name=BRIDGE, release=release, workload=with_bridge(workload, release))


def releases_of(workload: Workload, size: str, gpu: str, dtypes: Collection[str] = ()) -> list[str]:
    """The image releases in which Megatron-Bridge has ``size`` on ``gpu`` with all ``dtypes``, the newest first."""
    found = dict[str, set[str]]()
    for release, row in table_of(workload).of(size):
        if any(row.fits(gpu, dtype) for dtype in row.dtype):
            found.setdefault(release, set()).update(row.dtype)
    return [name for name, own in found.items() if all(bridge.spelled(dtype, own) in own for dtype in dtypes)]


def bridge_dtypes(workload: Workload, size: str, gpu: str) -> list[str]:
    rows = (row for _, row in table_of(workload).of(size))
    return list(dict.fromkeys(dtype for row in rows for dtype in row.dtype if row.fits(gpu, dtype)))


def discovered(
    workload: Workload, gpu: str, install: InstallConfig, framework: str | None = None, release: str | None = None
) -> Framework | None:
    """The one framework, and release, in which discovery looks for all sizes of ``workload``; None without any.

    Without ``framework`` and ``release``, Megatron-Bridge where the install was made with it alone, or where no other
    row is for the GPU type.
    """
    nemo = Framework(name=NEMO, release=None, workload=workload)
    asked = framework == BRIDGE or release is not None
    if framework == NEMO or (workload.bridge is None and not asked):
        return nemo
    sizes = (own for own in workload.sizes.values() if own.discover is None or gpu in own.discover)
    if not asked and install.framework != BRIDGE and any(own.dtypes(gpu) for own in sizes):
        return nemo
    table = table_of(workload)
    for name in filter(None, [release] if release is not None else [install.bridge_release, *releases()]):
        if any(own == name and gpu in row.gpu for size in table.sizes for own, row in table.of(size)):
            return Framework(name=BRIDGE, release=name, workload=with_bridge(workload, name))
    return None if asked else nemo


def sizes_on(workload: Workload, gpu: str) -> list[str]:
    own = workload.on(gpu)
    return [name for name in workload.sizes if name in own or bridge_dtypes(workload, name, gpu)]


def check_framework(name: str) -> None:
    """Raise UsageError for a framework that llmb does not know."""
    if name not in FRAMEWORKS:
        message = f"no framework '{name}'"
        raise UsageError(message, hint=suggest(name, FRAMEWORKS), code="framework-unknown", key="framework", value=name)
