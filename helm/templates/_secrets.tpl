{{/* Where each secret comes from, and how the containers find it. No value of a secret passes through a pod's manifest. */}}

{{/* The Secret of one block (database, gitlab, webhook, api, notifications); empty: none is named. */}}
{{- define "gitlab-sync.secretOf" -}}
{{- $block := index .root.Values .block -}}
{{- if $block.existingSecret -}}
{{- $block.existingSecret -}}
{{- else if .inline -}}
{{- include "gitlab-sync.fullname" .root -}}
{{- else -}}
{{- .root.Values.existingSecret -}}
{{- end -}}
{{- end -}}

{{/* All secrets as a list under `items`: variable, secret, key. A block without a Secret is left out; NOTES says so. */}}
{{- define "gitlab-sync.secrets" -}}
{{- $v := .Values -}}
{{- $rows := list
  (dict "block" "database" "inline" $v.database.url "key" $v.database.urlKey "variable" "DATABASE_URL")
  (dict "block" "gitlab" "inline" $v.gitlab.token "key" $v.gitlab.tokenKey "variable" "GITLAB_TOKEN")
  (dict "block" "gitlab" "inline" "" "given" $v.gitlab.token "key" $v.gitlab.readTokenKey "variable" "GITLAB_READ_TOKEN")
  (dict "block" "webhook" "inline" $v.webhook.tokens "key" $v.webhook.tokensKey "variable" "WEBHOOK_TOKENS")
  (dict "block" "webhook" "inline" "" "given" $v.webhook.tokens "key" $v.webhook.signingKeysKey "variable" "WEBHOOK_SIGNING_KEYS")
  (dict "block" "api" "inline" $v.api.tokens "key" $v.api.tokensKey "variable" "API_TOKENS")
-}}
{{- if $v.notifications.url -}}
{{- $rows = append $rows (dict "block" "notifications" "inline" $v.notifications.secret "key" $v.notifications.secretKey "variable" "NOTIFY_SECRET") -}}
{{- end -}}
{{- $items := list -}}
{{- range $rows -}}
{{- $secret := include "gitlab-sync.secretOf" (dict "root" $ "block" .block "inline" .inline) -}}
{{- if and $secret .key (not .given) -}}
{{- $items = append $items (dict "variable" .variable "secret" $secret "key" (ternary .variable .key (not (empty .inline)))) -}}
{{- end -}}
{{- end -}}
{{- dict "items" $items | toYaml -}}
{{- end -}}

{{/* The Secret that the chart makes of values, as data; empty if no value holds one. */}}
{{- define "gitlab-sync.createdSecretData" -}}
{{- $v := .Values -}}
{{- $data := dict -}}
{{- with $v.database.url }}{{ $_ := set $data "DATABASE_URL" . }}{{ end -}}
{{- with $v.gitlab.token }}{{ $_ := set $data "GITLAB_TOKEN" . }}{{ end -}}
{{- with $v.webhook.tokens }}{{ $_ := set $data "WEBHOOK_TOKENS" . }}{{ end -}}
{{- with $v.api.tokens }}{{ $_ := set $data "API_TOKENS" . }}{{ end -}}
{{- if $v.notifications.url -}}{{- with $v.notifications.secret }}{{ $_ := set $data "NOTIFY_SECRET" . }}{{ end -}}{{- end -}}
{{- if $data -}}{{- toYaml $data -}}{{- end -}}
{{- end -}}

{{/* The secret that migrations use: variable, secret, key; empty: none is named. */}}
{{- define "gitlab-sync.migrationSecret" -}}
{{- if .Values.migrations.existingSecret -}}
{{- dict "variable" "DATABASE_URL" "secret" .Values.migrations.existingSecret "key" .Values.migrations.urlKey | toYaml -}}
{{- else -}}
{{- include "gitlab-sync.databaseSecret" . -}}
{{- end -}}
{{- end -}}

{{/* The secret with the service's own way to the database, as such a row; empty: none is named. */}}
{{- define "gitlab-sync.databaseSecret" -}}
{{- range (include "gitlab-sync.secrets" . | fromYaml).items -}}
{{- if eq .variable "DATABASE_URL" -}}{{- toYaml . -}}{{- end -}}
{{- end -}}
{{- end -}}

{{/* A projected volume of such rows, each under its variable's name. */}}
{{- define "gitlab-sync.secretVolume" -}}
- name: {{ .name }}
  projected:
    defaultMode: 0440
    sources:
      {{- range .items }}
      - secret:
          name: {{ .secret | quote }}
          items:
            - key: {{ .key | quote }}
              path: {{ .variable }}
      {{- end }}
{{- end -}}

{{- define "gitlab-sync.partitionsConfigMap" -}}
{{- if .Values.existingPartitionsConfigMap -}}
{{- .Values.existingPartitionsConfigMap -}}
{{- else if .Values.partitions -}}
{{- include "gitlab-sync.fullname" . }}-partitions
{{- end -}}
{{- end -}}
