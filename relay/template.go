package relay

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"
)

// maxRendered bounds what a template writes: twice what any SQS queue takes.
const maxRendered = 2 << 20

var errTooLong = valueErrorf("it writes more than %d bytes", maxRendered)

// templateFuncs are the template templateFuncs beside Go's own. Those with an underscore are
// put in by rewriter; nobody needs to write them.
var templateFuncs = template.FuncMap{
	"json": toJSON, "index": indexValue, "len": lenValue, "_get": walkValue, "_each": rangeValue,
}

// rowTemplate is one compiled template of a route.
type rowTemplate struct {
	key    string // as in the configuration: body, attributes.x
	source string // the template in the canonical spacing of its parse tree
	tmpl   *template.Template
	fields []string // the columns that it names, sorted
}

// newRowTemplate compiles a template. The error joins everything that is wrong with it.
func newRowTemplate(key, text string, types map[string]string) (*rowTemplate, error) {
	tmpl, err := template.New(key).Funcs(templateFuncs).Parse(text)
	if err != nil {
		return nil, err
	}
	t := &rowTemplate{key: key, source: tmpl.Root.String(), tmpl: tmpl}
	named := map[string]bool{}
	var problems []error
	for _, part := range tmpl.Templates() { // itself and what it defines
		r := &rewriter{main: part.Name() == key, types: types, named: named}
		r.node(part.Root, r.main)
		problems = append(problems, r.problems...)
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	t.fields = slices.Sorted(maps.Keys(named))
	return t, t.try(types)
}

// try runs the template on a made-up row, which finds calls with the wrong number or
// type of arguments. One that reads json isn't tried: nobody knows what is in there.
func (t *rowTemplate) try(types map[string]string) error {
	row := templateRow{}
	for _, name := range t.fields {
		sample := strings.Repeat("1", 1000) // long enough for any slice that makes sense
		switch types[name] {
		case "json", "jsonb":
			return nil
		case "boolean":
			sample = "true"
		}
		row[name], _ = sqlValue(types[name], &sample) // fails for json only
	}
	_, err := t.render(row)
	return err
}

// render runs the template on a row. The error holds nothing that comes from the row.
func (t *rowTemplate) render(row templateRow) (string, error) {
	var out boundedText
	err := t.tmpl.Execute(&out, row)
	var ours valueError
	if errors.As(err, &ours) { // without the template package's account of our rewriting
		return "", ours
	}
	return out.String(), err
}

// boundedText takes maxRendered bytes and then refuses more.
type boundedText struct{ strings.Builder }

func (b *boundedText) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxRendered {
		return 0, errTooLong
	}
	return b.Builder.Write(p)
}

// rewriter walks one parse tree. It collects the columns that the template names and
// turns each .a.b into a call of walkValue and each range's subject into one of rangeValue, so
// that a JSON value can have members and its stored text at once, and so that errors
// quote neither.
//
// To know every column it keeps the row in sight: dot at the top and `$` are the row,
// and the row can only be asked for a column. In a template made by `define`, dot is
// whatever the caller hands over, which is never the row.
type rewriter struct {
	main     bool
	types    map[string]string // column to SQL type
	named    map[string]bool
	problems []error
}

// node rewrites a node; row says that dot is the row.
func (r *rewriter) node(node parse.Node, row bool) {
	switch node := node.(type) {
	case *parse.ListNode:
		if node == nil { // an absent else
			return
		}
		for _, child := range node.Nodes {
			r.node(child, row)
		}
	case *parse.ActionNode:
		r.pipe(node.Pipe, row)
	case *parse.TemplateNode:
		if node.Pipe != nil {
			r.pipe(node.Pipe, row)
		}
	case *parse.IfNode:
		r.branch(&node.BranchNode, row, row)
	case *parse.WithNode:
		r.branch(&node.BranchNode, row, false)
	case *parse.RangeNode:
		r.branch(&node.BranchNode, row, false)
		node.Pipe.Cmds = append(node.Pipe.Cmds, callNode(node.Pos, "_each"))
	}
}

func (r *rewriter) branch(branch *parse.BranchNode, row, inside bool) {
	r.pipe(branch.Pipe, row)
	r.node(branch.List, inside)
	r.node(branch.ElseList, row)
}

func (r *rewriter) pipe(pipe *parse.PipeNode, row bool) {
	for _, command := range pipe.Cmds {
		first := 0
		if column, ok := r.indexed(command, row); ok {
			r.column(column)
			first = 3
		}
		for i := first; i < len(command.Args); i++ {
			command.Args[i] = r.operand(command.Args[i], row)
		}
	}
}

// indexed recognizes `index . "name"`, by which columns with odd names are read.
func (r *rewriter) indexed(command *parse.CommandNode, row bool) (column string, ok bool) {
	if len(command.Args) < 3 || command.Args[0].String() != "index" {
		return "", false
	}
	name, ok := command.Args[2].(*parse.StringNode)
	if !ok || !r.isRow(command.Args[1], row) {
		return "", false
	}
	return name.Text, true
}

func (r *rewriter) isRow(node parse.Node, row bool) bool {
	switch node := node.(type) {
	case *parse.DotNode:
		return row
	case *parse.VariableNode:
		return r.main && len(node.Ident) == 1 && node.Ident[0] == "$"
	}
	return false
}

// operand gives what to put in the place of a command's argument.
func (r *rewriter) operand(node parse.Node, row bool) parse.Node {
	if r.isRow(node, row) {
		r.problems = append(r.problems, fmt.Errorf("%s is the whole row here; name a column of it", node))
		return node
	}
	switch node := node.(type) {
	case *parse.FieldNode:
		if row {
			r.column(node.Ident[0])
		}
		return walkNode(&parse.DotNode{NodeType: parse.NodeDot, Pos: node.Pos}, node.Ident)
	case *parse.VariableNode:
		if len(node.Ident) == 1 {
			return node
		}
		of := &parse.VariableNode{NodeType: parse.NodeVariable, Pos: node.Pos, Ident: node.Ident[:1]}
		if r.isRow(of, row) {
			r.column(node.Ident[1])
		}
		return walkNode(of, node.Ident[1:])
	case *parse.ChainNode:
		return walkNode(r.operand(node.Node, row), node.Field)
	case *parse.PipeNode:
		r.pipe(node, row)
	}
	return node
}

func (r *rewriter) column(name string) {
	if _, ok := r.types[name]; ok {
		r.named[name] = true
		return
	}
	problem := fmt.Errorf("unknown column %q", name)
	if near := nearestName(name, slices.Sorted(maps.Keys(r.types))); near != "" {
		problem = fmt.Errorf("unknown column %q; did you mean %q?", name, near)
	}
	r.problems = append(r.problems, problem)
}

// walkNode is the call (_get of "path" …).
func walkNode(of parse.Node, path []string) parse.Node {
	pos := of.Position()
	args := []parse.Node{of}
	for _, name := range path {
		args = append(args, &parse.StringNode{
			NodeType: parse.NodeString, Pos: pos, Quoted: fmt.Sprintf("%q", name), Text: name})
	}
	return &parse.PipeNode{NodeType: parse.NodePipe, Pos: pos, Cmds: []*parse.CommandNode{callNode(pos, "_get", args...)}}
}

func callNode(pos parse.Pos, function string, args ...parse.Node) *parse.CommandNode {
	name := parse.NewIdentifier(function).SetPos(pos)
	return &parse.CommandNode{NodeType: parse.NodeCommand, Pos: pos, Args: append([]parse.Node{name}, args...)}
}

// nearestName is the name at the smallest edit distance, empty if none is near: two
// letters swapped, or a third of the name changed.
func nearestName(name string, names []string) string {
	best, distance := "", min(len(name), 1+max(2, len(name)/3))
	for _, candidate := range names {
		if d := editDistance(name, candidate); d < distance {
			best, distance = candidate, d
		}
	}
	return best
}

func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal, row[j+1] = row[j+1], min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
