# SPDX-License-Identifier: Apache-2.0
"""The one error a user of the cluster sees: a sentence that says what to do next."""


class ClusterError(Exception):
    """Printed as it is, without a traceback; the command exits with status 2."""
