# SPDX-License-Identifier: Apache-2.0
"""How the values of the flags are read: a wrong one is named, with what would be right."""

import argparse


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def positive_list(text: str) -> tuple[int, ...]:
    """`1,8,32` in rising order, without repetition."""
    return tuple(sorted({positive(part.strip()) for part in text.split(",")}))
