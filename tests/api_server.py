# SPDX-License-Identifier: Apache-2.0
"""A small synchronous client of the API server that the tests start. Strict, as kubectl is."""

import base64
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml

from cluster import kubectl
from headway_api.names import API_VERSION
from tests.waiting import WAIT_SECONDS, wait_until

Manifest = dict[str, Any]

APPLY_PATCH = "application/apply-patch+yaml"
MERGE_PATCH = "application/merge-patch+json"
CRDS_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NAMESPACED = frozenset({"inferencepools"})


class ApiServer:
    def __init__(self, kubeconfig: Path, client: httpx.Client) -> None:
        self.kubeconfig = kubeconfig
        self._client = client

    def create(
        self, plural: str, manifest: Manifest, namespace: str = "default", dry_run: bool = False
    ) -> httpx.Response:
        return self._send("POST", collection(plural, namespace), manifest, dry_run)

    def patch(
        self,
        plural: str,
        name: str,
        change: Manifest,
        namespace: str = "default",
        subresource: str = "",
        dry_run: bool = False,
    ) -> httpx.Response:
        path = f"{collection(plural, namespace)}/{name}/{subresource}".rstrip("/")
        return self._send("PATCH", path, change, dry_run)

    def apply(
        self,
        plural: str,
        manifest: Manifest,
        manager: str,
        namespace: str = "default",
        subresource: str = "",
    ) -> None:
        """Server-side apply in the name of a field manager."""
        path = f"{collection(plural, namespace)}/{manifest['metadata']['name']}"
        query = {"fieldManager": manager, "fieldValidation": "Strict"}
        self._client.patch(
            f"{path}/{subresource}".rstrip("/"),
            json=manifest,
            params=query,
            headers={"content-type": APPLY_PATCH},
        ).raise_for_status()

    def get(self, path: str, **query: str) -> Manifest:
        answer = self._client.get(path, params=query).raise_for_status()
        found: Manifest = answer.json()
        return found

    def delete(self, plural: str, name: str, namespace: str = "default") -> None:
        self._client.delete(f"{collection(plural, namespace)}/{name}").raise_for_status()

    def create_namespace(self, name: str) -> None:
        manifest = {"metadata": {"name": name}}
        self._send("POST", "/api/v1/namespaces", manifest).raise_for_status()

    def install(self, crd: Manifest) -> None:
        """Installs a CRD and waits until its objects are served and documented."""
        self._send("POST", CRDS_PATH, crd).raise_for_status()
        name, group = crd["metadata"]["name"], crd["spec"]["group"]
        version = crd["spec"]["versions"][0]["name"]
        wait_until(lambda: self._established(name), f"{name} to be established")
        document, kind = f"/openapi/v3/apis/{group}/{version}", crd["spec"]["names"]["kind"]
        wait_until(lambda: self._documented(document, kind), f"{kind} in {document}")

    def kubectl(self, *arguments: str) -> str:
        """What kubectl prints. It must not meet what it remembers of another server's port."""
        cache = self.kubeconfig.parent / "kubectl-cache"
        return kubectl.kubectl(self.kubeconfig, f"--cache-dir={cache}", *arguments)

    def _established(self, name: str) -> bool:
        conditions = self.get(f"{CRDS_PATH}/{name}")["status"].get("conditions") or []
        held = {c["type"]: c["status"] for c in conditions}
        assert held.get("NonStructuralSchema") != "True", conditions
        return held.get("Established") == "True"

    def _documented(self, document: str, kind: str) -> bool:
        answer = self._client.get(document)
        return answer.is_success and f'"kind":"{kind}"' in answer.text

    def _send(
        self, method: str, path: str, body: Manifest, dry_run: bool = False
    ) -> httpx.Response:
        query = {"fieldValidation": "Strict", **({"dryRun": "All"} if dry_run else {})}
        headers = {"content-type": MERGE_PATCH if method == "PATCH" else "application/json"}
        return self._client.request(method, path, json=body, params=query, headers=headers)


@contextmanager
def connect(kubeconfig: Path) -> Iterator[ApiServer]:
    config = yaml.safe_load(kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    trust = ssl.create_default_context(cadata=_decoded(cluster, "certificate-authority-data"))
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as identity:
        identity.write(_decoded(user, "client-certificate-data"))
        identity.write(_decoded(user, "client-key-data"))
        identity.flush()
        trust.load_cert_chain(identity.name)
    with httpx.Client(base_url=cluster["server"], verify=trust, timeout=WAIT_SECONDS) as client:
        yield ApiServer(kubeconfig, client)


def collection(plural: str, namespace: str = "default") -> str:
    within = f"/namespaces/{namespace}" if plural in NAMESPACED else ""
    return f"/apis/{API_VERSION}{within}/{plural}"


def _decoded(holder: dict[str, str], key: str) -> str:
    return base64.b64decode(holder[key]).decode()
