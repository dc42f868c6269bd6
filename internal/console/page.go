package console

import (
	"bytes"
	"html/template"
	"net/http"
	"strings"
)

var pageTemplate = template.Must(template.New("page").Parse(`<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>ottla node {{.NodeID}}</title>
</head>
<body>
<main>
<h1>ottla node {{.NodeID}}</h1>
<p role="status">{{.Verdict}}</p>
<dl>
<dt>Cluster</dt><dd>{{.ClusterID}}</dd>
<dt>Roles</dt><dd>{{.Roles}}</dd>
{{with .Rack}}<dt>Rack</dt><dd>{{.}}</dd>
{{end}}<dt>State</dt><dd>{{.State}}</dd>
<dt>Version</dt><dd>{{.Version}}</dd>
</dl>
<ul>
<li><a href="/metrics">metrics</a></li>
<li><a href="/readyz">readyz</a>: does it serve?</li>
<li><a href="/livez">livez</a>: should it be restarted?</li>
</ul>
</main>
</body>
</html>
`))

// page shows what the node is and how it is.
func page(o Options) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		data := struct {
			Info
			Verdict, State, Roles string
		}{o.Info, verdict(o.Node), o.Node.State(), strings.Join(o.Info.Roles, ", ")}
		var b bytes.Buffer
		if err := pageTemplate.Execute(&b, data); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		_, _ = b.WriteTo(w) // the reader has gone: nobody is left to tell
	})
}

// verdict says in a sentence how the node is.
func verdict(n Node) string {
	if err := n.Live(); err != nil {
		return "It should be restarted: " + err.Error()
	}
	if err := n.Ready(); err != nil {
		return "It does not serve: " + err.Error()
	}
	return "It serves."
}
