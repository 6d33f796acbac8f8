# SPDX-License-Identifier: Apache-2.0
"""For cluster types that a web API controls: a client, and requests that are repeated."""

from llmb.core import backoff, http

#: Return an httpx.Client with this machine's proxies and certificates.
http_client = http.make_client
#: Return the error for a failed connection: host, proxy, reason and fix.
connection_fault = http.unreachable
#: Return True if another attempt at a failed connection may succeed.
connection_may_recover = http.may_pass
#: Call a function again, with growing pauses, as long as it raises TryAgainError.
with_retries = backoff.persist
#: An attempt failed with ``fault``, and another may succeed.
TryAgainError = backoff.AskAgain
#: Return the seconds of a Retry-After header, or None.
retry_after = backoff.retry_after
