# SPDX-License-Identifier: Apache-2.0
"""Which targets of a direct launch mean the proxy of their size, as in NVIDIA's documents. Pure."""

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import replace

from llmb.config import ClusterConfig
from llmb.errors import UsageError
from llmb.planning.plan import framework_of, resolve
from llmb.runs.job import JobRequest
from llmb.text.names import listed
from llmb.workload.bridge import NEMO
from llmb.workload.spec import Workload


def with_proxies(
    requests: Iterable[JobRequest], workloads: Mapping[str, Workload], config: ClusterConfig, gpu_type: str
) -> tuple[tuple[JobRequest, ...], tuple[str, ...]]:
    """The requests, those at a scale that only the size's proxy has changed to the proxy; and a note for each change.

    Source: release 25.04, where MODEL_SIZE=405b at 32, 64 and 128 H100 trains fewer layers.
    """
    found: list[JobRequest] = []
    notes: dict[str, None] = {}
    for request in requests:
        scales = _proxy_scales(request, workloads, config, gpu_type)
        for is_proxy, group in itertools.groupby(request.scales, scales.__contains__):
            chosen = tuple(group)
            found.append(replace(request, scales=chosen, proxy=request.proxy or is_proxy))
            if is_proxy:
                workload, size = resolve(found[-1], workloads, gpu_type, config.rows_for(gpu_type))
                at = listed([str(scale) for scale in chosen])
                notes[
                    f"{workload.key} at {at} GPUs is {size}, with fewer layers, as in NVIDIA's release 25.04; "
                    "--force trains the whole model"
                ] = None
        if not request.scales:
            found.append(request)
    return tuple(found), tuple(notes)


def _proxy_scales(
    request: JobRequest, workloads: Mapping[str, Workload], config: ClusterConfig, gpu_type: str
) -> set[int]:
    """The scales of ``request`` that its size's proxy was tested at, and the size itself was not."""
    if request.proxy or request.switches.strong_scaling or gpu_type not in (config.gpu_type, *config.gpu_types):
        return set()
    rows = config.rows_for(gpu_type)
    try:
        workload, name = resolve(request, workloads, gpu_type, rows)
        if framework_of(request, workload, name, config, gpu_type).name != NEMO:
            return set()
    except UsageError:  # the plan reports it, with every other fault
        return set()
    size = workload.sizes[name]
    if size.proxy is None:
        return set()
    dtypes = request.dtypes or (workload.default_dtype,)
    own = {scale for dtype in dtypes for scale in size.scales(rows, dtype, strong=False)}
    proxies = [set(workload.sizes[size.proxy].scales(rows, dtype, strong=False)) for dtype in dtypes]
    return set.intersection(*proxies).intersection(request.scales) - own
