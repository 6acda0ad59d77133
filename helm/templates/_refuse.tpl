{{/* What cannot work is refused here, each with a sentence that says what to change. What is missing is left to NOTES. */}}
{{- define "gitlab-sync.refuse" -}}
{{- $v := .Values -}}
{{- $problems := list -}}
{{- range $block, $inline := dict "database" "url" "gitlab" "token" "webhook" "tokens" "api" "tokens" "notifications" "secret" -}}
{{- if and (index $v $block $inline) (or $v.existingSecret (index $v $block "existingSecret")) -}}
{{- $problems = append $problems (printf "%s.%s is given beside an existing Secret; leave one of the two out" $block $inline) -}}
{{- end -}}
{{- end -}}
{{- if and $v.partitions $v.existingPartitionsConfigMap -}}
{{- $problems = append $problems "partitions and existingPartitionsConfigMap are both given; leave one of the two out" -}}
{{- end -}}
{{- if and $v.gitlab.ca.existingSecret $v.gitlab.ca.existingConfigMap -}}
{{- $problems = append $problems "gitlab.ca names a Secret and a ConfigMap; leave one of the two out" -}}
{{- end -}}
{{- if and (not $v.webhook.tokens) (not $v.webhook.tokensKey) (not $v.webhook.signingKeysKey) -}}
{{- $problems = append $problems "webhook.tokensKey and webhook.signingKeysKey are both empty; name at least one" -}}
{{- end -}}
{{- if and $v.image.tag $v.image.digest -}}
{{- $problems = append $problems "image.tag and image.digest are both given and the digest alone would count; leave one of the two out" -}}
{{- end -}}
{{- if not (has "http" $v.roles) -}}
{{- $problems = append $problems "roles lacks http; add it, else nothing can be submitted and no webhook arrives" -}}
{{- end -}}
{{- if and (not (has "rounds" $v.roles)) (not $v.cronJobs.rounds.enabled) -}}
{{- $problems = append $problems "roles lacks rounds and cronJobs.rounds is off; add the role or switch that on, else nothing would ever be landed" -}}
{{- end -}}
{{- if and (not (has "poller" $v.roles)) (not $v.cronJobs.reconcile.enabled) -}}
{{- $problems = append $problems "roles lacks poller and cronJobs.reconcile is off; add the role or switch that on, else what webhooks miss would never be found" -}}
{{- end -}}
{{- if and $v.cronJobs.suspend (or (not (has "rounds" $v.roles)) (not (has "poller" $v.roles))) -}}
{{- $problems = append $problems "cronJobs.suspend stops what stands in for a role that roles lacks; leave it out, or add the role" -}}
{{- end -}}
{{- if and (eq $v.topology "split") (not (without $v.roles "http")) -}}
{{- $problems = append $problems "topology split needs a role beside http; choose combined" -}}
{{- end -}}
{{- if and $v.cronJobs.rounds.enabled (not $v.cronJobs.rounds.partitions) (not $v.partitions) -}}
{{- $problems = append $problems "cronJobs.rounds knows no partition; name them in cronJobs.rounds.partitions" -}}
{{- end -}}
{{- if $v.partitions -}}
{{- range $v.cronJobs.rounds.partitions -}}
{{- if not (hasKey $v.partitions .) -}}
{{- $problems = append $problems (printf "cronJobs.rounds.partitions names %s, which is not among partitions; add it there, or take it out" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $component := list "http" "worker" -}}
{{- $own := index $v $component -}}
{{- if $own.autoscaling.enabled -}}
{{- if gt (int $own.autoscaling.minReplicas) (int $own.autoscaling.maxReplicas) -}}
{{- $problems = append $problems (printf "%s.autoscaling.minReplicas is larger than %s.autoscaling.maxReplicas; lower it, or raise the other" $component $component) -}}
{{- end -}}
{{- if and (eq (int $own.autoscaling.targetCPUUtilizationPercentage) 0) (eq (int $own.autoscaling.targetMemoryUtilizationPercentage) 0) -}}
{{- $problems = append $problems (printf "%s.autoscaling has no target; set the one for CPU or for memory" $component) -}}
{{- end -}}
{{- if and $own.verticalAutoscaling.enabled (ne $own.verticalAutoscaling.updateMode "Off") -}}
{{- $problems = append $problems (printf "%s.verticalAutoscaling and %s.autoscaling would both answer the same load; switch one of them off, or let updateMode be Off" $component $component) -}}
{{- end -}}
{{- end -}}
{{- if and (ne (toString $own.podDisruptionBudget.minAvailable) "") (ne (toString $own.podDisruptionBudget.maxUnavailable) "") -}}
{{- $problems = append $problems (printf "%s.podDisruptionBudget has minAvailable and maxUnavailable; leave one of the two out" $component) -}}
{{- end -}}
{{- end -}}
{{- if lt (int $v.terminationGracePeriodSeconds) (add (int $v.preStopSeconds) (int $v.settings.drainWaitSeconds) 45) -}}
{{- $problems = append $problems "terminationGracePeriodSeconds is shorter than preStopSeconds, settings.drainWaitSeconds and the 45 s of a stop; raise it" -}}
{{- end -}}
{{- if and $v.metrics.serviceMonitor.enabled $v.metrics.podMonitor.enabled -}}
{{- $problems = append $problems "metrics.serviceMonitor and metrics.podMonitor would scrape everything twice; choose one" -}}
{{- end -}}
{{- if and $v.webhookIngress.enabled (not $v.webhookIngress.host) -}}
{{- $problems = append $problems "webhookIngress needs a host; set webhookIngress.host to the name that GitLab calls" -}}
{{- end -}}
{{- if and $v.ingress.enabled (not $v.ingress.hosts) -}}
{{- $problems = append $problems "ingress needs hosts; name at least one in ingress.hosts" -}}
{{- end -}}
{{- range $route := list "httpRoute" "webhookHttpRoute" -}}
{{- if and (index $v $route "enabled") (not (index $v $route "parentRefs")) -}}
{{- $problems = append $problems (printf "%s needs parentRefs; name the Gateway that it belongs to" $route) -}}
{{- end -}}
{{- end -}}
{{- if and (gt (int $v.service.nodePort) 0) (eq $v.service.type "ClusterIP") -}}
{{- $problems = append $problems "service.nodePort goes with the types NodePort and LoadBalancer only; leave it out, or set service.type" -}}
{{- end -}}
{{- if and $v.service.externalTrafficPolicy (eq $v.service.type "ClusterIP") -}}
{{- $problems = append $problems "service.externalTrafficPolicy goes with the types NodePort and LoadBalancer only; leave it out, or set service.type" -}}
{{- end -}}
{{- if and (or $v.service.loadBalancerClass $v.service.loadBalancerSourceRanges) (ne $v.service.type "LoadBalancer") -}}
{{- $problems = append $problems "service.loadBalancerClass and service.loadBalancerSourceRanges go with the type LoadBalancer only; leave them out, or set service.type" -}}
{{- end -}}
{{- if and (gt (len $v.service.ipFamilies) 1) (not (has $v.service.ipFamilyPolicy (list "PreferDualStack" "RequireDualStack"))) -}}
{{- $problems = append $problems "service.ipFamilies names two families; set service.ipFamilyPolicy to PreferDualStack or RequireDualStack" -}}
{{- end -}}
{{- if $problems -}}
{{- fail (printf "\n\nThese values cannot work:\n  - %s\n" (join "\n  - " $problems)) -}}
{{- end -}}
{{- end -}}
