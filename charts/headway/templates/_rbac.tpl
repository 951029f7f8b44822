{{/* Binds the ClusterRole named like the component: everywhere, or in each watched namespace alone. */}}

{{- define "headway.bindRole" -}}
{{- $name := include "headway.componentName" . -}}
{{- $namespaces := .root.Values.watchNamespaces | default list -}}
{{- range $namespace := (empty $namespaces | ternary (list "") $namespaces) }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ empty $namespace | ternary "ClusterRoleBinding" "RoleBinding" }}
metadata:
  name: {{ $name }}
  {{- with $namespace }}
  namespace: {{ . }}
  {{- end }}
  labels: {{- include "headway.labels" $ | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ $name }}
subjects:
- kind: ServiceAccount
  name: {{ $name }}
  namespace: {{ $.root.Release.Namespace }}
{{- end }}
{{- end -}}

{{/* Binds the ClusterRole "<component>-cluster", of kinds that live in no namespace. */}}
{{- define "headway.bindClusterRole" -}}
{{- $name := include "headway.componentName" . }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ $name }}-cluster
  labels: {{- include "headway.labels" . | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ $name }}-cluster
subjects:
- kind: ServiceAccount
  name: {{ $name }}
  namespace: {{ .root.Release.Namespace }}
{{- end -}}
