# SPDX-License-Identifier: Apache-2.0
"""Which programs the cluster is made of, and where each of them comes from.

Each folder under `modules/` pins one program family. Its cache key is a hash of the folder's files
and of the build flags, so a change of Helm does not rebuild Kubernetes.
"""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from .failure import ClusterError

MODULES_DIR = Path(__file__).parent / "modules"


@dataclass(frozen=True)
class Module:
    """One go.mod and the commands built from it; the Go module `path` carries the version."""

    name: str
    path: str
    commands: tuple[str, ...]
    binaries: tuple[str, ...]
    version_variables: tuple[str, ...] = ()
    tags: str = ""

    @property
    def directory(self) -> Path:
        return MODULES_DIR / self.name

    def version(self) -> str:
        pinned = re.search(
            rf"^(?:require\s+|\t){re.escape(self.path)} (v\S+)",
            (self.directory / "go.mod").read_text(),
            re.MULTILINE,
        )
        if pinned is None:
            raise ClusterError(f"{self.directory / 'go.mod'} does not require {self.path}")
        return pinned.group(1)

    def build_flags(self) -> list[str]:
        version = self.version()
        major, minor = version.removeprefix("v").split(".")[:2]
        values = {"version": version, "major": major, "minor": minor}
        linked = ["-s", "-w", *(f"-X {v.format_map(values)}" for v in self.version_variables)]
        flags = ["-trimpath", "-buildvcs=false", "-ldflags", " ".join(linked)]
        return [*flags, "-tags", self.tags] if self.tags else flags

    def key(self) -> str:
        digest = hashlib.sha256()
        for path in sorted(self.directory.iterdir()):
            content = path.read_bytes()
            digest.update(f"{path.name} {len(content)}\n".encode() + content)
        digest.update("\n".join((*self.commands, *self.build_flags())).encode())
        return digest.hexdigest()[:16]


_KUBERNETES_COMMANDS = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
    "kubectl",
)
_CONTAINERD_COMMANDS = ("containerd", "containerd-shim-runc-v2", "ctr")

MODULES: dict[str, Module] = {
    module.name: module
    for module in (
        Module(
            name="kubernetes",
            path="k8s.io/kubernetes",
            commands=tuple(f"k8s.io/kubernetes/cmd/{c}" for c in _KUBERNETES_COMMANDS),
            binaries=_KUBERNETES_COMMANDS,
            version_variables=(
                "k8s.io/component-base/version.gitVersion={version}",
                "k8s.io/component-base/version.gitMajor={major}",
                "k8s.io/component-base/version.gitMinor={minor}",
            ),
        ),
        Module(
            name="etcd",
            path="go.etcd.io/etcd/server/v3",
            commands=("go.etcd.io/etcd/server/v3",),
            binaries=("etcd",),
        ),
        Module(
            name="containerd",
            path="github.com/containerd/containerd/v2",
            commands=tuple(
                f"github.com/containerd/containerd/v2/cmd/{c}" for c in _CONTAINERD_COMMANDS
            ),
            binaries=_CONTAINERD_COMMANDS,
            version_variables=("github.com/containerd/containerd/v2/version.Version={version}",),
            tags="no_btrfs no_zfs no_devmapper",
        ),
        Module(
            name="helm",
            path="helm.sh/helm/v4",
            commands=("helm.sh/helm/v4/cmd/helm",),
            binaries=("helm",),
            version_variables=("helm.sh/helm/v4/internal/version.version={version}",),
        ),
        Module(
            name="kube-router",
            path="github.com/cloudnativelabs/kube-router/v2",
            commands=("github.com/cloudnativelabs/kube-router/v2/cmd/kube-router",),
            binaries=("kube-router",),
            version_variables=(
                "github.com/cloudnativelabs/kube-router/v2/pkg/version.Version={version}",
            ),
        ),
        Module(
            name="coredns",
            path="github.com/coredns/coredns",
            commands=(".",),
            binaries=("coredns",),
        ),
        Module(
            name="kubeconform",
            path="github.com/yannh/kubeconform",
            commands=("github.com/yannh/kubeconform/cmd/kubeconform",),
            binaries=("kubeconform",),
            version_variables=("main.version={version}",),
        ),
    )
}


def find_module(name: str) -> Module:
    if name not in MODULES:
        raise ClusterError(f"there is no module {name}: the modules are {', '.join(MODULES)}")
    return MODULES[name]


def module_of(binary: str) -> Module:
    for module in MODULES.values():
        if binary in module.binaries:
            return module
    raise ClusterError(f"no module builds {binary}")
