# SPDX-License-Identifier: Apache-2.0
"""The one error with which finding, fetching, converting or loading a model may end."""


class ModelLoadError(Exception):
    """The model cannot be served; the message is one sentence that says what to do."""
