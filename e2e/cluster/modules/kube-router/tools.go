// SPDX-License-Identifier: Apache-2.0

//go:build tools

// Package tools pins the NetworkPolicy enforcement to one version.
package tools

import _ "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router"
