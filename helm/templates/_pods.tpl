{{/* What every pod of the chart has in common. */}}

{{- define "gitlab-sync.podSecurityContext" -}}
{{- if .Values.openshift -}}
{{- omit .Values.podSecurityContext "runAsUser" "runAsGroup" "fsGroup" | toYaml -}}
{{- else -}}
{{- toYaml .Values.podSecurityContext -}}
{{- end -}}
{{- end -}}

{{- define "gitlab-sync.securityContext" -}}
{{- if .Values.openshift -}}
{{- omit .Values.securityContext "runAsUser" "runAsGroup" | toYaml -}}
{{- else -}}
{{- toYaml .Values.securityContext -}}
{{- end -}}
{{- end -}}

{{/* host:port as LISTEN wants it. */}}
{{- define "gitlab-sync.listen" -}}
{{- if contains ":" .root.Values.listenAddress -}}[{{ .root.Values.listenAddress }}]{{- else -}}{{ .root.Values.listenAddress }}{{- end -}}:{{ .port }}
{{- end -}}

{{/* The environment of the service and of commands. Numbers by toJson: a float printed by Go becomes 2.592e+06. */}}
{{- define "gitlab-sync.env" -}}
{{- $v := .Values -}}
- name: GITLAB_SYNC_LISTEN
  value: {{ include "gitlab-sync.listen" (dict "root" . "port" 8080) | quote }}
- name: GITLAB_SYNC_MANAGEMENT_LISTEN
  value: {{ include "gitlab-sync.listen" (dict "root" . "port" 8081) | quote }}
{{- range (include "gitlab-sync.secrets" . | fromYaml).items }}
- name: GITLAB_SYNC_{{ .variable }}_FILE
  value: /etc/gitlab-sync/secrets/{{ .variable }}
{{- end }}
{{- with $v.gitlab.url }}
- name: GITLAB_SYNC_GITLAB_URL
  value: {{ . | quote }}
{{- end }}
{{- if or $v.gitlab.ca.existingSecret $v.gitlab.ca.existingConfigMap }}
- name: GITLAB_SYNC_GITLAB_CA_FILE
  value: /etc/gitlab-sync/ca/ca.crt
{{- end }}
{{- if include "gitlab-sync.partitionsConfigMap" . }}
- name: GITLAB_SYNC_PARTITIONS
  value: /etc/gitlab-sync/partitions/partitions.yaml
{{- end }}
{{- with include "gitlab-sync.publicUrl" . }}
- name: GITLAB_SYNC_PUBLIC_URL
  value: {{ . | quote }}
{{- end }}
{{- with $v.notifications.url }}
- name: GITLAB_SYNC_NOTIFY_URL
  value: {{ . | quote }}
{{- end }}
- name: GITLAB_SYNC_ROUND_INTERVAL_S
  value: {{ $v.settings.roundIntervalSeconds | toJson | quote }}
- name: GITLAB_SYNC_POLL_INTERVAL_S
  value: {{ $v.settings.pollIntervalSeconds | toJson | quote }}
- name: GITLAB_SYNC_MERGE_CHECK_S
  value: {{ $v.settings.mergeCheckSeconds | toJson | quote }}
- name: GITLAB_SYNC_DRAIN_WAIT_S
  value: {{ $v.settings.drainWaitSeconds | toJson | quote }}
- name: GITLAB_SYNC_LOG_FORMAT
  value: {{ $v.settings.logFormat }}
- name: GITLAB_SYNC_LOG_LEVEL
  value: {{ $v.settings.logLevel }}
{{- with $v.extraEnv }}
{{ tpl (toYaml .) $ }}
{{- end }}
{{- end -}}

{{- define "gitlab-sync.volumeMounts" -}}
- name: tmp
  mountPath: /tmp
{{- if (include "gitlab-sync.secrets" . | fromYaml).items }}
- name: secrets
  mountPath: /etc/gitlab-sync/secrets
  readOnly: true
{{- end }}
{{- if include "gitlab-sync.partitionsConfigMap" . }}
- name: partitions
  mountPath: /etc/gitlab-sync/partitions
  readOnly: true
{{- end }}
{{- if or .Values.gitlab.ca.existingSecret .Values.gitlab.ca.existingConfigMap }}
- name: ca
  mountPath: /etc/gitlab-sync/ca
  readOnly: true
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ tpl (toYaml .) $ }}
{{- end }}
{{- end -}}

{{- define "gitlab-sync.tmpVolume" -}}
- name: tmp
  emptyDir:
    sizeLimit: {{ .Values.tmpSizeLimit | toString | quote }}
{{- end -}}

{{- define "gitlab-sync.volumes" -}}
{{ include "gitlab-sync.tmpVolume" . }}
{{- with (include "gitlab-sync.secrets" . | fromYaml).items }}
{{ include "gitlab-sync.secretVolume" (dict "name" "secrets" "items" .) }}
{{- end }}
{{- with include "gitlab-sync.partitionsConfigMap" . }}
- name: partitions
  configMap:
    name: {{ . | quote }}
    items:
      - key: {{ ternary $.Values.existingPartitionsKey "partitions.yaml" (not (empty $.Values.existingPartitionsConfigMap)) | quote }}
        path: partitions.yaml
{{- end }}
{{- with .Values.gitlab.ca }}
{{- if .existingSecret }}
- name: ca
  secret:
    secretName: {{ .existingSecret | quote }}
    defaultMode: 0444
    items:
      - key: {{ .key | quote }}
        path: ca.crt
{{- else if .existingConfigMap }}
- name: ca
  configMap:
    name: {{ .existingConfigMap | quote }}
    items:
      - key: {{ .key | quote }}
        path: ca.crt
{{- end }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ tpl (toYaml .) $ }}
{{- end }}
{{- end -}}

{{/*
The fields of a pod's spec beside containers and volumes. enableServiceLinks must be off: for a Service called gitlab-sync
Kubernetes would set variables such as GITLAB_SYNC_SERVICE_HOST, and the service refuses to start with a setting that it does
not know.
*/}}
{{- define "gitlab-sync.podFields" -}}
{{- $v := .Values -}}
enableServiceLinks: false
{{- if kindIs "bool" $v.hostUsers }}
hostUsers: {{ $v.hostUsers }}
{{- end }}
{{- include "gitlab-sync.pullSecrets" . }}
securityContext:
  {{- include "gitlab-sync.podSecurityContext" . | nindent 2 }}
{{- with $v.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $v.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $v.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $v.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with $v.runtimeClassName }}
runtimeClassName: {{ . | quote }}
{{- end }}
{{- with $v.schedulerName }}
schedulerName: {{ . | quote }}
{{- end }}
{{- with $v.hostAliases }}
hostAliases:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $v.dnsPolicy }}
dnsPolicy: {{ . }}
{{- end }}
{{- with $v.dnsConfig }}
dnsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Labels and annotations of a pod. Takes root, component, labels, annotations. */}}
{{- define "gitlab-sync.podMetadata" -}}
{{- $own := include "gitlab-sync.labels" .root | fromYaml -}}
{{- $_ := set $own "app.kubernetes.io/component" .component -}}
labels:
  {{- merge (dict) $own (.labels | default dict) .root.Values.podLabels .root.Values.commonLabels | toYaml | nindent 2 }}
{{- with merge (dict) (.annotations | default dict) .root.Values.podAnnotations .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* One container of ours that runs a command of `gitlab-sync` against the database alone. Takes root, name, args, secret. */}}
{{- define "gitlab-sync.migrationContainer" -}}
- name: {{ .name }}
  image: {{ include "gitlab-sync.image" .root | quote }}
  imagePullPolicy: {{ .root.Values.image.pullPolicy }}
  terminationMessagePolicy: FallbackToLogsOnError
  args:
    {{- toYaml .args | nindent 4 }}
  env:
    {{- if .secret }}
    - name: GITLAB_SYNC_DATABASE_URL_FILE
      value: /etc/gitlab-sync/migration/DATABASE_URL
    {{- end }}
    {{- with .root.Values.extraEnv }}
    {{- tpl (toYaml .) $.root | nindent 4 }}
    {{- end }}
  {{- with .root.Values.extraEnvFrom }}
  envFrom:
    {{- tpl (toYaml .) $.root | nindent 4 }}
  {{- end }}
  securityContext:
    {{- include "gitlab-sync.securityContext" .root | nindent 4 }}
  {{- with .root.Values.migrations.resources }}
  resources:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  volumeMounts:
    - name: tmp
      mountPath: /tmp
    {{- if .secret }}
    - name: migration
      mountPath: /etc/gitlab-sync/migration
      readOnly: true
    {{- end }}
    {{- with .root.Values.extraVolumeMounts }}
    {{- tpl (toYaml .) $.root | nindent 4 }}
    {{- end }}
{{- end -}}

{{/* What the Job of migrations runs. Takes root, secret. */}}
{{- define "gitlab-sync.migrationJobSpec" -}}
{{- $root := .root -}}
{{- $own := .root.Values.migrations -}}
backoffLimit: {{ int $own.backoffLimit }}
activeDeadlineSeconds: {{ int $own.activeDeadlineSeconds }}
{{- if gt (int $own.ttlSecondsAfterFinished) 0 }}
ttlSecondsAfterFinished: {{ int $own.ttlSecondsAfterFinished }}
{{- end }}
template:
  metadata:
    {{- include "gitlab-sync.podMetadata" (dict "root" $root "component" "migrate" "annotations" $own.podAnnotations) | nindent 4 }}
  spec:
    restartPolicy: Never
    terminationGracePeriodSeconds: {{ int $own.terminationGracePeriodSeconds }}
    {{- with $own.serviceAccountName }}
    serviceAccountName: {{ . | quote }}
    {{- end }}
    automountServiceAccountToken: false
    {{- include "gitlab-sync.podFields" $root | nindent 4 }}
    containers:
      {{- include "gitlab-sync.migrationContainer" (dict "root" $root "name" "migrate" "args" (list "migrate" "--if-needed") "secret" .secret) | nindent 6 }}
    volumes:
      {{- include "gitlab-sync.tmpVolume" $root | nindent 6 }}
      {{- if .secret }}
      {{- include "gitlab-sync.secretVolume" (dict "name" "migration" "items" (list .secret)) | nindent 6 }}
      {{- end }}
      {{- with $root.Values.extraVolumes }}
      {{- tpl (toYaml .) $root | nindent 6 }}
      {{- end }}
{{- end -}}
