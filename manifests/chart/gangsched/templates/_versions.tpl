{{- /*
The version of MutatingAdmissionPolicy that the API server serves; empty: none. Where Helm has no
API server to ask (helm template), Kubernetes' own version says so.
*/ -}}
{{- define "gangsched.policies" -}}
{{- $group := "admissionregistration.k8s.io" -}}
{{- $kind := "MutatingAdmissionPolicy" -}}
{{- $has := .Capabilities.APIVersions -}}
{{- $new := semverCompare ">=1.36.0-0" .Capabilities.KubeVersion.Version -}}
{{- if or $new ($has.Has (printf "%s/v1/%s" $group $kind)) -}}
{{- $group }}/v1
{{- else if $has.Has (printf "%s/v1beta1/%s" $group $kind) -}}
{{- $group }}/v1beta1
{{- end -}}
{{- end }}

{{- /* The image of kube-scheduler, which may not be newer than the API server. */ -}}
{{- define "gangsched.scheduler" -}}
{{- $new := semverCompare ">=1.36.0-0" .Capabilities.KubeVersion.Version -}}
{{- $own := ternary "v1.36.3" "v1.34.4" $new -}}
{{- .Values.extender.image | default (printf "registry.k8s.io/kube-scheduler:%s" $own) -}}
{{- end }}
