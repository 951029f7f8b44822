# SPDX-License-Identifier: Apache-2.0
"""The identity of a pool's pods: one of their own, without any right and without a token."""

from headway_operator.build.metadata import metadata, sealed
from headway_operator.pool import Pool
from headway_operator.resources import SERVICEACCOUNTS, Manifest


def build_serviceaccount(pool: Pool, image: str) -> Manifest:
    return sealed(
        SERVICEACCOUNTS,
        {"metadata": metadata(pool, pool.name, image), "automountServiceAccountToken": False},
    )
