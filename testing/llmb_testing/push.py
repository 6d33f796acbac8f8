# SPDX-License-Identifier: Apache-2.0
"""Puts a made image into a registry, by the registry's own API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmb_testing.sample_images import Made

if TYPE_CHECKING:
    import httpx


def push(client: httpx.Client, repository: str, tag: str, made: Made) -> None:
    """Put ``made`` and its children under ``repository:tag``. Raises httpx.HTTPStatusError when it is refused."""
    import httpx

    for child in made.children:
        push(client, repository, child.digest, child)
    for digest, blob in made.blobs.items():
        start = client.post(f"/v2/{repository}/blobs/uploads/").raise_for_status()
        address = httpx.URL(start.headers["Location"]).copy_merge_params({"digest": digest})
        client.put(address, content=blob).raise_for_status()
    headers = {"Content-Type": made.media_type}
    client.put(f"/v2/{repository}/manifests/{tag}", content=made.manifest, headers=headers).raise_for_status()
