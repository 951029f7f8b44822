// SPDX-License-Identifier: Apache-2.0

//go:build tools

// Package tools pins kubeconform to one version.
package tools

import _ "github.com/yannh/kubeconform/cmd/kubeconform"
