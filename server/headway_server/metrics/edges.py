# SPDX-License-Identifier: Apache-2.0
"""The ordinary edges of our histograms. Objectives add their own to those of latencies."""

# Seconds. The thresholds of the built-in classes and their halves and doubles are among the edges.
WAIT = (
    0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.25, 0.375, 0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 8, 15, 30, 60,
    120, 300, 900,
)  # fmt: skip
GAP = (
    0.002, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.12, 0.16,
    0.2, 0.3, 0.5, 1, 2, 5, 10,
)  # fmt: skip
# Tokens.
LENGTH = (
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 200_000,
    500_000, 1_000_000,
)  # fmt: skip
