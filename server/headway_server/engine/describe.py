# SPDX-License-Identifier: Apache-2.0
"""An exception in one sentence, for the client and the log."""


def describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
