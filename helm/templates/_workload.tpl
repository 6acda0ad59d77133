{{/* One Deployment of `gitlab-sync serve` with its autoscaler and disruption budget. Takes root, component, roles, values, name. */}}

{{/* The pause before SIGTERM: endpoints vanish some seconds after it, and the listener closes at once. */}}
{{- define "gitlab-sync.lifecycle" -}}
{{- if .Values.lifecycle -}}
{{- toYaml .Values.lifecycle -}}
{{- else if gt (int .Values.preStopSeconds) 0 -}}
preStop:
  {{- if semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version }}
  sleep:
    seconds: {{ int .Values.preStopSeconds }}
  {{- else }}
  exec:
    command: [sleep, {{ int .Values.preStopSeconds | quote }}]
  {{- end }}
{{- end -}}
{{- end -}}

{{- define "gitlab-sync.spread" -}}
{{- $selector := dict "matchLabels" (include "gitlab-sync.selectorLabels" .root | fromYaml | merge (dict "app.kubernetes.io/component" .component)) -}}
{{- $constraints := list -}}
{{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" -}}
{{- $constraints = append $constraints (dict "maxSkew" 1 "topologyKey" . "whenUnsatisfiable" "ScheduleAnyway" "labelSelector" $selector "matchLabelKeys" (list "pod-template-hash")) -}}
{{- end -}}
{{- toYaml $constraints -}}
{{- end -}}

{{- define "gitlab-sync.checksums" -}}
checksum/partitions: {{ toYaml .Values.partitions | sha256sum }}
checksum/secret: {{ include "gitlab-sync.createdSecretData" . | sha256sum }}
{{- end -}}

{{- define "gitlab-sync.workload" -}}
{{- $root := .root -}}
{{- $v := .root.Values -}}
{{- $component := .component -}}
{{- $own := .values -}}
{{- $name := .name -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  {{- include "gitlab-sync.metadata" (dict "root" $root "name" $name "component" $component "annotations" $v.deploymentAnnotations) | nindent 2 }}
spec:
  {{- if not $own.autoscaling.enabled }}
  replicas: {{ int $own.replicaCount }}
  {{- end }}
  revisionHistoryLimit: {{ int $v.revisionHistoryLimit }}
  minReadySeconds: {{ int $v.minReadySeconds }}
  strategy:
    {{- /* Helm merges what is given into the default, which belongs to the other type. */}}
    {{- ternary (omit $own.strategy "rollingUpdate") $own.strategy (eq $own.strategy.type "Recreate") | toYaml | nindent 4 }}
  selector:
    matchLabels:
      {{- include "gitlab-sync.selectorLabels" $root | nindent 6 }}
      app.kubernetes.io/component: {{ $component }}
  template:
    metadata:
      {{- $annotations := merge (include "gitlab-sync.checksums" $root | fromYaml) $own.podAnnotations }}
      {{- $labels := merge (dict "gitlab-sync/replica" "true") $own.podLabels }}
      {{- include "gitlab-sync.podMetadata" (dict "root" $root "component" $component "labels" $labels "annotations" $annotations) | nindent 6 }}
    spec:
      serviceAccountName: {{ include "gitlab-sync.serviceAccountName" $root | quote }}
      automountServiceAccountToken: {{ $v.serviceAccount.automountToken }}
      terminationGracePeriodSeconds: {{ int $v.terminationGracePeriodSeconds }}
      {{- include "gitlab-sync.podFields" $root | nindent 6 }}
      {{- if kindIs "slice" $v.topologySpreadConstraints }}
      topologySpreadConstraints:
        {{- if $v.topologySpreadConstraints }}
        {{- tpl (toYaml $v.topologySpreadConstraints) $root | nindent 8 }}
        {{- else }}
        {{- include "gitlab-sync.spread" (dict "root" $root "component" $component) | nindent 8 }}
        {{- end }}
      {{- end }}
      {{- /* Who only waits has the service's own user; a user that may change the schema stays out of these pods. */}}
      {{- $first := "" }}
      {{- $secret := dict }}
      {{- if eq $v.migrations.mode "initContainer" }}
      {{- $secret = include "gitlab-sync.migrationSecret" $root | fromYaml }}
      {{- $first = include "gitlab-sync.migrationContainer" (dict "root" $root "name" "migrate" "args" (list "migrate" "--if-needed") "secret" $secret) }}
      {{- else if and (eq $v.migrations.mode "job") (gt (int $v.migrations.waitSeconds) 0) }}
      {{- $secret = include "gitlab-sync.databaseSecret" $root | fromYaml }}
      {{- $first = include "gitlab-sync.migrationContainer" (dict "root" $root "name" "wait-for-schema" "args" (list "migrate" "--wait" (int $v.migrations.waitSeconds | toString)) "secret" $secret) }}
      {{- end }}
      {{- if or $first $v.initContainers }}
      initContainers:
        {{- with $first }}
        {{- . | nindent 8 }}
        {{- end }}
        {{- with $v.initContainers }}
        {{- tpl (toYaml .) $root | nindent 8 }}
        {{- end }}
      {{- end }}
      containers:
        - name: gitlab-sync
          image: {{ include "gitlab-sync.image" $root | quote }}
          imagePullPolicy: {{ $v.image.pullPolicy }}
          terminationMessagePolicy: FallbackToLogsOnError
          args:
            - serve
            - --roles
            - {{ join "," .roles }}
            {{- with $own.extraArgs }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          ports:
            {{- if has "http" .roles }}
            - name: http
              containerPort: 8080
            {{- end }}
            - name: management
              containerPort: 8081
          env:
            {{- include "gitlab-sync.env" $root | nindent 12 }}
          {{- with $v.extraEnvFrom }}
          envFrom:
            {{- tpl (toYaml .) $root | nindent 12 }}
          {{- end }}
          {{- range $probe := list "startupProbe" "livenessProbe" "readinessProbe" }}
          {{- with index $v $probe }}
          {{ $probe }}:
            {{- $other := or .exec .tcpSocket .grpc }}
            {{- ternary (omit . "httpGet") . (not (empty $other)) | toYaml | nindent 12 }}
          {{- end }}
          {{- end }}
          {{- with include "gitlab-sync.lifecycle" $root }}
          lifecycle:
            {{- . | nindent 12 }}
          {{- end }}
          securityContext:
            {{- include "gitlab-sync.securityContext" $root | nindent 12 }}
          {{- with $own.resources }}
          resources:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          volumeMounts:
            {{- include "gitlab-sync.volumeMounts" $root | nindent 12 }}
        {{- with $v.sidecars }}
        {{- tpl (toYaml .) $root | nindent 8 }}
        {{- end }}
      volumes:
        {{- include "gitlab-sync.volumes" $root | nindent 8 }}
        {{- if $secret }}
        {{- include "gitlab-sync.secretVolume" (dict "name" "migration" "items" (list $secret)) | nindent 8 }}
        {{- end }}
{{- if $own.autoscaling.enabled }}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  {{- include "gitlab-sync.metadata" (dict "root" $root "name" $name "component" $component) | nindent 2 }}
spec:
  scaleTargetRef:
    apiVersion: apps/v1
    kind: Deployment
    name: {{ include "gitlab-sync.objectName" (list $root $name) | quote }}
  minReplicas: {{ int $own.autoscaling.minReplicas }}
  maxReplicas: {{ int $own.autoscaling.maxReplicas }}
  metrics:
    {{- range $resource, $target := dict "cpu" $own.autoscaling.targetCPUUtilizationPercentage "memory" $own.autoscaling.targetMemoryUtilizationPercentage }}
    {{- if gt (int $target) 0 }}
    - type: Resource
      resource:
        name: {{ $resource }}
        target:
          type: Utilization
          averageUtilization: {{ int $target }}
    {{- end }}
    {{- end }}
  {{- with $own.autoscaling.behavior }}
  behavior:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
{{- $vertical := $own.verticalAutoscaling }}
{{- if $vertical.enabled }}
---
apiVersion: autoscaling.k8s.io/v1
kind: VerticalPodAutoscaler
metadata:
  {{- include "gitlab-sync.metadata" (dict "root" $root "name" $name "component" $component) | nindent 2 }}
spec:
  targetRef:
    apiVersion: apps/v1
    kind: Deployment
    name: {{ include "gitlab-sync.objectName" (list $root $name) | quote }}
  updatePolicy:
    updateMode: {{ $vertical.updateMode | quote }}
  resourcePolicy:
    containerPolicies:
      - containerName: gitlab-sync
        {{- with $vertical.minAllowed }}
        minAllowed:
          {{- toYaml . | nindent 10 }}
        {{- end }}
        {{- with $vertical.maxAllowed }}
        maxAllowed:
          {{- toYaml . | nindent 10 }}
        {{- end }}
{{- end }}
{{- $replicas := int $own.replicaCount }}
{{- if $own.autoscaling.enabled }}{{- $replicas = int $own.autoscaling.minReplicas }}{{- end }}
{{- $budget := $own.podDisruptionBudget }}
{{- if and $budget.enabled (gt $replicas 1) }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "gitlab-sync.metadata" (dict "root" $root "name" $name "component" $component) | nindent 2 }}
spec:
  {{- if ne (toString $budget.minAvailable) "" }}
  minAvailable: {{ include "gitlab-sync.intOrPercent" $budget.minAvailable }}
  {{- else if ne (toString $budget.maxUnavailable) "" }}
  maxUnavailable: {{ include "gitlab-sync.intOrPercent" $budget.maxUnavailable }}
  {{- else }}
  maxUnavailable: 1
  {{- end }}
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "gitlab-sync.selectorLabels" $root | nindent 6 }}
      app.kubernetes.io/component: {{ $component }}
{{- end }}
{{- end -}}

{{- define "gitlab-sync.intOrPercent" -}}
{{- if kindIs "string" . -}}{{ . | quote }}{{- else -}}{{ int64 . }}{{- end -}}
{{- end -}}
