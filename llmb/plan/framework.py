# SPDX-License-Identifier: Apache-2.0
"""Chooses an entry's framework and its release, by default the install's."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from llmb.contract.entry import JobEntry
from llmb.contract.rows import ANY_GPU
from llmb.contract.schema import ClusterConfig
from llmb.contract.spec import NEMO, Framework, RowsBySize, Size, Workload
from llmb.core.names import suggest
from llmb.core.values import dataclass
from llmb.core.versions import minor_of
from llmb.errors import UsageError
from llmb.plan.images import recorded_contents
from llmb.plan.installed import Installed, installed, releases_of_image


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The framework of a job, its release, and the workload with the rows for them."""

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

    An ``image`` of a release selects that release. By default it is the framework of workload.yaml,
    but another one that brings rows if the installation has that alone, or if the size has no other
    row for the GPU type. The release is an installed one, else the newest that has all dtypes.
    Raises UsageError for a framework or a release that the size does not have, and for an image
    that is known to have another library.
    """
    gpu, install = config.rows_for(gpu_type), installed(workload, config)
    settings, own = entry.settings, workload.framework
    name, release, image = settings.framework, settings.release, settings.image
    of_image = {} if image is None else _releases_of(image, workload, config)
    if release is None and image is not None:
        release = release_of_image(image, workload, config, name or None, size)
    note = None
    if not name:
        name = (
            _default(workload, size, gpu, install)
            if release is None
            else _with_release(workload, release)
        )
        is_decided = install.framework is not None or config.traits.trains == "torch"
        if name == own and image is None and not is_decided:
            note = _other_framework(workload, size, gpu)
    if name == own:
        chosen = _own(workload, size, release, note)
    else:
        chosen = _brought(workload, name, size, gpu, release, entry.dtypes, install.releases)
    if image is not None and of_image:
        _check_image(image, of_image, chosen, workload.sizes[size], f"{workload.key} {size}")
    if chosen.release is not None:
        _check_library(image, chosen, chosen.release, config)
    return chosen


def _own(workload: Workload, size: str, release: str | None, note: str | None) -> Choice:
    """Return the framework of workload.yaml, which may have releases."""
    framework = workload.frameworks.get(workload.framework)
    names = () if framework is None else tuple(framework.releases)
    if framework is not None and names and (release is not None or workload.image is None):
        release = release or names[0]
        if release not in names:
            raise _unknown_release(framework, workload, size, release, names)
        return Choice(
            name=framework.name,
            release=release,
            workload=replace(workload, image=framework.releases[release].image),
            note=note,
        )
    if release is not None:
        titles = [
            framework.title for framework in workload.frameworks.values() if framework.releases
        ]
        names_with_releases = [
            name for name, framework in workload.frameworks.items() if framework.releases
        ]
        raise UsageError(
            f"{workload.key} {size}: 'release' selects an image of {' or '.join(titles)}, not of"
            f" {title_of(workload.framework, workload)}",
            hint=f"omit it, or --framework {' or '.join(names_with_releases)}",
            code="release-without-bridge",
            key="release",
            value=release,
        )
    return Choice(name=workload.framework, release=None, workload=workload, note=note)


def _with_release(workload: Workload, release: str) -> str:
    """Return the framework that ``release`` selects."""
    candidates = [framework for framework, _ in workload.brought()]
    framework_of_workload = workload.frameworks.get(workload.framework)
    if framework_of_workload is not None and framework_of_workload.releases:
        candidates.insert(0, framework_of_workload)
    candidates = candidates or [
        framework for framework in workload.frameworks.values() if framework.releases
    ]
    has_it = (framework.name for framework in candidates if release in framework.releases)
    return next(has_it, candidates[0].name if candidates else workload.framework)


def _unknown_release(
    framework: Framework,
    workload: Workload,
    size: str,
    release: str,
    releases_known: Collection[str],
) -> UsageError:
    message = f"{workload.key} {size} has no release '{release}' of {framework.title}"
    hint = suggest(release, releases_known)
    return UsageError(message, hint=hint, code="release-unknown", key="release", value=release)


def release_of_image(
    image: str,
    workload: Workload,
    config: ClusterConfig,
    framework: str | None = None,
    size: str | None = None,
) -> str | None:
    """Return the release of ``image`` by which a workload trains in it, or None.

    With one of the frameworks that bring rows, or with ``framework``; for ``size``, or any.
    """
    of_image = _releases_of(image, workload, config)
    return next(
        (
            of_image[brought.name]
            for brought, rows in workload.brought()
            if framework in (None, brought.name)
            and size in (None, *rows)
            and of_image.get(brought.name) in brought.releases
        ),
        None,
    )


def _releases_of(image: str, workload: Workload, config: ClusterConfig) -> Mapping[str, str]:
    """Return the release of each framework that ``image`` contains, as far as it is known.

    It is known by the image's name, or else by the library that is recorded in it.
    """
    if named := releases_of_image(image, workload.frameworks.values()):
        return named
    recorded = {
        framework.name: _release_with(framework, _library_in(image, framework, config))
        for framework in workload.frameworks.values()
        if framework.releases
    }
    return {name: release for name, release in recorded.items() if release is not None}


def _release_with(framework: Framework, version: str | None) -> str | None:
    """Return the newest release whose library has the same minor version, or None."""
    if version is None:
        return None
    return next(
        (
            name
            for name, release in framework.releases.items()
            if minor_of(release.libraries.get(framework.library, "")) == minor_of(version)
        ),
        None,
    )


def _library_in(image: str, framework: Framework, config: ClusterConfig) -> str | None:
    """Return the version of the framework's library in ``image``, or None if it is not recorded."""
    if not framework.library or not config.traits.uses_images or config.traits.pulls_images:
        return None
    return recorded_contents(image, config).get(framework.library)


def _check_library(image: str | None, chosen: Choice, release: str, config: ClusterConfig) -> None:
    """Raise UsageError if the image's library is not that of the release.

    The program would refuse it, but only after the job has waited for its nodes.
    """
    framework = chosen.workload.frameworks[chosen.name]
    image = image or framework.releases[release].image
    version = _library_in(image, framework, config)
    required = framework.releases[release].libraries.get(framework.library)
    if version is None or required is None or minor_of(version) == minor_of(required):
        return
    other = _release_with(framework, version)
    versions = [known.libraries.get(framework.library, "") for known in framework.releases.values()]
    hint = (
        f"--release {other} --image {image}"
        if other is not None
        else f"llmb has configurations for {framework.library} {', '.join(versions)}"
    )
    raise UsageError(
        f"{image} contains {framework.library} {version}, and release {release} is for {required}",
        hint=hint,
        code="image-of-other-library",
        key="image",
        value=image,
    )


def _check_image(
    image: str, releases: Mapping[str, str], chosen: Choice, size: Size, label: str
) -> None:
    """Raise UsageError for an ``image`` of other ``releases`` if it cannot train the job.

    The program would refuse it, but only after the job has waited for its nodes.
    """
    frameworks = chosen.workload.frameworks
    title = title_of(chosen.name, chosen.workload)
    if chosen.release is not None and releases.get(chosen.name) != chosen.release:
        known, release = frameworks[chosen.name].releases, releases.get(chosen.name)
        hint = f"omit it; llmb has configurations for the images {', '.join(known)}"
        raise UsageError(
            f"{label}: {image} is not the image of release {chosen.release} of {title}",
            hint=f"--release {release}" if release in known else hint,
            code="image-of-other-release",
            key="image",
            value=image,
        )
    if chosen.name not in releases and size.nemo is not None:
        name, release = next(iter(releases.items()))
        with_release = f" --release {release}" if release in frameworks[name].releases else ""
        raise UsageError(
            f"{label}: {image} is for {frameworks[name].title}, and this job trains with {title}",
            hint=f"omit the image, or --framework {name}{with_release}",
            code="image-of-other-framework",
            key="image",
            value=image,
        )


def _default(workload: Workload, size: str, gpu: str, install: Installed) -> str:
    has_rows = bool(workload.sizes[size].dtypes(gpu))
    for framework, rows in workload.brought():
        is_needed = not has_rows or install.framework == framework.name
        if is_needed and releases_of(framework, rows, size, gpu):
            return framework.name
    return workload.framework


def _other_framework(workload: Workload, size: str, gpu: str) -> str | None:
    for framework, rows in workload.brought():
        if available := releases_of(framework, rows, size, gpu):
            title = title_of(workload.framework, workload)
            return (
                f"{workload.key} {size} trains with {title}; {framework.title} {available[0]} has"
                f" it too: --framework {framework.name}"
            )
    return None


def _brought(
    workload: Workload,
    name: str,
    size: str,
    gpu: str,
    release: str | None,
    dtypes: Collection[str],
    installed_releases: Sequence[str],
) -> Choice:
    """Return the framework ``name``, which brings rows for the size. Raises UsageError."""
    check_framework(name, [*workload.frameworks])
    framework = workload.frameworks[name]
    rows = framework.rows_for(workload)
    if size not in rows:
        hint = f"of {workload.key} it trains {', '.join(rows)}" if rows else "omit it"
        message = f"{workload.key} {size} has no configuration for {framework.title}"
        raise UsageError(
            message, hint=hint, code="framework-unsupported", key="framework", value=name
        )
    if release is not None and release not in rows[size]:
        raise _unknown_release(framework, workload, size, release, list(rows[size]))
    usable = (
        releases_of(framework, rows, size, gpu, dtypes)
        or releases_of(framework, rows, size, gpu)
        or list(rows[size])
    )
    if release is None:
        release = next((known for known in installed_releases if known in usable), usable[0])
    return Choice(name=name, release=release, workload=framework.of_release(workload, release))


def releases_of(
    framework: Framework, rows: RowsBySize, size: str, gpu: str, dtypes: Collection[str] = ()
) -> list[str]:
    """Return the releases that have ``size`` on ``gpu`` with all ``dtypes``, newest first."""
    by_release = {
        release: {
            dtype for row in release_rows if {gpu, ANY_GPU} & {*row.gpu} for dtype in row.dtype
        }
        for release, release_rows in rows.get(size, {}).items()
    }
    return [
        name
        for name, available in by_release.items()
        if available
        and all(
            not available.isdisjoint((dtype, *framework.spellings.get(dtype, ())))
            for dtype in dtypes
        )
    ]


def brought_dtypes(workload: Workload, size: str, gpu: str) -> dict[str, list[str]]:
    """Return the dtypes of the rows that frameworks bring for ``size`` on ``gpu``, by framework."""
    dtypes = dict[str, list[str]]()
    for framework, rows in workload.brought():
        for row in (row for of_release in rows.get(size, {}).values() for row in of_release):
            words = [dtype for dtype in row.dtype if row.fits(gpu, dtype)]
            if words:
                listed = dtypes.setdefault(framework.name, [])
                listed += [word for word in words if word not in listed]
    return dtypes


def brought_sizes(workload: Workload, gpu: str) -> dict[str, list[str]]:
    """Return the sizes with brought rows for the GPU type itself, by framework."""
    sizes = {
        framework.name: [
            name
            for name, by_release in rows.items()
            if any(gpu in row.gpu for size_rows in by_release.values() for row in size_rows)
        ]
        for framework, rows in workload.brought()
    }
    return {name: names for name, names in sizes.items() if names}


def discovered(
    workload: Workload,
    gpu: str,
    install: Installed,
    framework: str | None = None,
    release: str | None = None,
) -> Choice | None:
    """Return the one framework, and release, of all discovered sizes, or None without any.

    Without ``framework`` and ``release``, it is another one than that of workload.yaml if the
    installation has it alone, or if no other row is for the GPU type.
    """
    default_choice = Choice(name=workload.framework, release=None, workload=workload)
    is_chosen = framework not in (None, default_choice.name) or release is not None
    if framework == default_choice.name:
        return default_choice
    has_rows = any(
        size.dtypes(gpu)
        for size in workload.sizes.values()
        if size.discover is None or gpu in size.discover
    )
    for candidate, rows in workload.brought():
        is_needed = is_chosen or install.framework == candidate.name or not has_rows
        if not is_needed or framework not in (None, candidate.name):
            continue
        for name in [release] if release is not None else [*install.releases, *candidate.releases]:
            of_release = (by_release.get(name, ()) for by_release in rows.values())
            if any(gpu in row.gpu for size_rows in of_release for row in size_rows):
                trained = candidate.of_release(workload, name)
                return Choice(name=candidate.name, release=name, workload=trained)
    return None if is_chosen else default_choice


def sizes_on(workload: Workload, gpu: str) -> list[str]:
    """Return the sizes that have rows on ``gpu``, of any framework."""
    sizes = workload.on(gpu)
    return [name for name in workload.sizes if name in sizes or brought_dtypes(workload, name, gpu)]


def title_of(name: str, workload: Workload) -> str:
    """Return the name of a framework for people."""
    return workload.frameworks[name].title if name in workload.frameworks else name


def frameworks_in(workloads: Iterable[Workload]) -> list[str]:
    """Return the names of the frameworks that ``workloads`` name, or that bring rows for some."""
    names = {NEMO: None}
    for workload in workloads:
        brings = (
            framework.name
            for framework in workload.frameworks.values()
            if framework.rows is not None
        )
        names |= dict.fromkeys((workload.framework, *brings))
    return list(names)


def check_release(name: str, workloads: Iterable[Workload]) -> None:
    """Raise UsageError for a release that no framework of ``workloads`` has."""
    frameworks = {
        framework.name: framework
        for workload in workloads
        for framework in workload.frameworks.values()
        if framework.releases
    }
    known_releases = [
        release for framework in frameworks.values() for release in framework.releases
    ]
    if name in known_releases:
        return
    titles = " or ".join(framework.title for framework in frameworks.values())
    raise UsageError(
        f"no release '{name}' with {titles}",
        hint=suggest(name, known_releases),
        code="release-unknown",
        key="release",
        value=name,
    )


def image_of(workload: Workload, framework: str, release: str | None) -> str | None:
    """Return the image of a job that selects none: of its release, or the workload's own."""
    declared = workload.frameworks.get(framework)
    return (
        workload.image if declared is None or release is None else declared.releases[release].image
    )


def check_framework(name: str, frameworks: Collection[str]) -> None:
    """Raise UsageError for a framework that is none of ``frameworks``."""
    if name not in frameworks:
        raise UsageError(
            f"no framework '{name}'",
            hint=suggest(name, frameworks),
            code="framework-unknown",
            key="framework",
            value=name,
        )
