# SPDX-License-Identifier: Apache-2.0
"""The cluster's networks and names.

The node lives on the bridge of its own pods, so nothing listens on an interface of the host and a
changed Wi-Fi address does not break a running cluster.
"""

NODE_NAME = "headway"
BRIDGE = "headway0"
NETWORK_NAME = "headway-cluster"
POD_NETWORK = "10.244.0.0/16"
NODE_ADDRESS = "10.244.0.1"
NODE_PREFIX = 16
SERVICE_NETWORK = "10.96.0.0/16"
API_SERVICE = "10.96.0.1"
DNS_SERVICE = "10.96.0.10"
DNS_DOMAIN = "cluster.local"
API_PORT = 6443
KUBELET_PORT = 10250
