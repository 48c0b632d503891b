{{- define "cordwood.labels" -}}
app.kubernetes.io/name: cordwood
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- define "cordwood.selector" -}}
app.kubernetes.io/name: cordwood
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
