// SPDX-License-Identifier: Apache-2.0

//go:build tools

// Package tools pins the etcd server to one version.
package tools

import _ "go.etcd.io/etcd/server/v3"
