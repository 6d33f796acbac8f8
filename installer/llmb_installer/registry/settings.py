# SPDX-License-Identifier: Apache-2.0
"""What a site may say about registries: mirrors, those without TLS, and whom to trust."""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySettings:
    """Keys of the installer's answers.

    ``insecure_registries``: hosts that may be asked without TLS; ``registry_mirrors``: for a registry the one to ask in
    its place, ``{docker.io: mirror.example.org/hub}``; ``ca_bundle``: certificates to trust besides the system's.
    """

    insecure_registries: tuple[str, ...] = ()
    registry_mirrors: dict[str, str] = field(default_factory=dict)
    ca_bundle: Path | None = None
