# SPDX-License-Identifier: Apache-2.0
"""A step that has a container image: built into a file where the cluster wants one, else only looked up."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from llmb.errors import Fault, LlmbError, PreflightError
from llmb.text import typed
from llmb_installer.answers import ImageAnswers
from llmb_installer.step import Context, Estimate, Facts, Step

if TYPE_CHECKING:
    from llmb_installer import images, registry

FOR_PODS = "images are pulled by pods, with the cluster's own access, and not by this machine: see that they can"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageStep(Step):
    """Build the image ``reference`` for ``architecture`` as the file ``target``; None: see that it is there to use.

    ``settings`` say how; ``srun`` are its options where it is built on a node, None to build it here.
    """

    kind: ClassVar[str] = "image"
    reference: str
    architecture: str
    target: Path | None
    settings: ImageAnswers = field(default_factory=ImageAnswers)
    srun: tuple[str, ...] | None = None

    @property
    def name(self) -> str:
        """The reference itself."""
        return self.reference

    @property
    def title(self) -> str:
        """The file that it becomes."""
        if self.target is None:
            return f"Container image, used by its reference ({self.architecture})"
        return f"Container image for {self.architecture}, as {self.target.name}"

    @property
    def path(self) -> Path | None:
        """The file."""
        return self.target

    @property
    def digest(self) -> str:
        """Of what it is, not of how it is built."""
        return hashlib.sha256(f"image {self.reference} {self.architecture} {self.target}".encode()).hexdigest()

    def check(self, context: Context) -> Estimate:
        """What its registry says of it. Raises PreflightError."""
        found, faults = check_all([self], context)
        if faults:
            raise PreflightError(faults)
        return found[0][1]

    def build(self, context: Context) -> Facts:
        """Build the file, unless a whole one is there; or look the reference up, where none is wanted."""
        from llmb_installer import images

        if self.target is None:
            return self._look_up(context)
        facts = images.build(
            self.reference,
            self.architecture,
            self.target,
            _build_settings(self),
            environ=context.environ,
            home=context.home,
            progress=context.progress,
            log=context.log,
        )
        return {**typed.to_data(facts), "file": str(self.target)}

    def _look_up(self, context: Context) -> Facts:
        """The digest of the reference; a note where its registry gives this machine none, as it may give it to pods."""
        from llmb_installer import registry

        try:
            checked = registry.check_image(
                self.reference,
                self.architecture,
                environ=context.environ,
                home=context.home,
                settings=registry_settings(self.settings),
            )
        except LlmbError as error:
            return {"reference": self.reference, "digest": None, "note": f"{error.message}; {FOR_PODS}"}
        return {"reference": self.reference, "digest": checked.manifest.digest}


def check_all(steps: Sequence[ImageStep], context: Context) -> tuple[list[tuple[ImageStep, Estimate]], list[Fault]]:
    """Ask the registries of all images at once: what each will cost, and every fault."""
    from llmb_installer import registry

    wanted = [(step.reference, step.architecture) for step in steps if not _is_whole(step)]
    if not wanted:
        return [(step, Estimate(fetch=0, disk=0)) for step in steps], []
    try:
        found = registry.check_images(
            wanted,
            environ=context.environ,
            home=context.home,
            settings=registry_settings(steps[0].settings),
            say=context.progress.say,
        )
    except PreflightError as error:
        return [], error.faults
    except LlmbError as error:
        return [], [Fault(place="image", message=error.message, hint=error.hint)]
    checked = dict(zip(wanted, found, strict=True))
    costs = []
    for step in steps:
        image = checked.get((step.reference, step.architecture))
        there = image is None or step.target is None
        cost = Estimate(fetch=0, disk=0)
        if image is not None and not there:
            missing = _missing_bytes(step, image)
            cost = Estimate(fetch=missing, disk=image.image_bytes + missing)
        costs.append((step, cost))
    return costs, []


def _missing_bytes(step: ImageStep, image: registry.Checked) -> int:
    """What is still to be fetched: an attempt that was cut off has left its layers."""
    from llmb_installer.images.cache import cache_folder, missing_bytes

    assert step.target is not None, "an image used by reference costs nothing"
    layers = sum({layer.digest: layer.size for layer in image.manifest.layers}.values())
    left = missing_bytes(image.manifest, cache_folder(step.target, _build_settings(step)))
    return image.compressed_bytes - layers + left


def _is_whole(step: ImageStep) -> bool:
    """Whether its file is there already, by a glance; building it will look closer."""
    from llmb_installer import images

    return step.target is not None and step.target.is_file() and not images.check(step.target, deep=False)


def _build_settings(step: ImageStep) -> images.BuildSettings:
    from llmb_installer import images

    chosen = step.settings
    return images.BuildSettings(
        builder=chosen.builder,
        via="here" if step.srun is None else "srun",
        srun_args=step.srun or (),
        compression=chosen.compression,
        level=chosen.level,
        processors=chosen.processors,
        keep_layers=chosen.keep_layers,
        registry=registry_settings(chosen),
    )


def registry_settings(chosen: ImageAnswers) -> registry.RegistrySettings:
    """What the answers say of registries."""
    from llmb_installer import registry

    return registry.RegistrySettings(
        insecure_registries=chosen.insecure_registries,
        registry_mirrors=chosen.registry_mirrors,
        ca_bundle=chosen.ca_bundle,
    )


def is_there(name: str, facts: Facts, install: Path) -> bool:
    """Whether its file is there and as long as it was; always, where it is used by reference."""
    if "file" not in facts:
        return True
    path = Path(str(facts["file"]))
    return path.is_file() and path.stat().st_size == facts.get("size", path.stat().st_size)


def verify(name: str, facts: Facts, install: Path, *, deep: bool) -> list[Fault]:
    """What is wrong with its file; ``deep`` reads all of it."""
    from llmb_installer import images

    if "file" not in facts:
        return []
    path = Path(str(facts["file"]))
    return [
        Fault(message=f"{path}: {text}", code="image-damaged", value=str(path))
        for text in images.check(path, deep=deep)
    ]


def remove(name: str, facts: Facts, install: Path) -> None:
    """Take the file and its record away."""
    if "file" in facts:
        path = Path(str(facts["file"]))
        for one in (path, path.with_name(f"{path.name}.json")):
            one.unlink(missing_ok=True)


def describe(name: str, facts: Facts) -> str:
    """Its file, or its digest where it is used by reference."""
    if "file" not in facts:
        return f"by reference, {facts.get('digest') or 'which its registry did not show to this machine'}"
    from llmb_installer.registry.room import size

    found = facts.get("size")
    return Path(str(facts["file"])).name + (f", {size(found)}" if isinstance(found, int) else "")
