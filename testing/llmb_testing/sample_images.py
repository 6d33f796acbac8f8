# SPDX-License-Identifier: Apache-2.0
"""Makes container images for tests from lists of tar entries, including hostile ones, in the form
of registries.

layer = Layer(entries=(folder("etc"), file("etc/motd", b"hello"), symlink("motd", "etc/motd")))
made = make(SampleImage(layers=(layer,), config={"Env": ["A=1"]}))
digest = registry.push("team/tool", "1.0", made)
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["docker", "oci"]
Compression = Literal["gzip", "zstd", "none"]

MANIFESTS: dict[Kind, str] = {
    "docker": "application/vnd.docker.distribution.manifest.v2+json",
    "oci": "application/vnd.oci.image.manifest.v1+json",
}
INDEXES: dict[Kind, str] = {
    "docker": "application/vnd.docker.distribution.manifest.list.v2+json",
    "oci": "application/vnd.oci.image.index.v1+json",
}
_CONFIGS: dict[Kind, str] = {
    "docker": "application/vnd.docker.container.image.v1+json",
    "oci": "application/vnd.oci.image.config.v1+json",
}
_LAYERS: dict[Kind, dict[Compression, str]] = {
    "docker": {
        "gzip": "application/vnd.docker.image.rootfs.diff.tar.gzip",
        "zstd": "application/vnd.docker.image.rootfs.diff.tar.zstd",
        "none": "application/vnd.docker.image.rootfs.diff.tar",
    },
    "oci": {
        "gzip": "application/vnd.oci.image.layer.v1.tar+gzip",
        "zstd": "application/vnd.oci.image.layer.v1.tar+zstd",
        "none": "application/vnd.oci.image.layer.v1.tar",
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TarMember:
    """One entry of a layer, written to the tar file as it is: nothing is corrected or rejected."""

    name: str
    #: A constant of tarfile (REGTYPE, DIRTYPE, ...).
    type: bytes = tarfile.REGTYPE
    content: bytes = b""
    mode: int = 0o644
    uid: int = 0
    gid: int = 0
    mtime: int = 1_700_000_000
    target: str = ""
    device: tuple[int, int] = (0, 0)
    #: More PAX records, such as ``SCHILY.xattr.user.x`` for an extended attribute.
    pax: dict[str, str] = field(default_factory=dict)


def file(
    name: str, content: bytes = b"", *, mode: int = 0o644, pax: dict[str, str] | None = None
) -> TarMember:
    """Return a regular file."""
    return TarMember(name=name, content=content, mode=mode, pax=pax or {})


def folder(name: str, *, mode: int = 0o755) -> TarMember:
    """Return a directory."""
    return TarMember(name=name, type=tarfile.DIRTYPE, mode=mode)


def symlink(name: str, target: str) -> TarMember:
    """Return a symbolic link. ``target`` may be anything."""
    return TarMember(name=name, type=tarfile.SYMTYPE, mode=0o777, target=target)


def hardlink(name: str, target: str) -> TarMember:
    """Return a hard link to ``target``, which need not exist."""
    return TarMember(name=name, type=tarfile.LNKTYPE, target=target)


def whiteout(name: str) -> TarMember:
    """Return an entry that deletes ``name`` from the layers below."""
    above, slash, last = name.rpartition("/")
    return TarMember(name=f"{above}{slash}.wh.{last}", mode=0)


def opaque(name: str) -> TarMember:
    """Return an entry that deletes the contents of folder ``name`` in the layers below."""
    return TarMember(name=f"{name}/.wh..wh..opq", mode=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A layer: its entries in order, or ``tar``: ready bytes, which need not be a tar file."""

    entries: tuple[TarMember, ...] = ()
    tar: bytes | None = None
    compression: Compression = "gzip"
    format: int = tarfile.PAX_FORMAT


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleImage:
    """An image for one architecture, named as in registries (amd64, arm64)."""

    layers: tuple[Layer, ...]
    architecture: str = "amd64"
    variant: str | None = None
    #: Env, WorkingDir, Entrypoint, Cmd, User.
    config: dict[str, Any] = field(default_factory=dict)
    kind: Kind = "docker"


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A manifest and its blobs, as bytes."""

    media_type: str
    manifest: bytes
    blobs: dict[str, bytes] = field(default_factory=dict)
    platform: dict[str, str] = field(default_factory=dict)
    #: The manifests of an index.
    children: tuple[Made, ...] = ()

    @property
    def digest(self) -> str:
        """The manifest's digest."""
        return digest_of(self.manifest)

    @property
    def layers(self) -> list[dict[str, Any]]:
        """Descriptors of the layers: mediaType, digest, size."""
        layers: list[dict[str, Any]] = json.loads(self.manifest)["layers"]
        return layers


def digest_of(content: bytes) -> str:
    """``sha256:`` and the hexadecimal digest of ``content``."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def tar_of(layer: Layer) -> bytes:
    """Return the layer's tar file, uncompressed."""
    if layer.tar is not None:
        return layer.tar
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=layer.format) as archive:
        for entry in layer.entries:
            archive.addfile(_header(entry), io.BytesIO(entry.content))
    return out.getvalue()


def _header(entry: TarMember) -> tarfile.TarInfo:
    info = tarfile.TarInfo(entry.name)
    info.type, info.size, info.mode = entry.type, len(entry.content), entry.mode
    info.uid, info.gid, info.mtime, info.linkname = entry.uid, entry.gid, entry.mtime, entry.target
    info.devmajor, info.devminor = entry.device
    info.pax_headers = dict(entry.pax)
    return info


def compress(content: bytes, compression: Compression) -> bytes:
    """``content``, compressed. The same content gives the same bytes."""
    if compression == "gzip":
        return gzip.compress(content, 1, mtime=0)
    if compression == "zstd":
        import zstandard

        return zstandard.ZstdCompressor(level=1).compress(content)
    return content


def make(image: SampleImage) -> Made:
    """Return the image's manifest, config and layers."""
    tars = [tar_of(layer) for layer in image.layers]
    packed = [
        compress(tar, layer.compression) for tar, layer in zip(tars, image.layers, strict=True)
    ]
    platform = {"architecture": image.architecture, "os": "linux"}
    platform |= {"variant": image.variant} if image.variant else {}
    config = _json(
        {
            **platform,
            "config": image.config,
            "created": "2024-01-01T00:00:00Z",
            "rootfs": {"type": "layers", "diff_ids": [digest_of(tar) for tar in tars]},
            "history": [{"created": "2024-01-01T00:00:00Z", "created_by": "test"} for _ in tars],
        }
    )
    kinds = [_LAYERS[image.kind][layer.compression] for layer in image.layers]
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": MANIFESTS[image.kind],
            "config": _descriptor(_CONFIGS[image.kind], config),
            "layers": [_descriptor(kind, blob) for kind, blob in zip(kinds, packed, strict=True)],
        }
    )
    blobs = {digest_of(blob): blob for blob in [config, *packed]}
    return Made(media_type=MANIFESTS[image.kind], manifest=manifest, blobs=blobs, platform=platform)


def make_index(images: Sequence[SampleImage], *, kind: Kind = "docker") -> Made:
    """Return an index (docker: manifest list) of one image for each architecture."""
    children = tuple(make(image) for image in images)
    listed = [
        _descriptor(child.media_type, child.manifest) | {"platform": child.platform}
        for child in children
    ]
    content = _json({"schemaVersion": 2, "mediaType": INDEXES[kind], "manifests": listed})
    return Made(media_type=INDEXES[kind], manifest=content, children=children)


def _descriptor(media_type: str, content: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": digest_of(content), "size": len(content)}


def _json(data: Any) -> bytes:
    return json.dumps(data).encode()
