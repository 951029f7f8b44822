{{/* The metrics providers as a YAML list: the bundled Prometheus, then those of the values. */}}

{{- define "headway.prometheusUrl" -}}
http://{{ include "headway.fullname" . }}-prometheus.{{ .Release.Namespace }}.svc:9090
{{- end -}}

{{- define "headway.providers" -}}
{{- $providers := list -}}
{{- if .Values.prometheus.enabled -}}
{{- $providers = append $providers (dict "name" "default" "url" (include "headway.prometheusUrl" .)) -}}
{{- end -}}
{{- range .Values.metricsProviders -}}
{{- if and $.Values.prometheus.enabled (eq .name "default") -}}
{{- fail "metricsProviders: \"default\" is the chart's own Prometheus; set prometheus.enabled=false to use yours, or give yours another name" -}}
{{- end -}}
{{- $providers = append $providers . -}}
{{- end -}}
{{- toYaml $providers -}}
{{- end -}}

{{/* Ports of the providers outside the chart, for the network policies. */}}
{{- define "headway.providerPorts" -}}
{{- $ports := list -}}
{{- range .Values.metricsProviders -}}
{{- $url := urlParse .url -}}
{{- $written := regexFind ":[0-9]+$" $url.host | trimPrefix ":" -}}
{{- $ports = append $ports ($written | default (ternary "443" "80" (eq $url.scheme "https")) | int) -}}
{{- end -}}
{{- toYaml (uniq $ports) -}}
{{- end -}}
