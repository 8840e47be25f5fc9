package plant

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
)

// source is a file, and what is added to it.
type source struct {
	path, text string
	fset       *token.FileSet
	file       *ast.File
	imports    []string
	guards     []replacement
	copies     []string
}

// offset is a place in the text.
func (s *source) offset(at token.Pos) int { return s.fset.Position(at).Offset }

// planted is the text with what is added.
func (s *source) planted() (string, error) {
	slices.Sort(s.imports)
	end, added := s.offset(s.file.Name.End()), s.guards
	for _, path := range append(slices.Compact(s.imports), "stock/internal/planted") {
		added = append(added, replacement{end, end, fmt.Sprintf("; import %q", path)})
	}
	text, err := replace(s.text, added)
	return text + "\n" + strings.Join(s.copies, "\n") + "\nvar _ = planted.On\n", err
}

// decl is a function, a constant or a variable, at the top level.
type decl struct {
	in       *source
	node     ast.Node
	name     *ast.Ident
	fn       *ast.FuncDecl // nil: it is a constant or a variable
	keyword  string        // before its text
	from, to int
}

// parse returns what the package in a directory declares, except in tests.
func (o *overlay) parse(dir string) ([]*decl, error) {
	if known := o.decls[dir]; known != nil {
		return known, nil
	}
	paths, err := filepath.Glob(dir + "/*.go")
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		s := &source{path: path, text: string(text), fset: token.NewFileSet()}
		s.file, err = parser.ParseFile(s.fset, path, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		o.sources = append(o.sources, s)
		o.decls[dir] = append(o.decls[dir], s.decls()...)
	}
	return o.decls[dir], err
}

func (s *source) decls() (decls []*decl) {
	add := func(d decl) {
		d.in, d.from, d.to = s, s.offset(d.node.Pos()), s.offset(d.node.End())
		decls = append(decls, &d)
	}
	for _, node := range s.file.Decls {
		switch node := node.(type) {
		case *ast.FuncDecl:
			add(decl{node: node, name: node.Name, fn: node})
		case *ast.GenDecl:
			for _, spec := range node.Specs {
				if spec, ok := spec.(*ast.ValueSpec); ok && len(spec.Names) == 1 {
					add(decl{node: spec, name: spec.Names[0], keyword: node.Tok.String() + " "})
				}
			}
		}
	}
	return decls
}

// embeds reports whether the declaration is that of an embedded script.
func (d *decl) embeds(script string) bool {
	before := strings.TrimSuffix(d.in.text[:d.from], "var ")
	return strings.HasSuffix(strings.TrimSpace(before), "/"+script)
}

// uses returns the places at which the declaration uses a constant or a variable of its package. It takes anything else
// of the same name for it, except for fields and methods.
func (d *decl) uses(name string) (at []int) {
	others := map[ast.Node]bool{d.name: true}
	ast.Inspect(d.node, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			others[n.Sel] = true
		case *ast.KeyValueExpr:
			others[n.Key] = true
		case *ast.Field:
			for _, field := range n.Names {
				others[field] = true
			}
		case *ast.Ident:
			if n.Name == name && !others[n] {
				at = append(at, d.in.offset(n.Pos()))
			}
		}
		return true
	})
	return at
}

// call is the statement by which a function calls its copy instead of going on.
func (d *decl) call(copied string) string {
	var args []string
	for _, param := range d.fn.Type.Params.List {
		for _, name := range param.Names {
			args = append(args, name.Name)
		}
		if _, variadic := param.Type.(*ast.Ellipsis); variadic {
			args[len(args)-1] += "..."
		}
	}
	if d.fn.Recv != nil {
		copied = d.fn.Recv.List[0].Names[0].Name + "." + copied
	}
	call := copied + "(" + strings.Join(args, ", ") + ")"
	if d.fn.Type.Results == nil {
		return call + "; return"
	}
	return "return " + call
}

// notes returns the calls that note that a changed statement is about to be executed.
func (d *decl) notes(changed []replacement) (notes []replacement) {
	for _, c := range changed {
		visible := strings.IndexFunc(d.in.text[c.from:], func(c rune) bool { return !unicode.IsSpace(c) })
		at := min(d.statement(c.from+visible), c.from)
		notes = append(notes, replacement{at, at, "planted.Executed(); "})
	}
	return slices.Compact(notes)
}

// statement returns where the innermost statement around a place begins, before which another one can stand.
func (d *decl) statement(place int) (at int) {
	at = d.in.offset(d.fn.Body.Lbrace) + 1
	ast.Inspect(d.fn.Body, func(n ast.Node) bool {
		if n == nil || place < d.in.offset(n.Pos()) || d.in.offset(n.End()) <= place {
			return false
		}
		var list []ast.Stmt
		switch n := n.(type) {
		case *ast.BlockStmt:
			list = n.List
		case *ast.CaseClause:
			list = n.Body
		case *ast.CommClause:
			list = n.Body
		}
		for _, statement := range list {
			from := d.in.offset(statement.Pos())
			switch statement.(type) {
			case *ast.CaseClause, *ast.CommClause:
			default:
				if from <= place {
					at = from
				}
			}
		}
		return true
	})
	return at
}
