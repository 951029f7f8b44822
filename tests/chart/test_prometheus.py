# SPDX-License-Identifier: Apache-2.0
"""The bundled Prometheus scrapes what operator and tuner ask for, or is not there at all."""

from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from headway_api.names import METRICS_PORT
from headway_operator.targets import TARGETS_PATH
from tests.chart.helm import Manifest, containers, of_kind, render


def config_of(objects: list[Manifest]) -> dict[str, Any]:
    held = of_kind(objects, "ConfigMap")["headway-prometheus"]["data"]["prometheus.yml"]
    config: dict[str, Any] = yaml.safe_load(held)
    return config


def jobs(objects: list[Manifest]) -> dict[str, Any]:
    return {job["job_name"]: job for job in config_of(objects)["scrape_configs"]}


def test_prometheus_asks_the_operator_for_the_pods_of_pools(objects: list[Manifest]) -> None:
    (discovery,) = jobs(objects)["pools"]["http_sd_configs"]
    url = urlsplit(discovery["url"])
    name, namespace, _ = str(url.hostname).split(".")
    service = of_kind(objects, "Service")[name]
    assert service["metadata"]["namespace"] == namespace
    ports = {port["port"]: port["targetPort"] for port in service["spec"]["ports"]}
    (operator,) = [c for c in containers(objects).values() if c["name"] == "operator"]
    named = {port["name"]: port["containerPort"] for port in operator["ports"]}
    assert f"--targets-port={named[ports[url.port]]}" in operator["args"]
    assert url.path == TARGETS_PATH


def test_prometheus_has_no_rights_and_no_token(objects: list[Manifest]) -> None:
    pod = of_kind(objects, "Deployment")["headway-prometheus"]["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    bindings = of_kind(objects, "ClusterRoleBinding")
    subjects = [subject for held in bindings.values() for subject in held["subjects"]]
    assert "headway-prometheus" not in {subject["name"] for subject in subjects}


def test_operator_and_tuner_are_scraped_through_their_services(objects: list[Manifest]) -> None:
    services = of_kind(objects, "Service")
    for part in ("operator", "tuner"):
        (target,) = jobs(objects)[part]["static_configs"][0]["targets"]
        host, _, port = target.partition(":")
        name, namespace, _ = host.split(".")
        service = services[name]
        assert service["metadata"]["namespace"] == namespace
        assert str(service["spec"]["ports"][0]["port"]) == port
        pod = of_kind(objects, "Deployment")[name]["spec"]["template"]
        assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()


def test_the_interval_reaches_prometheus_and_the_tuner() -> None:
    objects = render("prometheus.scrapeIntervalSeconds=2")
    assert config_of(objects)["global"] == {"scrape_interval": "2s", "scrape_timeout": "2s"}
    assert "--scrape-interval-seconds=2" in containers(objects)["headway-tuner"]["args"]


def test_a_change_of_its_configuration_rolls_it() -> None:
    def checksum(*sets: str) -> str:
        pod = of_kind(render(*sets), "Deployment")["headway-prometheus"]["spec"]["template"]
        return str(pod["metadata"]["annotations"]["checksum/config"])

    assert checksum() == checksum('commonLabels={"a":"b"}')
    assert checksum() != checksum("prometheus.scrapeIntervalSeconds=2")


def test_both_ask_the_bundled_one_and_the_others(objects: list[Manifest]) -> None:
    other = '[{"name":"fleet","url":"https://metrics.example.com/p"}]'
    for name in ("headway-operator", "headway-tuner"):
        bundled = "--metrics-provider=default=http://headway-prometheus.headway-system.svc:9090"
        assert bundled in containers(objects)[name]["args"]
        both = containers(render(f"metricsProviders={other}"))[name]["args"]
        assert bundled in both
        assert "--metrics-provider=fleet=https://metrics.example.com/p" in both


def test_switched_off_it_leaves_nothing_behind() -> None:
    own = '[{"name":"default","url":"http://prometheus.monitoring.svc:9091"}]'
    objects = render("prometheus.enabled=false", f"metricsProviders={own}")
    assert [held for held in objects if "prometheus" in held["metadata"]["name"]] == []
    arguments = containers(objects)["headway-tuner"]["args"]
    providers = [a for a in arguments if a.startswith("--metrics-provider")]
    assert providers == ["--metrics-provider=default=http://prometheus.monitoring.svc:9091"]
    egress = of_kind(objects, "NetworkPolicy")["headway-tuner"]["spec"]["egress"]
    assert {"port": 9091, "protocol": "TCP"} in [port for rule in egress for port in rule["ports"]]


def test_its_network_policy_reaches_the_metrics_port_of_pools(objects: list[Manifest]) -> None:
    policies = of_kind(objects, "NetworkPolicy")
    egress = policies["headway-prometheus"]["spec"]["egress"]
    assert METRICS_PORT in [port["port"] for rule in egress for port in rule["ports"]]
    for part in ("headway-operator", "headway-tuner"):
        (ingress,) = policies[part]["spec"]["ingress"]
        allowed = {port["port"] for port in ingress["ports"]}
        assert allowed == ({8080, 8082} if part == "headway-operator" else {8080})
        (reader,) = ingress["from"]
        selected = reader["podSelector"]["matchLabels"]
        pod = of_kind(objects, "Deployment")["headway-prometheus"]["spec"]["template"]
        assert selected.items() <= pod["metadata"]["labels"].items()


def test_network_policies_can_be_left_out() -> None:
    assert of_kind(render("networkPolicy.enabled=false"), "NetworkPolicy") == {}


@pytest.mark.parametrize(("size", "kept"), [("2Gi", "1536MB"), ("512Mi", "384MB")])
def test_old_samples_go_before_the_volume_is_full(size: str, kept: str) -> None:
    objects = render(f'prometheus.storageSize="{size}"')
    pod = of_kind(objects, "Deployment")["headway-prometheus"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert f"--storage.tsdb.retention.size={kept}" in container["args"]
    assert {"name": "data", "emptyDir": {"sizeLimit": size}} in pod["volumes"]
