# SPDX-License-Identifier: Apache-2.0
"""Wrong values are refused before anything is installed, and the refusal names the key."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from cluster.binaries import binary
from tests.chart.helm import CHART, containers, of_kind, refusal, render


def test_helm_lint_is_clean() -> None:
    command = [str(binary("helm")), "lint", "--strict", str(CHART)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "WARNING" not in done.stdout


@pytest.mark.parametrize(
    ("wrong", "key"),
    [
        ("operater={}", "operater"),
        ("operator.logFromat=" + '"json"', "logFromat"),
        ('operator.logFormat="xml"', "/operator/logFormat"),
        ("operator.replicas=2", "replicas"),
        ("tuner.tickSeconds=0", "/tuner/tickSeconds"),
        ('prometheus.scrapeIntervalSeconds="5s"', "/prometheus/scrapeIntervalSeconds"),
        ('prometheus.retention="6"', "/prometheus/retention"),
        ('watchNamespaces=["Team_A"]', "/watchNamespaces/0"),
        ('watchNamespaces="team-a"', "/watchNamespaces"),
        ('image.digest="sha256:12"', "/image/digest"),
        ('image.pullPolicy="Sometimes"', "/image/pullPolicy"),
        ('serverImage.repository=""', "/serverImage/repository"),
        ('metricsProviders=[{"name":"default"}]', "url"),
        ('metricsProviders=[{"name":"a","url":"prometheus:9090"}]', "/metricsProviders/0/url"),
        ('networkPolicy.apiServerPorts=["https"]', "/networkPolicy/apiServerPorts/0"),
        ('crds.install="yes"', "/crds/install"),
        ("global.imagePullSecrets=[{}]", "/global/imagePullSecrets/0"),
    ],
)
def test_a_wrong_value_is_refused_by_its_key(wrong: str, key: str) -> None:
    assert key in refusal(wrong)


def test_a_second_provider_called_default_is_refused() -> None:
    said = refusal('metricsProviders=[{"name":"default","url":"http://p:9090"}]')
    assert "metricsProviders" in said
    assert "prometheus.enabled=false" in said


@pytest.mark.parametrize("key", sorted(yaml.safe_load((CHART / "values.yaml").read_text())))
def test_every_leaf_value_may_be_null(key: str) -> None:
    """As a parent chart does that takes a default away."""
    default = yaml.safe_load((CHART / "values.yaml").read_text())[key]
    required = ("repository", "image")
    if isinstance(default, dict):
        emptied = dict.fromkeys(default.keys() - set(required))
        assert of_kind(render(values={key: emptied}), "Deployment")
    else:
        assert of_kind(render(f"{key}=null"), "Deployment")


def test_one_value_repoints_every_image() -> None:
    rendered = containers(render('global.imageRegistry="mirror.example.com/x"'))
    images = [container["image"] for container in rendered.values()]
    images += [
        argument.partition("=")[2]
        for container in rendered.values()
        for argument in container["args"]
        if argument.startswith("--server-image=")
    ]
    assert len(images) == 4
    assert all(image.startswith("mirror.example.com/x/") for image in images)


def test_a_digest_wins_over_the_tag() -> None:
    digest = f"sha256:{'a' * 64}"
    rendered = containers(render(f'image.digest="{digest}"', 'image.tag="1.2"'))
    assert rendered["headway-tuner"]["image"] == f"headway/control-plane@{digest}"


def test_the_chart_works_under_a_parent_chart(tmp_path: Path) -> None:
    parent = tmp_path / "parent"
    shutil.copytree(CHART, parent / "charts" / "headway")
    dependency = {"name": "headway", "version": "0.1.0", "condition": "headway.enabled"}
    described = {"apiVersion": "v2", "name": "parent", "version": "1.0.0"}
    (parent / "Chart.yaml").write_text(json.dumps({**described, "dependencies": [dependency]}))
    (parent / "values.yaml").write_text(
        json.dumps({"global": {"team": "a"}, "headway": {"enabled": True}})
    )
    assert "headway-operator" in of_kind(render(chart=parent), "Deployment")
    assert render("headway.enabled=false", chart=parent) == []


def test_labels_and_objects_of_ones_own_come_along() -> None:
    own = "kind: ConfigMap\napiVersion: v1\nmetadata: {name: '{{ .Release.Name }}-own'}"
    rendered = render('commonLabels={"team":"a"}', values={"extraObjects": [own]})
    assert "headway-own" in of_kind(rendered, "ConfigMap")
    own_free = [held for held in rendered if held["metadata"]["name"] != "headway-own"]
    unlabelled = [
        held["metadata"]["name"]
        for held in own_free
        if held["kind"] != "CustomResourceDefinition"
        and held["metadata"]["labels"].get("team") != "a"
    ]
    assert unlabelled == []
