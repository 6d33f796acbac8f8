# SPDX-License-Identifier: Apache-2.0
"""Every value that a hook takes or returns: workload, needs, job, launch, record, state, samples,
metrics, cluster type and configuration, with the formulas of windows and FLOPs. `api.py` re-exports
them.
"""
