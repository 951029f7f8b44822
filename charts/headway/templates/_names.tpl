{{/* Names and labels. A component is operator, tuner or prometheus. */}}

{{- define "headway.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "headway.labels" -}}
{{- $own := dict
  "helm.sh/chart" (printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_")
  "app.kubernetes.io/version" .root.Chart.AppVersion
  "app.kubernetes.io/part-of" "headway"
  "app.kubernetes.io/managed-by" .root.Release.Service -}}
{{- $selector := include "headway.selectorLabels" . | fromYaml -}}
{{- toYaml (merge $selector $own (.root.Values.commonLabels | default dict)) -}}
{{- end -}}

{{- define "headway.selectorLabels" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end -}}

{{- define "headway.componentName" -}}
{{ include "headway.fullname" .root }}-{{ .component }}
{{- end -}}
