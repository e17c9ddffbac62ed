package config

import (
	"strings"
	"text/template"
)

// TemplateFuncs are the functions that templates have beside text/template's own.
// Whoever renders binds them.
var TemplateFuncs = []string{"json"}

// parseTemplate says what is wrong with a template, or nothing.
func parseTemplate(text string) string {
	funcs := template.FuncMap{}
	for _, name := range TemplateFuncs {
		funcs[name] = func(any) string { return "" }
	}
	if _, err := template.New("").Funcs(funcs).Parse(text); err != nil {
		return strings.TrimPrefix(err.Error(), "template: :")
	}
	return ""
}
