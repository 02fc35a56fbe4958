package pkg_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/nodeagent-io/nodeagent/test/plain"
)

// logs are the functions whose words stand in the log.
var logs = regexp.MustCompile(`^(Debug|Info|Warn|Error|Log)(Context)?$|^(logFailure|Errorf|New)$`)

// Log messages and errors are in plain words and short sentences.
func TestPlainLogs(t *testing.T) {
	checked := 0
	for _, root := range []string{".", "../cmd"} {
		err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				f, ok := call.Fun.(*ast.SelectorExpr)
				if !ok || !logs.MatchString(f.Sel.Name) {
					return true
				}
				for _, arg := range call.Args {
					text := literal(arg)
					if !strings.Contains(text, " ") {
						continue
					}
					checked++
					if err := plain.Check(text); err != nil {
						t.Errorf("%s: %v", path, err)
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if checked < 100 {
		t.Errorf("only %d messages", checked)
	}
}

// literal returns the text of a constant string that is put together of literals, "" for others.
func literal(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, _ := strconv.Unquote(e.Value)
		return text
	case *ast.BinaryExpr:
		return literal(e.X) + literal(e.Y)
	}
	return ""
}
