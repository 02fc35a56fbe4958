package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/tools/go/packages"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// A decl is a function, variable or constant of a package, or a method.
type decl struct {
	name string // package.Function, package.Type.Method
	file string // below the checkout
	// first and last are its lines.
	first, last int
	uses        map[*decl]bool
	// lacks are the sources that it reports as missing.
	lacks []evidence.Source
	// cause is of a rule.
	cause string
}

// A graph is what uses what in the agent's packages. Types are not in it: every rule uses
// the evidence.
type graph struct {
	decls []*decl
	users map[*decl][]*decl
	// sources are what is missing when a call fails, by caller and callee.
	sources map[[2]*decl][]evidence.Source
}

const mode = packages.NeedName | packages.NeedFiles | packages.NeedImports | packages.NeedDeps | packages.NeedTypes | packages.NeedSyntax | packages.NeedTypesInfo

// load reads the packages of a checkout.
func load(root string) (*graph, error) {
	fset := token.NewFileSet()
	pkgs, err := packages.Load(&packages.Config{Mode: mode, Dir: root, Fset: fset}, "./pkg/...")
	if err != nil {
		return nil, err
	}
	b := &builder{
		graph: &graph{users: map[*decl][]*decl{}, sources: map[[2]*decl][]evidence.Source{}},
		fset:  fset, root: root, of: map[types.Object]*decl{}, carried: map[types.Object][]evidence.Source{},
	}
	for _, p := range pkgs {
		if len(p.Errors) > 0 {
			return nil, fmt.Errorf("%s does not compile: %w", p.PkgPath, p.Errors[0])
		}
	}
	for _, visit := range []func(*packages.Package, *decl, ast.Node){b.add, b.connect, b.guards, b.carriers} {
		for _, p := range pkgs {
			for _, file := range p.Syntax {
				b.walk(p, file, visit)
			}
		}
	}
	for _, d := range b.decls {
		for used := range d.uses {
			b.users[used] = append(b.users[used], d)
		}
	}
	return b.graph, nil
}

type builder struct {
	*graph
	fset *token.FileSet
	root string
	of   map[types.Object]*decl
	// carried are fields that carry the reason why sources are missing.
	carried map[types.Object][]evidence.Source
}

// walk visits the declarations of a file.
func (b *builder) walk(p *packages.Package, file *ast.File, visit func(*packages.Package, *decl, ast.Node)) {
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			visit(p, b.declare(p, p.TypesInfo.Defs[d.Name], d), d)
		case *ast.GenDecl:
			for _, s := range d.Specs {
				if v, ok := s.(*ast.ValueSpec); ok {
					for _, name := range v.Names {
						visit(p, b.declare(p, p.TypesInfo.Defs[name], v), v)
					}
				}
			}
		}
	}
}

// declare returns the declaration of an object.
func (b *builder) declare(p *packages.Package, o types.Object, n ast.Node) *decl {
	if d := b.of[o]; d != nil {
		return d
	}
	begin, end := b.fset.Position(n.Pos()), b.fset.Position(n.End())
	file, err := filepath.Rel(b.root, begin.Filename)
	if err != nil {
		file = begin.Filename
	}
	name := o.Name()
	if f, ok := o.(*types.Func); ok {
		if recv := f.Signature().Recv(); recv != nil {
			t := recv.Type().String()
			name = strings.TrimSuffix(t[strings.LastIndexAny(t, "./")+1:], "]") + "." + name
		}
	}
	d := &decl{name: p.Name + "." + name, file: file, first: begin.Line, last: end.Line, uses: map[*decl]bool{}}
	b.of[o] = d
	b.decls = append(b.decls, d)
	return d
}

// add notes the cause of a rule.
func (b *builder) add(_ *packages.Package, d *decl, n ast.Node) {
	ast.Inspect(n, func(n ast.Node) bool {
		if kv, ok := n.(*ast.KeyValueExpr); ok && d.cause == "" {
			key, isKey := kv.Key.(*ast.Ident)
			if text, ok := kv.Value.(*ast.BasicLit); isKey && ok && key.Name == "Cause" && text.Kind == token.STRING {
				d.cause, _ = strconv.Unquote(text.Value)
			}
		}
		return true
	})
	if _, isVar := n.(*ast.ValueSpec); !isVar {
		d.cause = "" // of a finding
	}
}

// connect notes what a declaration uses.
func (b *builder) connect(p *packages.Package, d *decl, n ast.Node) {
	ast.Inspect(n, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			if used := b.of[origin(p.TypesInfo.Uses[id])]; used != nil && used != d {
				d.uses[used] = true
			}
		}
		return true
	})
}

func origin(o types.Object) types.Object {
	if f, ok := o.(*types.Func); ok {
		return f.Origin()
	}
	return o
}

// guards finds what a reader says is missing when a call fails:
//
//	err := call()
//	if err != nil { p.Lack(source, …) }
//
// or with the call, or with a field that carries an error, in the if statement.
func (b *builder) guards(p *packages.Package, d *decl, n ast.Node) {
	b.ifs(p, n, func(s *ast.IfStmt, failed []ast.Node) {
		lacks := b.lacked(p, n, s.Body)
		d.lacks = append(d.lacks, lacks...)
		if len(lacks) == 0 {
			return
		}
		for _, from := range failed {
			b.label(p, d, from, lacks)
		}
		for _, from := range []ast.Node{s.Init, s.Cond} {
			each(from, func(sel *ast.SelectorExpr) {
				if v, ok := p.TypesInfo.Uses[sel.Sel].(*types.Var); ok && v.IsField() && strings.HasSuffix(v.Name(), "Error") {
					b.carried[v] = append(b.carried[v], lacks...)
				}
			})
		}
	})
}

// carriers finds the calls whose error a field carries to where something is missing for it.
func (b *builder) carriers(p *packages.Package, d *decl, n ast.Node) {
	b.ifs(p, n, func(s *ast.IfStmt, failed []ast.Node) {
		each(s.Body, func(a *ast.AssignStmt) {
			for _, left := range a.Lhs {
				sel, ok := left.(*ast.SelectorExpr)
				if !ok || len(b.carried[p.TypesInfo.Uses[sel.Sel]]) == 0 {
					continue
				}
				for _, from := range append(failed, a) {
					b.label(p, d, from, b.carried[p.TypesInfo.Uses[sel.Sel]])
				}
			}
		})
	})
}

// ifs visits the if statements of a function, with what may have failed when the condition holds: its
// own calls, and the last call before it by which a variable of it was assigned.
func (b *builder) ifs(p *packages.Package, n ast.Node, visit func(s *ast.IfStmt, failed []ast.Node)) {
	assigned := map[types.Object][]*ast.AssignStmt{}
	each(n, func(a *ast.AssignStmt) {
		for _, left := range a.Lhs {
			if id, ok := left.(*ast.Ident); ok {
				o := p.TypesInfo.ObjectOf(id)
				assigned[o] = append(assigned[o], a)
			}
		}
	})
	each(n, func(s *ast.IfStmt) {
		failed := []ast.Node{s.Cond}
		each(s.Cond, func(id *ast.Ident) {
			var last ast.Node
			for _, a := range assigned[p.TypesInfo.Uses[id]] {
				if a.Pos() < s.Cond.Pos() && calls(a) {
					last = a
				}
			}
			failed = append(failed, last)
		})
		visit(s, failed)
	})
}

func calls(n ast.Node) bool {
	found := false
	each(n, func(*ast.CallExpr) { found = true })
	return found
}

// label notes for the calls of a statement what is missing when they fail.
func (b *builder) label(p *packages.Package, d *decl, n ast.Node, missing []evidence.Source) {
	each(n, func(call *ast.CallExpr) {
		fun := call.Fun
		if sel, ok := fun.(*ast.SelectorExpr); ok {
			fun = sel.Sel
		}
		if id, ok := fun.(*ast.Ident); ok {
			if callee := b.of[origin(p.TypesInfo.Uses[id])]; callee != nil {
				b.sources[[2]*decl{d, callee}] = append(b.sources[[2]*decl{d, callee}], missing...)
			}
		}
	})
}

// lacked returns the sources of the calls of Lack in a block, or in what it calls of the same function.
func (b *builder) lacked(p *packages.Package, function, n ast.Node) []evidence.Source {
	closures := map[types.Object]*ast.FuncLit{}
	each(function, func(a *ast.AssignStmt) {
		if id, ok := a.Lhs[0].(*ast.Ident); ok {
			if f, ok := a.Rhs[0].(*ast.FuncLit); ok {
				closures[p.TypesInfo.ObjectOf(id)] = f
			}
		}
	})
	var out []evidence.Source
	each(n, func(call *ast.CallExpr) {
		switch fun := call.Fun.(type) {
		case *ast.Ident:
			if f := closures[p.TypesInfo.Uses[fun]]; f != nil && (f.Pos() > n.Pos() || f.End() < n.Pos()) {
				out = append(out, b.lacked(p, f, f.Body)...)
			}
		case *ast.SelectorExpr:
			if fun.Sel.Name != "Lack" || len(call.Args) != 2 {
				return
			}
			if v := p.TypesInfo.Types[call.Args[0]].Value; v != nil {
				text, _ := strconv.Unquote(v.ExactString())
				out = append(out, evidence.Source(text))
			}
		}
	})
	return out
}

// each visits the nodes of one type.
func each[T ast.Node](n ast.Node, visit func(T)) {
	if n == nil {
		return
	}
	ast.Inspect(n, func(n ast.Node) bool {
		if t, ok := n.(T); ok {
			visit(t)
		}
		return true
	})
}

// rules returns the causes whose rules reach a declaration.
func (g *graph) rules(changed *decl) []string {
	causes := map[string]bool{}
	g.up(changed, func(d *decl) bool {
		if d.cause != "" {
			causes[d.cause] = true
		}
		return d.cause == ""
	})
	return slices.Sorted(maps.Keys(causes))
}

// up visits a declaration and what uses it, as far as visit says.
func (g *graph) up(from *decl, visit func(*decl) bool) {
	seen, next := map[*decl]bool{from: true}, []*decl{from}
	for len(next) > 0 {
		d := next[0]
		next = next[1:]
		if !visit(d) {
			continue
		}
		for _, user := range g.users[d] {
			if !seen[user] {
				seen[user] = true
				next = append(next, user)
			}
		}
	}
}

// missing returns the sources that a reader's function reads: those that it reports as
// missing, else those that the nearest of its callers reports when it fails.
func (g *graph) missing(changed *decl) []evidence.Source {
	out := map[evidence.Source]bool{}
	for _, s := range changed.lacks {
		out[s] = true
	}
	seen, next := map[*decl]bool{changed: true}, []*decl{changed}
	for len(next) > 0 && len(changed.lacks) == 0 {
		d := next[0]
		next = next[1:]
		for _, user := range g.users[d] {
			labels := g.sources[[2]*decl{user, d}]
			if len(labels) == 0 {
				labels = user.lacks
			}
			for _, s := range labels {
				out[s] = true
			}
			if len(labels) == 0 && !seen[user] {
				seen[user] = true
				next = append(next, user)
			}
		}
	}
	return slices.Sorted(maps.Keys(out))
}
