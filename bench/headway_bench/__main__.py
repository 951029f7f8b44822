# SPDX-License-Identifier: Apache-2.0
"""`headway-bench`: how fast an endpoint, or the engine itself, is; one module a sub-command."""

import argparse
import sys

from headway_bench.engine.command import add_engine
from headway_bench.run_command import add_run


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="headway-bench",
        description="Load on any OpenAI endpoint, or the engine against its peers on this machine.",
    )
    commands = parser.add_subparsers(required=True)
    add_run(commands)
    add_engine(commands)
    options = parser.parse_args(argv)
    code: int = options.execute(options)
    return code


if __name__ == "__main__":
    sys.exit(main())
