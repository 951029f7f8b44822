# SPDX-License-Identifier: Apache-2.0
"""Brings the whole cluster up and takes it down again, in the order that the parts need.

`up` may be killed at any point: the next one finds what was left, removes it, and starts anew.
"""

import time
from collections.abc import Callable

from . import addresses, baseimages, devices, dns, leftovers, network, node, packages
from . import containerd as runtime
from . import controlplane as plane
from .binaries import build, is_built
from .console import say, stage
from .failure import ClusterError
from .kubectl import get, kubectl
from .processes import Program, log_tail, start_detached, stop, wait_until
from .state import State

NODE_SECONDS = 180.0
MODULES_OF_NODE = ("kubernetes", "etcd", "containerd", "kube-router", "coredns")
CONTROLLERS = ("kube-controller-manager", "kube-scheduler")
NODE_PROGRAMS = ("kubelet", "kube-proxy", "kube-router")
PARTS = ("etcd", "kube-apiserver", *CONTROLLERS, "containerd", *NODE_PROGRAMS)


def up(state: State, gpus: int, audit: bool) -> None:
    """A cluster that is ready to use; one that is running already stays as it is."""
    packages.require_root()
    state.require_room_for_sockets()
    started = time.monotonic()
    with state.locked():
        if is_running(state):
            _keep(state, gpus, audit)
            return
        packages.install_missing(say)
        build([name for name in MODULES_OF_NODE if not is_built(name)], say)
        left = leftovers.find(state)
        if left:
            with stage(f"clearing an earlier run ({left})"):
                leftovers.remove(state)
        network.refuse_taken_network()
        state.remove_files()
        _start(state, gpus, audit)
    say(f"{'ready in':<34}{time.monotonic() - started:7.1f} s")


def down(state: State, purge: bool) -> None:
    """Ends and removes what `up` made; with `purge`, the imported images as well."""
    packages.require_root()
    with state.locked():
        parts = state.processes()
        with stage("node and controllers"):
            stop([parts[name] for name in (*NODE_PROGRAMS, *CONTROLLERS) if name in parts])
            # Without etcd it would not end at all, and its farewell to clients takes long.
            stop([parts[name] for name in ("kube-apiserver",) if name in parts], patience=2.0)
        if "containerd" in parts and parts["containerd"].alive():
            with stage("pods"):
                runtime.forget_containers(state)
        with stage("processes, network and mounts"):
            leftovers.remove(state, patience=10.0)
        left = leftovers.find(state)
        if left:
            raise ClusterError(f"`down` left something behind: {left}")
        if purge:
            state.purge()


def is_running(state: State) -> bool:
    parts = state.processes()
    return len(parts) == len(PARTS) and all(part.alive() for part in parts.values())


def is_node_ready(state: State) -> bool:
    conditions = get(state.kubeconfig, "node", addresses.NODE_NAME)["status"]["conditions"]
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _keep(state: State, gpus: int, audit: bool) -> None:
    if audit and not state.settings().get("audit"):
        raise ClusterError("the running cluster has no audit log: run `down` and then `up --audit`")
    devices.set_gpus(state.kubeconfig, gpus)
    say("the cluster is running already")


def _start(state: State, gpus: int, audit: bool) -> None:
    settings = plane.Settings(state.root, addresses.NODE_ADDRESS, addresses.API_PORT, audit=audit)
    for folder in (state.run, state.logs, state.root / "config"):
        folder.mkdir(parents=True)
    state.record_before(leftovers.host_facts())
    state.record_settings({"gpus": gpus, "audit": audit})
    with stage("certificates and network"):
        authority = plane.write_credentials(settings)
        node.write_credentials(authority, state, settings.url)
        dns.write_resolv_conf(state)
        network.create_bridge(state)
        leftovers.create_cgroup()
    with stage("etcd and API server"):
        _launch(state, plane.etcd(settings))
        server = _launch(state, plane.api_server(settings))
        _wait(state, lambda: plane.is_ready(settings), server)
        authority.kubeconfig(state.kubeconfig, "admin", settings.url)
        for program in (plane.controller_manager(settings), plane.scheduler(settings)):
            _launch(state, program)
    with stage("containerd and its images"):
        _start_containerd(state)
        baseimages.load_base_images(state, lambda _: None)
    with stage("kubelet, kube-proxy, kube-router"):
        kubelet = _launch(state, node.kubelet(state))
        proxy = _launch(state, node.kube_proxy(state))
        _wait(state, lambda: _is_node_known(state), kubelet)
        router = _launch(state, node.kube_router(state))
        devices.set_gpus(state.kubeconfig, gpus)
        dns.deploy(state.kubeconfig, baseimages.coredns_name())
        _wait(state, lambda: is_node_ready(state), kubelet)
    with stage("cluster DNS"):
        _wait(state, lambda: _are_pods_welcome(state), kubelet)
        for program in (proxy, router):
            _require_alive(state, program)


def _start_containerd(state: State) -> None:
    program = runtime.containerd(state, baseimages.pause_name())
    _launch(state, program)
    _wait(state, lambda: runtime.is_serving(state), program)
    if runtime.forget_containers(state):
        stop([state.processes()[program.name]])
        _launch(state, program)
        _wait(state, lambda: runtime.is_serving(state), program)


def _is_node_known(state: State) -> bool:
    found = kubectl(state.kubeconfig, "get", "nodes", "--output=name")
    return f"node/{addresses.NODE_NAME}" in found.split()


def _are_pods_welcome(state: State) -> bool:
    """Names resolve, and a pod in the default namespace has the account it runs as."""
    accounts = kubectl(state.kubeconfig, "get", "serviceaccounts", "--output=name").split()
    return "serviceaccount/default" in accounts and dns.is_ready(state.kubeconfig)


def _launch(state: State, program: Program) -> Program:
    state.record_process(program.name, start_detached(program))
    return program


def _wait(state: State, condition: Callable[[], bool], program: Program) -> None:
    wait_until(condition, program.name, NODE_SECONDS, lambda: _end_of(state, program))


def _require_alive(state: State, program: Program) -> None:
    reason = _end_of(state, program)
    if reason is not None:
        raise ClusterError(f"{program.name}: {reason}")


def _end_of(state: State, program: Program) -> str | None:
    """None while it runs, else what it said last."""
    alive = state.processes()[program.name].alive()
    return None if alive else f"it ended\n{log_tail(program)}"
