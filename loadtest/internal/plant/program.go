package plant

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"stock/internal/servers"
	"stock/loadtest/internal/verify"
)

// explorer is the package whose tests convict bugs of the explorer.
const explorer = "loadtest/internal/explore"

// Program is the service with all rows planted, and the tests of the explorer.
type Program struct {
	dir  string // has both, and the switch
	root string
}

// Build builds the program in a directory, from the source that the current one belongs to. Services that this process
// starts from now on read the switch there.
func Build(ctx context.Context, dir string) (*Program, error) {
	list := servers.Command{Name: "go list", Path: "go", Args: []string{"list", "-m", "-f={{.Dir}}", "stock"}}
	found, err := servers.Run(ctx, list)
	if err != nil {
		return nil, fmt.Errorf("this needs Go and the source of stock: run it in the directory of stock: %w: %s", err, found)
	}
	root := strings.TrimSpace(string(found))
	overlay, err := writeOverlay(root, dir, Rows)
	if err != nil {
		return nil, err
	}
	p := &Program{dir, root}
	// The service comes last: tests take one that is as new as they are for their own.
	for _, build := range [][]string{
		{"test", "-c", "-vet=off", "-o", p.tests(), "stock/" + explorer}, {"build", "-o", p.Stock(), "stock/cmd/stock"},
	} {
		output, err := servers.Run(ctx, servers.Command{
			Name: "go " + build[0], Path: "go", Env: append(os.Environ(), "CGO_ENABLED=0"),
			Args: append([]string{build[0], "-trimpath", "-ldflags=-w", "-overlay=" + overlay}, build[1:]...),
		})
		if err != nil {
			return nil, fmt.Errorf("%w:\n%s", err, output)
		}
	}
	return p, os.Setenv("PLANTED", dir)
}

// Stock is the path of the service.
func (p *Program) Stock() string { return filepath.Join(p.dir, "stock") }

func (p *Program) tests() string { return filepath.Join(p.dir, "explore.test") }

// switchOn switches a row on in processes that start later, and every other one off.
func (p *Program) switchOn(r Row) error {
	err := os.WriteFile(filepath.Join(p.dir, "on"), fmt.Appendf(nil, "%d %d\n", r.number, max(r.Every, 1)), 0o644)
	if removed := os.Remove(p.mark()); !errors.Is(removed, os.ErrNotExist) {
		err = errors.Join(err, removed)
	}
	return err
}

// mark is the path of a file that exists if the change was executed since switchOn.
func (p *Program) mark() string { return filepath.Join(p.dir, "executed") }

func (p *Program) executed() bool {
	_, err := os.Stat(p.mark())
	return err == nil
}

// runTests runs the tests of a row, and adds to the trial what came of them.
func (p *Program) runTests(ctx context.Context, t *Trial) error {
	pattern := "^" + strings.NewReplacer("/", "$/^", "|", "$|^").Replace(t.Test) + "$"
	output, err := servers.Run(ctx, servers.Command{
		Name: "the tests of the explorer", Path: p.tests(), Dir: filepath.Join(p.root, explorer),
		Args: []string{"-test.v", "-test.timeout=2m", "-test.run=" + pattern},
	})
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err == nil:
		return t.add(verify.Correct, t.Test, nil)
	case !strings.Contains(string(output), "--- FAIL"):
		return fmt.Errorf("%w\n%s", err, output)
	}
	return t.add(verify.Wrong, t.Test, failures.FindAllString(string(output), 1))
}

// failures finds what a test complains about.
var failures = regexp.MustCompile(`\w+_test\.go:\d+: .{1,200}`)
