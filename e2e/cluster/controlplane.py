# SPDX-License-Identifier: Apache-2.0
"""etcd, the API server and the controllers, as programs to start.

`control_plane` runs them for a test: free ports, one directory, nothing left behind, and no nodes.
The full cluster starts the same programs at fixed addresses.
"""

import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from socket import create_server
from subprocess import Popen

from . import addresses
from .binaries import binary
from .certificates import Authority
from .failure import ClusterError
from .processes import Program, log_tail, running, wait_until

FEATURE_GATES = "ImageVolume=true"
START_SECONDS = 120.0
START_TRIES = 3


@dataclass(frozen=True)
class ControlPlane:
    """A running API server. `kubeconfig` holds a cluster administrator's certificate."""

    directory: Path
    kubeconfig: Path
    url: str


@dataclass(frozen=True)
class Settings:
    """Where the control plane listens and what it admits.

    `nodes` says whether kubelets will join: then the API server presents itself as a Service and
    every pod needs its service account, which only the controller manager creates.
    """

    directory: Path
    address: str
    port: int
    controllers: bool = True
    nodes: bool = True
    audit: bool = False

    @property
    def url(self) -> str:
        return f"https://{self.address}:{self.port}"

    @property
    def pki(self) -> Path:
        return self.directory / "pki"

    @property
    def audit_log(self) -> Path:
        return self.directory / "logs" / "audit.jsonl"

    def kubeconfig_of(self, component: str) -> Path:
        return self.pki / f"{component}.kubeconfig"


@contextmanager
def control_plane(directory: Path, controller_manager: bool = False) -> Iterator[ControlPlane]:
    """An API server of one's own, ready to use, for the length of the block.

    Several may run side by side. It ends with the caller, even when that is killed.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        for attempt in range(1, START_TRIES + 1):
            settings = Settings(
                directory.resolve(), "127.0.0.1", free_port(), controller_manager, nodes=False
            )
            try:
                stack.enter_context(_started(settings))
                break
            except PortTaken:
                if attempt == START_TRIES:
                    raise
        yield ControlPlane(settings.directory, settings.kubeconfig_of("admin"), settings.url)


@contextmanager
def _started(settings: Settings) -> Iterator[None]:
    write_credentials(settings)
    with running(etcd(settings)), running(api_server(settings)) as server:
        wait_for_api_server(settings, server)
        if not settings.controllers:
            yield
            return
        with running(controller_manager(settings)):
            yield


class PortTaken(ClusterError):
    """Another process took the free port between its choice and its use."""


def free_port() -> int:
    with create_server(("127.0.0.1", 0)) as chosen:
        return int(chosen.getsockname()[1])


def write_credentials(settings: Settings) -> Authority:
    """The authority, the API server's certificates, and a kubeconfig for each component."""
    authority = Authority(settings.pki)
    service = ("kubernetes", "kubernetes.default", "kubernetes.default.svc")
    hosts = (settings.address, "localhost", "127.0.0.1", addresses.API_SERVICE, *service)
    authority.issue("apiserver", "kube-apiserver", hosts=hosts)
    authority.issue("apiserver-kubelet-client", "kube-apiserver", "system:masters")
    authority.signing_key("service-account")
    authority.issue("admin", "headway-admin", "system:masters")
    for component in ("controller-manager", "scheduler"):
        authority.issue(component, f"system:kube-{component}")
    for component in ("admin", "controller-manager", "scheduler"):
        authority.kubeconfig(settings.kubeconfig_of(component), component, settings.url)
    return authority


def etcd(settings: Settings) -> Program:
    """Listens on Unix sockets in its own folder: no port, and no reader but the owner."""
    client, peer = "unix://etcd.sock:0", "unix://etcd-peer.sock:0"
    return Program(
        "etcd",
        (
            str(binary("etcd")),
            f"--data-dir={settings.directory / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        ),
        settings.directory,
    )


def api_server(settings: Settings) -> Program:
    pki = settings.pki
    flags = {
        "etcd-servers": "unix://etcd.sock:0",
        "bind-address": settings.address,
        "advertise-address": settings.address,
        "secure-port": settings.port,
        "endpoint-reconciler-type": "lease" if settings.nodes else "none",
        "tls-cert-file": pki / "apiserver.crt",
        "tls-private-key-file": pki / "apiserver.key",
        "client-ca-file": pki / "ca.crt",
        "kubelet-certificate-authority": pki / "ca.crt",
        "kubelet-client-certificate": pki / "apiserver-kubelet-client.crt",
        "kubelet-client-key": pki / "apiserver-kubelet-client.key",
        "kubelet-preferred-address-types": "InternalIP",
        "service-account-issuer": f"https://kubernetes.default.svc.{addresses.DNS_DOMAIN}",
        "service-account-key-file": pki / "service-account.pub",
        "service-account-signing-key-file": pki / "service-account.key",
        "service-cluster-ip-range": addresses.SERVICE_NETWORK,
        "authorization-mode": "Node,RBAC",
        "enable-admission-plugins": "NodeRestriction",
        "feature-gates": FEATURE_GATES,
        "profiling": "false",
        "allow-privileged": "true",
        "v": 1,
    }
    if not settings.controllers:
        flags["disable-admission-plugins"] = "ServiceAccount"
    if settings.audit:
        flags["audit-policy-file"] = _write_audit_policy(settings)
        flags["audit-log-path"] = settings.audit_log
    return Program("kube-apiserver", _command("kube-apiserver", flags), settings.directory)


def controller_manager(settings: Settings) -> Program:
    pki = settings.pki
    flags = {
        "kubeconfig": settings.kubeconfig_of("controller-manager"),
        "leader-elect": "false",
        "secure-port": 0,
        "use-service-account-credentials": "true",
        "flex-volume-plugin-dir": settings.directory / "volume-plugins",
        "service-account-private-key-file": pki / "service-account.key",
        "root-ca-file": pki / "ca.crt",
        "cluster-signing-cert-file": pki / "ca.crt",
        "cluster-signing-key-file": pki / "ca.key",
        "v": 1,
    }
    command = _command("kube-controller-manager", flags)
    return Program("kube-controller-manager", command, settings.directory)


def scheduler(settings: Settings) -> Program:
    flags = {
        "kubeconfig": settings.kubeconfig_of("scheduler"),
        "leader-elect": "false",
        "secure-port": 0,
        "v": 1,
    }
    return Program("kube-scheduler", _command("kube-scheduler", flags), settings.directory)


def wait_for_api_server(settings: Settings, server: Popen[bytes] | None = None) -> None:
    """Until /readyz says ok; with `server` given, its end is noticed at once."""

    def ended() -> str | None:
        if server is None or server.poll() is None:
            return None
        tail = log_tail(api_server(settings))
        if "address already in use" in tail:
            raise PortTaken(f"port {settings.port} was taken while the API server started")
        return f"the API server ended\n{tail}"

    wait_until(lambda: is_ready(settings), "API server", START_SECONDS, ended)


def is_ready(settings: Settings) -> bool:
    trust = ssl.create_default_context(cafile=str(settings.pki / "ca.crt"))
    connection = HTTPSConnection(settings.address, settings.port, context=trust, timeout=5)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def _command(name: str, flags: dict[str, object]) -> tuple[str, ...]:
    return (str(binary(name)), *(f"--{flag}={value}" for flag, value in flags.items()))


def _write_audit_policy(settings: Settings) -> Path:
    path = settings.directory / "audit-policy.yaml"
    path.write_text(
        "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\n"
        "rules: [{level: Metadata}]\n"
    )
    return path
