// Package service describes a service of the user: how it is started or reached, which request sells, what its answers
// mean, and how its stock is set and read. The service knows nothing of the lab.
package service

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Description is what a file of YAML says about a service. In its texts, {item} and {count} stand for the item and the
// units of a sale, and {key} and {buyer} for a text and a number that differ for each sale.
type Description struct {
	Name    string `yaml:"name"`    // in reports; the file's, if it is empty
	Command words  `yaml:"command"` // program and arguments; one process for each replica
	URL     words  `yaml:"url"`     // of replicas that are running already, in place of Command
	Setup   string `yaml:"setup"`   // file with SQL that makes the tables, for Command
	Migrate words  `yaml:"migrate"` // program that makes them, with its arguments; it ends before Command starts
	// Database is mysql, postgres or, with URL, the address of a PostgreSQL; empty: mysql.
	Database string  `yaml:"database"`
	Request  Request `yaml:"request"` // that sells

	// What an answer means. Those with a field are tried before those without.
	Sold    Answer `yaml:"sold"`
	SoldOut Answer `yaml:"sold_out"`
	Refused Answer `yaml:"refused"` // nothing was deducted, for another reason

	Remaining string `yaml:"remaining"` // field with the units that a sale has left; empty: the answer has none
	// IdempotencyHeader is the header with the key of a sale. The service promises to sell once for each key.
	IdempotencyHeader string `yaml:"idempotency_header"`
	// KeyReused reports that a key that is sent again with another request is refused.
	KeyReused bool          `yaml:"key_reused"`
	Cancel    Request       `yaml:"cancel"`  // that cancels the sale with a key; without a path: there is none
	Restock   Request       `yaml:"restock"` // that adds units to an item; without a path: there is none
	Stock     Stock         `yaml:"stock"`
	Pause     time.Duration `yaml:"pause"` // longest sleep during a request, such as between two tries for a lock

	File     string `yaml:"-"` // that this was read from; empty: none
	SetupSQL string `yaml:"-"` // content of Setup
	Dir      string `yaml:"-"` // in which the command is started; empty: the current one
}

// Request is a request to the service.
type Request struct {
	Method  string            `yaml:"method"`
	Path    string            `yaml:"path"`
	Headers map[string]string `yaml:"headers"`
	Body    string            `yaml:"body"`
}

// Answer is a kind of answer.
type Answer struct {
	Status words  `yaml:"status"` // such as 409 or 4xx; empty: a usual one, or any if there is a field
	Field  string `yaml:"field"`  // of the JSON in the body, such as result.code; empty: the status alone decides
	Value  string `yaml:"value"`  // of the field
}

// Stock says how the stock of an item is set and read. One of its fields is set.
type Stock struct {
	SQL   *Store `yaml:"sql"`   // statements
	Redis *Store `yaml:"redis"` // commands
	HTTP  *Store `yaml:"http"`  // method and path of requests to the service
}

// Store says how to set and read the stock of an item in one place.
type Store struct {
	Set     string            `yaml:"set"`
	Read    string            `yaml:"read"`
	Headers map[string]string `yaml:"headers"` // the rest is for HTTP only
	Body    string            `yaml:"body"`    // of the request that sets
	Field   string            `yaml:"field"`   // with the stock, in the answer to the request that reads
}

// words is a list, or a text of words.
type words []string

// UnmarshalYAML accepts both.
func (w *words) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind == yaml.ScalarNode {
		if strings.ContainsAny(node.Value, "\"'") {
			return fmt.Errorf("line %d: words with quotes must be a list, such as [sh, -c, exec ./my-service]", node.Line)
		}
		*w = strings.Fields(node.Value)
		return nil
	}
	return node.Decode((*[]string)(w))
}

// Default returns the description of a service that is started with a command and does what this repository's does.
func Default(command []string) *Description {
	d := &Description{
		Name: strings.Join(command, " "), Command: command,
		Request: Request{Path: "/stock/deduct", Body: `{"goods_id":{item},"count":{count}}`},
		Stock: Stock{SQL: &Store{
			Set:  "INSERT INTO good_stock (goods_id, stock) VALUES ({item}, {count}) ON DUPLICATE KEY UPDATE stock = {count}",
			Read: "SELECT stock FROM good_stock WHERE goods_id = {item}",
		}},
		SetupSQL: "CREATE TABLE good_stock (goods_id BIGINT PRIMARY KEY, stock BIGINT NOT NULL)",
	}
	d.setDefaults()
	return d
}

// Read reads a description from a file. Headers may name variables of the environment, as in ${TOKEN}: a description
// has no secrets.
func Read(path string, getenv func(string) string) (*Description, error) {
	d, err := read(path)
	if err == nil {
		d.File = path
		d.setDefaults()
		err = errors.Join(d.check(), d.expand(getenv))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return d, nil
}

// How package yaml reports a field that a type does not have, and a value of another type than it should have.
var (
	unknownField = regexp.MustCompile(`field (\S+) not found in type \S+`)
	wrongType    = regexp.MustCompile("cannot unmarshal !!(\\w+)( `.*`)? into \\S+")
)

func read(path string) (*Description, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, errors.Unwrap(err) // the caller names the file
	}
	d := &Description{Dir: filepath.Dir(path)}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(d); errors.Is(err, io.EOF) {
		return nil, errors.New("the file is empty: it must describe your service")
	} else if wrong := (*yaml.TypeError)(nil); errors.As(err, &wrong) {
		text := unknownField.ReplaceAllString(strings.Join(wrong.Errors, "; "), "unknown field $1")
		return nil, errors.New(wrongType.ReplaceAllString(text, "a value of type $1$2 cannot stand here"))
	} else if err != nil {
		return nil, err
	}
	if d.Name == "" {
		d.Name = strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
	}
	if d.Setup != "" {
		file := d.Setup
		if !filepath.IsAbs(file) {
			file = filepath.Join(d.Dir, file)
		}
		statements, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("setup: %w", err)
		}
		d.SetupSQL = string(statements)
	}
	return d, nil
}

func (d *Description) setDefaults() {
	for _, r := range []*Request{&d.Request, &d.Cancel, &d.Restock} {
		if r.Method == "" {
			r.Method = "POST"
		}
	}
	for _, a := range []struct {
		answer *Answer
		usual  words
	}{{&d.Sold, words{"2xx"}}, {&d.SoldOut, words{"409"}}, {&d.Refused, words{"4xx", "503"}}} {
		if len(a.answer.Status) == 0 && a.answer.Field == "" {
			a.answer.Status = a.usual
		}
	}
	for i, address := range d.URL {
		d.URL[i] = strings.TrimSuffix(address, "/")
	}
}

// check returns what is wrong with the description.
func (d *Description) check() error {
	switch {
	case strings.ContainsAny(d.Name, "/\\"):
		return fmt.Errorf("name: %q is part of the names of files, and must have no slash", d.Name)
	case (len(d.Command) > 0) == (len(d.URL) > 0):
		return errors.New("give either command, to have your service started, or url, if it is running")
	case len(d.URL) > 0 && (d.Setup != "" || len(d.Migrate) > 0):
		return errors.New("setup and migrate are for a service with a command: the lab makes no tables on servers of yours")
	case slices.ContainsFunc(d.URL, func(address string) bool {
		parsed, err := url.Parse(address)
		return err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.Host == ""
	}):
		return fmt.Errorf("url: %q must be one or more URLs such as http://localhost:8080", d.URL)
	case d.Cancel.Given() && d.IdempotencyHeader == "":
		return errors.New("cancel: needs idempotency_header, which has the key of the sale")
	case d.OnPostgres() && (d.Database == Postgres) != (len(d.Command) > 0):
		return errors.New("database: must be postgres with command, and with url the address of your server, such as " +
			"postgres://shop@db.example/shop; its password is read from PGPASSWORD")
	case d.Database != "" && d.Database != "mysql" && d.Database != Postgres && !IsPostgres(d.Database):
		return fmt.Errorf("database: %q must be mysql or postgres", d.Database)
	case d.Pause < 0 || d.Pause > time.Second:
		return fmt.Errorf("pause: %v must be at most a second", d.Pause)
	}
	for name, a := range map[string]Answer{"sold": d.Sold, "sold_out": d.SoldOut, "refused": d.Refused} {
		if slices.ContainsFunc(a.Status, func(s string) bool { return !statusPattern.MatchString(s) }) {
			return fmt.Errorf("%s.status: %q must be a status such as 409, or 4xx", name, a.Status)
		}
		if (a.Field == "") != (a.Value == "") {
			return fmt.Errorf("%s: field and value need each other", name)
		}
	}
	return errors.Join(d.checkRequests(), d.Stock.check())
}

func (d *Description) checkRequests() error {
	for _, of := range []struct {
		name  string
		needs []string
		Request
	}{
		{"request", []string{"{item}"}, d.Request}, {"cancel", []string{"{key}"}, d.Cancel},
		{"restock", []string{"{item}", "{count}"}, d.Restock},
	} {
		switch {
		case of.name != "request" && !of.Given():
			if of.Body != "" || of.Headers != nil {
				return fmt.Errorf("%s.path is missing", of.name)
			}
		case !strings.HasPrefix(of.Path, "/"):
			return fmt.Errorf("%s.path: %q must begin with a slash", of.name, of.Path)
		case strings.ContainsAny(of.Method+of.Path, " \r\n"):
			return fmt.Errorf("%s: %q and %q must have no space", of.name, of.Method, of.Path)
		}
		for _, placeholder := range of.needs {
			if of.Given() && !of.uses(placeholder) {
				return fmt.Errorf("%s: neither path, body nor headers have %s", of.name, placeholder)
			}
		}
	}
	return nil
}

// Given reports whether there is such a request.
func (r Request) Given() bool { return r.Path != "" }

var statusPattern = regexp.MustCompile(`^[1-5]([0-9]{2}|xx)$`)

// uses reports whether the request has a placeholder.
func (r Request) uses(placeholder string) bool {
	texts := append(slices.Collect(maps.Values(r.Headers)), r.Path, r.Body)
	return strings.Contains(strings.Join(texts, "\n"), placeholder)
}

// OneUnit reports whether each request sells one unit, because it cannot ask for more.
func (d *Description) OneUnit() bool { return !d.Request.uses("{count}") }

func (s Stock) check() error {
	way, where := s.way()
	switch {
	case way == nil:
		return errors.New("stock: give one of sql, redis and http, to set and read the stock")
	case !strings.Contains(way.Set+way.Body, "{item}") || !strings.Contains(way.Set+way.Body, "{count}"):
		return fmt.Errorf("stock.%s.set: %q must have {item} and {count}", where, way.Set)
	case !strings.Contains(way.Read, "{item}"):
		return fmt.Errorf("stock.%s.read: %q must have {item}", where, way.Read)
	case strings.Contains(way.Set+way.Body+way.Read, "{key}") || strings.Contains(way.Set+way.Body+way.Read, "{buyer}"):
		return fmt.Errorf("stock.%s: only {item} and {count} can be filled in: there is no sale", where)
	case where != "http" && (way.Body != "" || way.Field != "" || way.Headers != nil):
		return fmt.Errorf("stock.%s: body, field and headers are for http", where)
	case where == "http" && way.Field == "":
		return errors.New("stock.http.field: name the field of the answer that has the stock")
	}
	if where == "http" {
		for _, request := range []string{way.Set, way.Read} {
			if method, path, _ := strings.Cut(request, " "); method == "" || !strings.HasPrefix(path, "/") {
				return fmt.Errorf("stock.http: %q must be a method and a path, such as GET /stock/{item}", request)
			}
		}
	}
	return nil
}

// way returns the field that is set, and its name; nil if none or several are.
func (s Stock) way() (way *Store, where string) {
	for name, store := range map[string]*Store{"sql": s.SQL, "redis": s.Redis, "http": s.HTTP} {
		if store != nil && way != nil {
			return nil, ""
		}
		if store != nil {
			way, where = store, name
		}
	}
	return way, where
}

// Store names where the stock is kept: mysql, postgres, redis or http.
func (d *Description) Store() string {
	_, where := d.Stock.way()
	switch {
	case where != "sql":
		return where
	case d.OnPostgres():
		return Postgres
	}
	return "mysql"
}

// Postgres is the database of a service on PostgreSQL.
const Postgres = "postgres"

// OnPostgres reports whether the service uses PostgreSQL in place of MySQL.
func (d *Description) OnPostgres() bool { return d.Database == Postgres || IsPostgres(d.Database) }

// IsPostgres reports whether a text is the address of a PostgreSQL.
func IsPostgres(address string) bool {
	return strings.HasPrefix(address, "postgres://") || strings.HasPrefix(address, "postgresql://")
}

var variable = regexp.MustCompile(`\$\{(\w+)\}`)

// expand replaces variables of the environment in headers, whose names become canonical.
func (d *Description) expand(getenv func(string) string) (err error) {
	all := []*map[string]string{&d.Request.Headers, &d.Cancel.Headers, &d.Restock.Headers}
	if d.Stock.HTTP != nil {
		all = append(all, &d.Stock.HTTP.Headers)
	}
	for _, headers := range all {
		expanded := map[string]string{}
		for name, text := range *headers {
			text = variable.ReplaceAllStringFunc(text, func(found string) string {
				value := getenv(variable.FindStringSubmatch(found)[1])
				if value == "" {
					err = errors.Join(err, fmt.Errorf("header %s: the environment has no %s", name, found))
				}
				return value
			})
			canonical := http.CanonicalHeaderKey(name)
			switch {
			case strings.ContainsAny(name+text, "\r\n"):
				err = errors.Join(err, fmt.Errorf("header %q: neither its name nor its value may have a line break", name))
			case slices.Contains([]string{"Content-Length", "Transfer-Encoding"}, canonical):
				err = errors.Join(err, fmt.Errorf("header %s: the lab sets it", name))
			}
			expanded[canonical] = text
		}
		*headers = expanded
	}
	return err
}

// NotJudged says what cannot be judged, because the description lacks it. replicas is how many the lab tells apart.
func (d *Description) NotJudged(replicas int) (notes []string) {
	add := func(missing bool, text string) {
		if missing {
			notes = append(notes, "not judged: "+text)
		}
	}
	add(d.Remaining == "", "whether answers agree with each other: remaining is not in the reply")
	add(d.IdempotencyHeader == "", "requests that are sent again: there is no idempotency_header")
	add(d.OneUnit(), "sales of several units: the request has no {count}")
	add(replicas == 1, "whether every replica sells: replicas are not told apart")
	add(d.Stock.HTTP != nil, "whether the service tells the truth about its stock: it is read from the service itself")
	return notes
}
