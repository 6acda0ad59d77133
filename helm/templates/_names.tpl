{{/* Names, labels, the image. */}}

{{- define "gitlab-sync.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* At most 40 characters: what follows it (a component, a hash) must fit into the 52 of a CronJob. */}}
{{- define "gitlab-sync.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "gitlab-sync.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Takes root and a suffix, which may be empty. */}}
{{- define "gitlab-sync.objectName" -}}
{{- include "gitlab-sync.fullname" (first .) -}}{{- with last . }}-{{ . }}{{ end -}}
{{- end -}}

{{- define "gitlab-sync.namespace" -}}
{{- .Values.namespaceOverride | default .Release.Namespace -}}
{{- end -}}

{{- define "gitlab-sync.selectorLabels" -}}
app.kubernetes.io/name: {{ include "gitlab-sync.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "gitlab-sync.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "gitlab-sync.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: gitlab-sync
{{- end -}}

{{/*
The metadata of one object. Takes root, and optionally name (suffix) or fullname, namespace, component, labels, annotations.
The chart's own labels win over all others, since selectors rely on them.
*/}}
{{- define "gitlab-sync.metadata" -}}
{{- $root := .root -}}
name: {{ .fullname | default (include "gitlab-sync.objectName" (list $root .name)) | quote }}
namespace: {{ .namespace | default (include "gitlab-sync.namespace" $root) | quote }}
labels:
{{- $own := include "gitlab-sync.labels" $root | fromYaml -}}
{{- with .component -}}{{- $_ := set $own "app.kubernetes.io/component" . -}}{{- end -}}
{{- merge (dict) $own (.labels | default dict) $root.Values.commonLabels | toYaml | nindent 2 }}
{{- with merge (dict) (.annotations | default dict) $root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "gitlab-sync.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (ternary (include "gitlab-sync.fullname" .) "default" .Values.serviceAccount.create) -}}
{{- end -}}

{{- define "gitlab-sync.image" -}}
{{- $registry := .Values.image.registry | default .Values.global.imageRegistry -}}
{{- with $registry }}{{ . | trimSuffix "/" }}/{{ end -}}
{{- .Values.image.repository -}}
{{- if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end -}}
{{- end -}}

{{/* The port that an http(s) address leads to. */}}
{{- define "gitlab-sync.portOf" -}}
{{- $host := (urlParse .).host -}}
{{- if regexMatch ":[0-9]+$" $host -}}
{{- regexFind "[0-9]+$" $host -}}
{{- else -}}
{{- ternary "80" "443" (hasPrefix "http:" .) -}}
{{- end -}}
{{- end -}}

{{- define "gitlab-sync.pullSecrets" -}}
{{- $names := list -}}
{{- range concat .Values.global.imagePullSecrets .Values.imagePullSecrets -}}
{{- $name := . -}}
{{- if kindIs "map" . -}}{{- $name = .name -}}{{- end -}}
{{- $names = append $names (dict "name" $name) -}}
{{- end -}}
{{- if $names }}
imagePullSecrets:
  {{- $names | uniq | toYaml | nindent 2 }}
{{- end }}
{{- end -}}

{{/*
The HTTP address for NOTES and PUBLIC_URL: what is set, else that of the narrowest route that leads to the webhook; a host
with a star is nobody's address.
*/}}
{{- define "gitlab-sync.publicUrl" -}}
{{- $v := .Values -}}
{{- $found := list -}}
{{- with $v.publicUrl -}}
{{- $found = append $found (trimSuffix "/" .) -}}
{{- end -}}
{{- if $v.webhookIngress.enabled -}}
{{- $found = append $found (printf "http%s://%s" (ternary "s" "" (not (empty $v.webhookIngress.tls))) $v.webhookIngress.host) -}}
{{- end -}}
{{- if $v.webhookHttpRoute.enabled -}}
{{- range $v.webhookHttpRoute.hostnames -}}{{- $found = append $found (printf "https://%s" .) -}}{{- end -}}
{{- end -}}
{{- if $v.ingress.enabled -}}
{{- range $host := $v.ingress.hosts -}}
{{- range .paths -}}
{{- if or (eq .path "/hooks/gitlab") (and (has .path (list "/" "/hooks" "/hooks/")) (ne (.pathType | default "Prefix") "Exact")) -}}
{{- $found = append $found (printf "http%s://%s" (ternary "s" "" (not (empty $v.ingress.tls))) $host.host) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if $v.httpRoute.enabled -}}
{{- range $hostname := $v.httpRoute.hostnames -}}
{{- range $v.httpRoute.pathPrefixes -}}
{{- if has . (list "/" "/hooks" "/hooks/" "/hooks/gitlab") -}}
{{- $found = append $found (printf "https://%s" $hostname) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $found -}}
{{- if not (or (contains "*" .) (hasSuffix "//" .)) -}}{{- . -}}{{- break -}}{{- end -}}
{{- end -}}
{{- end -}}
