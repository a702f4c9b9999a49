package broker

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Every error code that a constant or a conversion anywhere in the rooms below names must have its name here: a code without one is counted
// under no name, and stands in no document.
func TestEveryCodeOfTheRoomsBelowHasKafkasName(t *testing.T) {
	found := map[string]map[int16]bool{}
	for _, root := range []string{"..", "../../txn", "../../engine"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, ".pb.go") { // those are said between nodes
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			for code, what := range codesIn(file) {
				if codeNames[code] == "" {
					t.Errorf("%s: %s is code %d, which has no name", path, what, code)
				}
				dir := filepath.Base(filepath.Dir(path))
				if found[dir] == nil {
					found[dir] = map[int16]bool{}
				}
				found[dir][code] = true
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if !found["coordinator"][59] || !found["kafkatx"][120] || !found["group"][82] || len(found["broker"]) < 60 {
		t.Fatalf("codes are looked for in vain: %v", found)
	}
}

// codesIn are the codes that a file names: constants of a type that is called Code, constants of this room, and numbers that are made codes.
func codesIn(file *ast.File) map[int16]string {
	codes := map[int16]string{}
	note := func(e ast.Expr, what string) {
		text := ""
		switch e := e.(type) {
		case *ast.BasicLit:
			text = e.Value
		case *ast.UnaryExpr:
			if x, ok := e.X.(*ast.BasicLit); ok {
				text = e.Op.String() + x.Value
			}
		}
		if n, err := strconv.ParseInt(text, 10, 16); err == nil {
			codes[int16(n)] = what
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			for i, name := range n.Names {
				if i < len(n.Values) && (isCode(n.Type) || file.Name.Name == "broker" && isIdent(n.Type, "int16") && strings.HasPrefix(name.Name, "code")) {
					note(n.Values[i], name.Name)
				}
			}
		case *ast.CallExpr:
			if isCode(n.Fun) && len(n.Args) == 1 {
				note(n.Args[0], "a conversion")
			}
		case *ast.AssignStmt:
			for i, left := range n.Lhs {
				if s, ok := left.(*ast.SelectorExpr); ok && s.Sel.Name == "ErrorCode" && i < len(n.Rhs) {
					note(n.Rhs[i], "an answer's code")
				}
			}
		}
		return true
	})
	return codes
}

func isCode(e ast.Expr) bool {
	if s, ok := e.(*ast.SelectorExpr); ok {
		return s.Sel.Name == "Code"
	}
	return isIdent(e, "Code")
}

func isIdent(e ast.Expr, name string) bool {
	i, ok := e.(*ast.Ident)
	return ok && i.Name == name
}
