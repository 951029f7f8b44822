// SPDX-License-Identifier: Apache-2.0

//go:build tools

// Package tools pins Helm to one version.
package tools

import _ "helm.sh/helm/v4/cmd/helm"
