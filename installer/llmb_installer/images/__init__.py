# SPDX-License-Identifier: Apache-2.0
"""The steps for container images; sqshpull, a library of its own, looks them up and builds them."""
