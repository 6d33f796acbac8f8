# SPDX-License-Identifier: Apache-2.0
"""Files of a model hub: the client that fetches them, and the step that has them on disk."""
