package plant

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

//go:embed planted.go.txt
var plantedSource string

// overlay is the source of the service and the explorer with all rows planted. A function that a row changes gets a
// copy with the change, and calls it while the row is switched on. A constant or a variable that a row changes, such as
// a statement of SQL or an embedded script, gets a copy as well, and so does whatever in its package uses it.
type overlay struct {
	root    string
	sources []*source
	decls   map[string][]*decl // by directory
}

// writeOverlay writes an overlay into a directory, and returns the path of the file for `go build -overlay`.
func writeOverlay(root, dir string, rows []Row) (path string, err error) {
	o := &overlay{root: root, decls: map[string][]*decl{}}
	for _, row := range rows {
		if failed := o.plant(row); failed != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", row.Name, failed))
		}
	}
	if err != nil {
		return "", err
	}
	files := map[string]string{filepath.Join(root, "internal/planted/planted.go"): plantedSource}
	for _, s := range o.sources {
		if len(s.copies) > 0 {
			if files[s.path], err = s.planted(); err != nil {
				return "", err
			}
		}
	}
	for original, text := range files {
		files[original] = filepath.Join(dir, strings.ReplaceAll(strings.TrimPrefix(original, root+"/"), "/", "+"))
		if err := os.WriteFile(files[original], []byte(text), 0o644); err != nil {
			return "", err
		}
	}
	list, err := json.Marshal(map[string]any{"Replace": files})
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, list, 0o644)
}

// plant adds a row.
func (o *overlay) plant(row Row) error {
	c := changes{overlay: o, number: row.number, of: map[*decl][]replacement{}}
	for _, edit := range append([]Edit{row.Edit}, row.And...) {
		if err := c.find(edit); err != nil {
			return fmt.Errorf("%s: %w", edit.File, err)
		}
	}
	// In the same order each time, so that the Go command finds what it has compiled before.
	inOrder := func(a, b *decl) int { return cmp.Or(cmp.Compare(a.in.path, b.in.path), a.from-b.from) }
	for _, d := range slices.SortedFunc(maps.Keys(c.of), inOrder) {
		if err := c.copy(d); err != nil {
			return err
		}
	}
	return nil
}

// changes are those of one row.
type changes struct {
	*overlay
	number int
	of     map[*decl][]replacement
}

// find finds what an edit changes.
func (c *changes) find(edit Edit) error {
	path := filepath.Join(c.root, edit.File)
	read, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text := string(read)
	if n := strings.Count(text, edit.Old); n != 1 {
		return fmt.Errorf("what is changed is there %d times, want once: %s", n, edit.Old)
	}
	from := strings.Index(text, edit.Old)
	to := from + len(edit.Old)
	dir, isScript := filepath.Dir(path), strings.HasSuffix(path, ".lua")
	if isScript {
		dir = filepath.Dir(dir)
	}
	decls, err := c.parse(dir)
	if err != nil {
		return err
	}
	for _, d := range decls {
		switch {
		case isScript && d.embeds(filepath.Base(path)):
			c.add(d, replacement{d.to, d.to, " = " + strconv.Quote(text[:from]+edit.New+text[to:])})
			return nil
		case d.in.path == path && d.from <= from && to <= d.to:
			d.in.imports = append(d.in.imports, edit.Imports...)
			c.add(d, replacement{from, to, edit.New})
			return nil
		}
	}
	return fmt.Errorf("no declaration contains what is changed: %s", edit.Old)
}

// add adds a change. Whatever uses a constant or a variable that is changed uses its copy then, and so is changed, too.
func (c *changes) add(changed *decl, change replacement) {
	isFirst := c.of[changed] == nil
	c.of[changed] = append(c.of[changed], change)
	if changed.fn != nil || !isFirst {
		return
	}
	for _, d := range c.decls[filepath.Dir(changed.in.path)] {
		for _, at := range d.uses(changed.name.Name) {
			c.add(d, replacement{at, at + len(changed.name.Name), c.nameOfCopy(changed)})
		}
	}
}

func (c *changes) nameOfCopy(d *decl) string { return fmt.Sprintf("%s__%d", d.name.Name, c.number) }

// copy adds the copy of a declaration to its file.
func (c *changes) copy(d *decl) error {
	changed := c.of[d]
	if d.fn != nil {
		at := d.in.offset(d.fn.Body.Lbrace) + 1
		guard := fmt.Sprintf(" if planted.On(%d) { %s }; ", c.number, d.call(c.nameOfCopy(d)))
		d.in.guards = append(d.in.guards, replacement{at, at, guard})
		changed = append(changed, d.notes(changed)...)
	}
	at := d.in.offset(d.name.Pos())
	changed = append(changed, replacement{at, at + len(d.name.Name), c.nameOfCopy(d)})
	for i := range changed {
		changed[i].from, changed[i].to = changed[i].from-d.from, changed[i].to-d.from
	}
	text, err := replace(d.in.text[d.from:d.to], changed)
	d.in.copies = append(d.in.copies, d.keyword+text)
	return err
}

// replacement is a change of some text.
type replacement struct {
	from, to int // bytes
	text     string
}

func replace(text string, changes []replacement) (string, error) {
	slices.SortStableFunc(changes, func(a, b replacement) int { return cmp.Or(a.from-b.from, a.to-b.to) })
	var changed strings.Builder
	at := 0
	for _, c := range changes {
		if c.from < at {
			return "", fmt.Errorf("changes overlap: %s", text[c.from:at])
		}
		changed.WriteString(text[at:c.from] + c.text)
		at = c.to
	}
	return changed.String() + text[at:], nil
}
