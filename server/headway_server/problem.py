# SPDX-License-Identifier: Apache-2.0
"""A request that is not served, in words a client can act on.

The text is shown to clients as it stands: it names a limit, the value and the bound, and never
holds an exception's text, a path or anything of another request.
"""


class Problem(Exception):
    """`status` is the HTTP status; `param` the offending parameter; `retry_after` in seconds."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.retry_after = retry_after
