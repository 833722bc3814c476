{{- /* Which kinds of job each value stands for. */ -}}
{{- define "gangsched.kinds" -}}
pytorch: [PyTorchJob]
tensorflow: [TFJob]
mpi: [MPIJob]
xgboost: [XGBoostJob]
paddle: [PaddleJob]
jax: [JAXJob]
mxnet: [MXJob]
jobset: [JobSet]
trainer: [TrainJob]
katib: [Experiment, Trial]
{{- end }}

{{- /* The settings: the defaults of a cluster, what the user gave, and the kinds, unless all. */ -}}
{{- define "gangsched.config" -}}
{{- $config := mergeOverwrite (fromYaml (include "gangsched.defaults" .)) .Values.config -}}
{{- if hasKey .Values.config "past_config_map" -}}
{{- /* The former name of the setting: the default does not apply. */ -}}
{{- $_ := unset $config "gang_history_config_map" -}}
{{- end -}}
{{- $all := true -}}
{{- $kinds := list -}}
{{- range $value, $of := fromYaml (include "gangsched.kinds" .) -}}
{{- if (index $.Values $value).enabled -}}
{{- $kinds = concat $kinds $of -}}
{{- else -}}
{{- $all = false -}}
{{- end -}}
{{- end -}}
{{- if not $all -}}
{{- $_ := set $config "job_kinds" $kinds -}}
{{- end -}}
{{- tpl (toYaml $config) . -}}
{{- end }}

{{- /* The names of schedulers whose pods are ours, from the settings; their CEL condition. */ -}}
{{- define "gangsched.names" -}}
{{- $own := list (.Values.config.scheduler_name | default "gangsched") -}}
{{- tpl (toJson (concat $own (.Values.config.scheduler_aliases | default list))) . -}}
{{- end }}

{{- define "gangsched.ours" -}}
{{- $names := fromJsonArray (include "gangsched.names" .) -}}
{{- if eq (len $names) 1 }}== {{ first $names | quote }}{{ else }}in {{ toJson $names }}{{ end -}}
{{- end }}
