# SPDX-License-Identifier: Apache-2.0
"""The programs that compute nodes run: started by name, importing nothing of the runtime."""
