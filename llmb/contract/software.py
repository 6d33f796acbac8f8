# SPDX-License-Identifier: Apache-2.0
"""The software of a run, as it was when the run was submitted."""

from dataclasses import field

from llmb.core.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Software:
    """The software of a run, besides its settings. Runs with different software are no repeats."""

    #: The plugin of its workload, as ``distribution:entry``.
    plugin: str | None = None
    #: The version of its distribution, or a digest of the file that it is.
    plugin_version: str | None = None
    #: Of the programs, scripts and commands that the run starts, and of the programs it stages.
    program_sha256: str | None = None
    #: Of its container image, as the installer recorded it.
    image_digest: str | None = None
    #: The SHA-256 of the lock file of its Python environment.
    environment_lock: str | None = None
    #: None if it trains no model.
    framework: str | None = None
    #: The release of Megatron-Bridge's image.
    release: str | None = None
    #: The version of the framework's library in the image, as the installer found it. The image's
    #: digest already tells runs apart.
    framework_version: str | None = field(default=None, compare=False)
    #: The commit of Megatron-Bridge in the image, likewise.
    framework_commit: str | None = field(default=None, compare=False)

    @property
    def words(self) -> dict[str, str]:
        """Return what is known of it by name, without framework and release. Digests are short."""
        values = {name: getattr(self, name) for name in _NAMES}
        return {
            name: text[:_DIGITS] if name in _DIGESTS else text
            for name, text in values.items()
            if text is not None
        }


_DIGESTS = ("program_sha256", "image_digest", "environment_lock")
_NAMES = ("plugin", "plugin_version", *_DIGESTS)
_DIGITS = 19  # of a digest, perhaps after ``sha256:``
