# SPDX-License-Identifier: Apache-2.0
"""The programs take the flags that the chart gives them, and read what its values say."""

from headway_autotune.__main__ import parser as tuner_parser
from headway_operator.__main__ import options_of
from headway_operator.__main__ import parser as operator_parser
from tests.chart.helm import NAMESPACE, Manifest, containers, render


def test_the_operator_understands_its_arguments() -> None:
    container = containers(
        render('serverImage.tag="7"', 'watchNamespaces=["team-a"]', 'operator.logFormat="text"')
    )["headway-operator"]
    assert container["command"] == ["headway-operator"]
    flags = operator_parser().parse_args(container["args"])
    options = options_of(flags)
    assert options.server_image == "headway/server:7"
    assert options.release_namespace == NAMESPACE
    assert options.watch_namespaces == ("team-a",)
    assert options.providers == {"default": "http://headway-prometheus.headway-system.svc:9090"}
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {
        "metrics": flags.metrics_port,
        "probe": flags.probe_port,
        "targets": flags.targets_port,
    }
    assert flags.log_format == "text"


def test_the_tuner_understands_its_arguments(objects: list[Manifest]) -> None:
    container = containers(objects)["headway-tuner"]
    assert container["command"] == ["headway-autotune"]
    flags = tuner_parser().parse_args(container["args"])
    assert dict(flags.metrics_provider).keys() == {"default"}
    assert (flags.tick_seconds, flags.scrape_interval_seconds) == (5, 5)
    (port,) = container["ports"]
    assert port["containerPort"] == flags.metrics_port


def test_both_start_without_any_provider() -> None:
    rendered = containers(render("prometheus.enabled=false"))
    assert operator_parser().parse_args(rendered["headway-operator"]["args"])
    assert tuner_parser().parse_args(rendered["headway-tuner"]["args"])
