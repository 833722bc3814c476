{{- /* The volume of the records of ended gangs: gone with its pod, or a claim of one pod. */ -}}
{{- define "gangsched.records" -}}
- name: records
{{- with .Values.history.claim }}
{{- if gt (int $.Values.replicas) 1 }}
{{- fail (printf "history.claim=%s: one pod writes to a claim, and replicas is %v; allowed is 1" . $.Values.replicas) }}
{{- end }}
  persistentVolumeClaim:
    claimName: {{ . }}
{{- else }}
  emptyDir:
    sizeLimit: 512Mi
{{- end }}
{{- end }}
