# SPDX-License-Identifier: Apache-2.0
"""The command line: `python -m cluster up|down|status|load-image|packages|build|bin`."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from . import binaries, containerd, lifecycle, packages, status
from .access import foreign_kubeconfig
from .catalogue import MODULES
from .console import say
from .failure import ClusterError
from .kubectl import kubectl
from .state import state

DESCRIPTION = """\
A real Kubernetes with one node on this machine: no registry, no virtual machine.

The programs are built once from Go modules, into ~/.cache/headway (or $HEADWAY_CACHE). The cluster
keeps what it knows in /var/lib/headway-cluster (or $HEADWAY_CLUSTER_DIR). Where $KUBECONFIG names a
cluster of yours, that one is used and nothing is started.
"""
DEFAULT_GPUS = 8


def main() -> int:
    arguments = _parser().parse_args()
    command: Callable[[argparse.Namespace], int] = arguments.command
    try:
        return command(arguments)
    except ClusterError as error:
        print(f"cluster: {error}", file=sys.stderr)
        return 2


def _up(arguments: argparse.Namespace) -> int:
    own = state()
    foreign = foreign_kubeconfig(own)
    if foreign is not None:
        version = kubectl(foreign, "version")
        say(f"using the cluster of KUBECONFIG={foreign}; nothing to start")
        say(version.splitlines()[-1])
        return 0
    lifecycle.up(own, arguments.gpus, arguments.audit)
    print(f"export KUBECONFIG={own.kubeconfig}")
    return 0


def _down(arguments: argparse.Namespace) -> int:
    lifecycle.down(state(), arguments.purge)
    return 0


def _status(arguments: argparse.Namespace) -> int:
    return 0 if status.show(state()) else 1


def _load_image(arguments: argparse.Namespace) -> int:
    own = state()
    foreign = foreign_kubeconfig(own)
    if foreign is not None:
        raise ClusterError(
            f"the cluster of KUBECONFIG={foreign} pulls its own images: push them to its registry"
        )
    if not containerd.is_serving(own):
        raise ClusterError("no cluster is running: start one with `python -m cluster up`")
    for source in arguments.source:
        containerd.load(own, source, say)
    return 0


def _packages(_: argparse.Namespace) -> int:
    packages.install_missing(say)
    return 0


def _build(arguments: argparse.Namespace) -> int:
    binaries.build(arguments.module or MODULES, say)
    return 0


def _bin(arguments: argparse.Namespace) -> int:
    names = arguments.module or list(MODULES)
    binaries.build(names, lambda line: print(line, file=sys.stderr))
    print(binaries.path_dir(names))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cluster",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    up = commands.add_parser("up", help="start the cluster, or say that it runs already")
    up.add_argument(
        "--gpus",
        type=int,
        default=DEFAULT_GPUS,
        help="fake nvidia.com/gpu devices on the node (default %(default)s)",
    )
    up.add_argument("--audit", action="store_true", help="log every request to logs/audit.jsonl")
    up.set_defaults(command=_up)

    down = commands.add_parser("down", help="end the cluster; imported images are kept")
    down.add_argument("--purge", action="store_true", help="remove the imported images too")
    down.set_defaults(command=_down)

    shown = commands.add_parser("status", help="show the parts; exit 0 when all work, else 1")
    shown.set_defaults(command=_status)

    load = commands.add_parser("load-image", help="take images in from OCI archives or folders")
    load.add_argument("source", nargs="+", type=Path, metavar="ARCHIVE_OR_FOLDER")
    load.set_defaults(command=_load_image)

    packaged = commands.add_parser("packages", help="install the Debian packages that are missing")
    packaged.set_defaults(command=_packages)

    for name, command, text in (
        ("build", _build, "build the programs that are not in the cache yet"),
        ("bin", _bin, "print a folder with all programs, to put on PATH; builds what is missing"),
    ):
        added = commands.add_parser(name, help=text)
        added.add_argument(
            "module",
            nargs="*",
            metavar="MODULE",
            help=f"only these: {', '.join(MODULES)} (default: all)",
        )
        added.set_defaults(command=command)
    return parser


if __name__ == "__main__":
    sys.exit(main())
